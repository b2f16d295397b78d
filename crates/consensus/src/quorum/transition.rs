//! One step between two definitions of the quorum, and why it is safe: whoever commits or is elected before it shares a
//! member with whoever does after it. The engine accepts the same steps and no others.

use std::collections::BTreeSet;

use raft_types::MemberId;

use super::majority::majority_of;
use super::policy::VoterSets;

/// Whether `to` may follow `from` as one entry of the log.
///
/// Either both are one set and differ by one member at most: then two majorities are too large to be disjoint. Or they
/// have one set in common: then both quorums contain a majority of that.
pub fn is_safe_step(from: &VoterSets, to: &VoterSets) -> bool {
    let defined = |sets: &VoterSets| !sets.is_empty() && sets.iter().all(|set| !set.is_empty());
    if !defined(from) || !defined(to) {
        return false;
    }
    if let ([from], [to]) = (from.as_slice(), to.as_slice()) {
        return from.symmetric_difference(to).count() <= 1;
    }
    from.iter().any(|set| to.contains(set))
}

/// Whether both say the same, in whatever order.
pub(crate) fn is_same(left: &VoterSets, right: &VoterSets) -> bool {
    let contains_all = |of: &VoterSets, all: &VoterSets| all.iter().all(|set| of.contains(set));
    contains_all(left, right) && contains_all(right, left)
}

/// The next step on the way from `from` to `to`; `None` when it has arrived. Of several sets that all have to be left
/// behind, the one at `keep` stays until the last step.
pub fn next_step(from: &VoterSets, to: &VoterSets, keep: usize) -> Option<VoterSets> {
    if is_same(from, to) {
        return None;
    }
    if is_safe_step(from, to) {
        return Some(to.clone());
    }
    let kept = from.get(keep).or(from.first())?;
    let mut joint = vec![kept.clone()];
    joint.extend(to.iter().filter(|set| *set != kept).cloned());
    Some(joint)
}

/// Voter sets that are `sets`, or may follow them in the next entry of the log, and of which a quorum may have agreed on
/// something without anybody in `answering`; none: every quorum of all of them has somebody who answers. `members` are
/// those of the membership with `sets`: only they can get a vote in its next step (`membership_step` sees to it).
///
/// Of the steps that [`is_safe_step`] allows, those are looked at that are the easiest to agree on. Any other has one of
/// these among its sets.
pub(crate) fn unseen_quorum(
    sets: &VoterSets,
    members: &BTreeSet<MemberId>,
    answering: &BTreeSet<MemberId>,
) -> Option<VoterSets> {
    let may_agree =
        |set: &BTreeSet<MemberId>| set.difference(answering).count() >= majority_of(set.len());
    let followers: Vec<BTreeSet<MemberId>> = match sets.as_slice() {
        // One member more or less.
        [alone] => {
            let less = alone.iter().map(|id| without(alone, *id));
            let newcomers = members.difference(alone);
            let more = newcomers.map(|id| alone.iter().chain([id]).copied().collect());
            let less = less.filter(|set| !set.is_empty());
            less.chain(more).collect()
        }
        // One of them goes on, alone or with others.
        joint => joint.to_vec(),
    };
    if !sets.is_empty() && sets.iter().all(may_agree) {
        return Some(sets.clone());
    }
    let unseen = followers.into_iter().find(may_agree);
    unseen.map(|set| vec![set])
}

fn without(set: &BTreeSet<MemberId>, id: MemberId) -> BTreeSet<MemberId> {
    set.iter().copied().filter(|member| *member != id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 5;

    fn ids(bits: u64) -> BTreeSet<MemberId> {
        (0..MOST)
            .filter(|at| bits & (1 << at) != 0)
            .map(|at| MemberId(at + 1))
            .collect()
    }

    /// All definitions of one or two sets over these members.
    fn definitions(of: u64) -> Vec<VoterSets> {
        let sets: Vec<BTreeSet<MemberId>> = (1..1 << of).map(ids).collect();
        let mut all: Vec<VoterSets> = sets.iter().map(|set| vec![set.clone()]).collect();
        for one in &sets {
            all.extend(sets.iter().map(|other| vec![one.clone(), other.clone()]));
        }
        all
    }

    /// Whether a quorum of `sets` needs nobody who answers.
    fn agree_unseen(sets: &VoterSets, answering: &BTreeSet<MemberId>) -> bool {
        sets.iter()
            .all(|set| set.difference(answering).count() >= majority_of(set.len()))
    }

    #[test]
    fn no_step_behind_the_sets_is_left_out() {
        // Members up to 4 exist, all of which may vote in the next step.
        let members = ids((1 << 4) - 1);
        let all = definitions(4);
        for from in &all {
            for answering in (0..1 << 4).map(ids) {
                let next = all.iter().filter(|to| is_safe_step(from, to));
                let mut possible = next.chain([from]);
                let expected = possible.any(|sets| agree_unseen(sets, &answering));
                let found = unseen_quorum(from, &members, &answering);
                assert_eq!(found.is_some(), expected, "{from:?}, {answering:?} answer");
                if let Some(found) = found {
                    assert!(agree_unseen(&found, &answering), "{found:?}");
                    assert!(is_safe_step(from, &found) || found == *from, "{found:?}");
                }
            }
        }
    }

    #[test]
    fn only_members_get_a_vote_in_the_next_step() {
        // With 3 as a member, {1 2 3} may follow, of which 1 and 3 are enough; without it nothing may.
        let (pair, both) = (vec![ids(0b11011)], ids(0b01010));
        let unseen = |members| unseen_quorum(&pair, &ids(members), &both);
        assert_eq!(unseen(0b11011), Some(vec![ids(0b11001)]));
        let five = vec![ids(0b11111)];
        assert_eq!(unseen_quorum(&five, &ids(0b11111), &ids(0b00111)), None);
    }
}

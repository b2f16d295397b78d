//! Plans the next voter sets. The input is the policy, the members, the leader's current or intended region, and its view of the other
//! members. A step to a set that cannot answer would stop all commits, so it is refused in advance.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, MemberRecord, Region};
use thiserror::Error;

use crate::quorum::policy::{PolicyGap, RingRules, VoterSets, majority_of};
use crate::ring_view::{RingMember, RingView};

/// The next action on the quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuorumPlan {
    /// The quorum matches the policy.
    Settled,
    /// The quorum should change to these voter sets, with one entry of the log.
    Step(VoterSets),
    /// The quorum should change, but this obstacle prevents it now.
    Blocked(MoveObstacle),
}

/// Why the quorum cannot be moved now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MoveObstacle {
    /// The policy finds no members to which it can give the votes.
    #[error(transparent)]
    Policy(PolicyGap),
    /// A majority of the new set does not answer.
    #[error(
        "only {answering} of the {voters} voters {} answer and {required} are needed; bring member {silent} back", in_region(.region)
    )]
    Silent {
        /// The region, if all voters of the set are in one.
        region: Option<Region>,
        /// The number of voters in the new set.
        voters: usize,
        /// The number of these voters that answer.
        answering: usize,
        /// The number of voters that must answer: a majority.
        required: usize,
        /// A silent voter that must come back.
        silent: MemberId,
    },
    /// A majority of the new set is not caught up.
    #[error(
        "only {near} of the {voters} voters {} are within {MOST_BEHIND} entries of the leader and {required} are needed; member {lagging} is {by} behind: wait for it", in_region(.region)
    )]
    Lagging {
        /// The region, if all voters of the set are in one.
        region: Option<Region>,
        /// The number of voters in the new set.
        voters: usize,
        /// The number of these voters that are caught up.
        near: usize,
        /// The number of voters that must be caught up.
        required: usize,
        /// The most advanced member that is not caught up.
        lagging: MemberId,
        /// By how many entries it lags the leader's log.
        by: u64,
    },
}

fn in_region(region: &Option<Region>) -> String {
    match region {
        Some(region) => format!("of region {region}"),
        None => "that the ring would have".to_owned(),
    }
}

/// How many entries a member may lag the leader and still count as caught up. A busy ring has this many entries in flight over a long
/// distance. The rest arrives within milliseconds.
pub(crate) const MOST_BEHIND: u64 = 4096;

impl RingView {
    /// Returns true if a member answers and has nearly all entries of the leader.
    pub fn is_near(&self, peer: &RingMember) -> bool {
        self.answers(peer) && peer.lag.is_some_and(|lag| lag <= MOST_BEHIND)
    }

    /// Returns the region of these members; `None` if they are in several regions.
    pub fn region_of(&self, set: &BTreeSet<MemberId>) -> Option<&Region> {
        let members = set.iter().filter_map(|id| self.member(*id));
        let mut regions = members.map(|peer| &peer.record.region);
        let first = regions.next()?;
        regions.all(|region| region == first).then_some(first)
    }
}

/// The percentage of the lease after which a silent region is exchanged for another one. The exchange must happen before the leader's own
/// lease ends. After that, the engine accepts no entry, not even the entry of the exchange.
const EXCHANGED_AT: u32 = 85;

/// Returns the voter sets that the rules require for a ring with its leader in `home`. If several regions are suitable, those in force
/// stay, and a region that cannot commit comes last.
pub fn wanted_sets(
    rules: &RingRules,
    view: &RingView,
    home: &Region,
) -> Result<VoterSets, PolicyGap> {
    let soon = RingView {
        lease: view.lease * EXCHANGED_AT / 100,
        ..view.clone()
    };
    let members: BTreeMap<MemberId, MemberRecord> = view
        .members
        .iter()
        .map(|peer| (peer.id, peer.record.clone()))
        .collect();
    rules.voter_sets_among(&members, home, |voters| {
        let is_theirs = |set: &BTreeSet<MemberId>| set.intersection(voters).count() * 2 > set.len();
        let unable = obstacle(&soon, voters).is_some();
        u8::from(unable) * 2 + u8::from(!view.voter_sets.iter().any(is_theirs))
    })
}

/// Returns the plan for a ring with its present or next leader in `home`.
pub fn plan(rules: &RingRules, view: &RingView, home: &Region) -> QuorumPlan {
    let wanted = match wanted_sets(rules, view, home) {
        Ok(wanted) => wanted,
        Err(gap) => {
            let why = MoveObstacle::Policy(gap);
            return QuorumPlan::Blocked(why);
        }
    };
    let near = |id: &MemberId| view.member(*id).is_some_and(|peer| view.is_near(peer));
    let wanted = with_newcomers_one_by_one(&view.voter_sets, wanted, near);
    let keep = set_to_keep(view);
    let Some(next) = next_step(&view.voter_sets, &wanted, keep) else {
        return QuorumPlan::Settled;
    };
    // Only new sets are checked: sets in force delay commits or not, regardless of this plan.
    let mut new = next.iter().filter(|set| !view.voter_sets.contains(set));
    match new.find_map(|set| obstacle(view, set)) {
        Some(why) => QuorumPlan::Blocked(why),
        None => QuorumPlan::Step(next),
    }
}

/// Adds new members to a growing set one at a time, and only members that are caught up. A silent voter would only make the majority
/// larger. A set that is entirely new gets all of its members in one step.
fn with_newcomers_one_by_one(
    current: &VoterSets,
    wanted: VoterSets,
    near: impl Fn(&MemberId) -> bool,
) -> VoterSets {
    let grown = |set: BTreeSet<MemberId>| {
        let overlap = |of: &&BTreeSet<MemberId>| of.intersection(&set).count();
        let before = current.iter().max_by_key(overlap);
        let Some(before) = before.filter(|before| overlap(before) > 0) else {
            return set;
        };
        // If a set also loses members, or if most of its members are new, it counts as another set and needs a joint step.
        if !before.is_subset(&set) || before.len() * 2 < set.len() && before.len() > 1 {
            return set;
        }
        let mut newcomers = set.difference(before).filter(|id| near(id));
        let mut next = before.clone();
        next.extend(newcomers.next());
        next
    };
    wanted.into_iter().map(grown).collect()
}

/// Returns the index of the set in force to keep during the move: a set that answers, preferably with the leader in it.
fn set_to_keep(view: &RingView) -> usize {
    let worth = |set: &BTreeSet<MemberId>| (obstacle(view, set).is_none(), set.contains(&view.own));
    let sets = view.voter_sets.iter().enumerate();
    let best = sets.max_by_key(|(at, set)| (worth(set), std::cmp::Reverse(*at)));
    best.map_or(0, |(at, _)| at)
}

/// Returns the reason why this set could not commit; `None` if it could.
pub fn obstacle(view: &RingView, set: &BTreeSet<MemberId>) -> Option<MoveObstacle> {
    let required = majority_of(set.len());
    let peers: Vec<&RingMember> = set.iter().filter_map(|id| view.member(*id)).collect();
    let (answering, silent): (Vec<&RingMember>, Vec<&RingMember>) =
        peers.iter().partition(|peer| view.answers(peer));
    let region = view.region_of(set).cloned();
    if answering.len() < required {
        return Some(MoveObstacle::Silent {
            region,
            voters: set.len(),
            answering: answering.len(),
            required,
            silent: silent.first().map_or(MemberId(0), |peer| peer.id),
        });
    }
    let (near, far): (Vec<&RingMember>, Vec<&RingMember>) =
        answering.iter().partition(|peer| view.is_near(peer));
    if near.len() < required {
        let nearest = far.iter().min_by_key(|peer| peer.lag)?;
        return Some(MoveObstacle::Lagging {
            region,
            voters: set.len(),
            near: near.len(),
            required,
            lagging: nearest.id,
            by: nearest.lag.unwrap_or(u64::MAX),
        });
    }
    None
}

// One step between two lists of voter sets. A step is safe if any quorum before it shares a member with any quorum after it, for commits
// and elections. The engine accepts exactly the same steps.

/// Returns true if `to` may follow `from` as one entry of the log.
///
/// One of two conditions must be true. Either both consist of one set, and the sets differ by at most one member: two majorities are then
/// too large to be disjoint. Or both have one set in common: both quorums then contain a majority of that set.
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

/// Returns true if both have the same sets, in any order.
pub(crate) fn is_same(left: &VoterSets, right: &VoterSets) -> bool {
    let contains_all = |of: &VoterSets, all: &VoterSets| all.iter().all(|set| of.contains(set));
    contains_all(left, right) && contains_all(right, left)
}

/// Returns the next step from `from` to `to`; `None` if they are the same. If several sets must be left, the set at `keep` stays until the
/// last step.
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

/// Returns voter sets whose quorum may have agreed on an entry without any member of `answering`. They are `sets` itself, or sets that may
/// follow `sets` in the next entry of the log. Returns `None` if every quorum of all these sets has a member that answers. `members` are
/// the members of the membership with `sets`. Only they can get a vote in its next step (`membership_step` ensures that).
///
/// Of the steps that [`is_safe_step`] allows, only those with the weakest requirements are checked. Every other step includes one of these
/// sets.
pub fn unseen_quorum(
    sets: &VoterSets,
    members: &BTreeSet<MemberId>,
    answering: &BTreeSet<MemberId>,
) -> Option<VoterSets> {
    let may_agree =
        |set: &BTreeSet<MemberId>| set.difference(answering).count() >= majority_of(set.len());
    let followers: Vec<BTreeSet<MemberId>> = match sets.as_slice() {
        // The next step may add or remove one member.
        [alone] => {
            let less = alone.iter().map(|id| alone - &BTreeSet::from([*id]));
            let newcomers = members.difference(alone);
            let more = newcomers.map(|id| alone.iter().chain([id]).copied().collect());
            let less = less.filter(|set| !set.is_empty());
            less.chain(more).collect()
        }
        // One of these sets stays in the next step, alone or with others.
        joint => joint.to_vec(),
    };
    if !sets.is_empty() && sets.iter().all(may_agree) {
        return Some(sets.clone());
    }
    let unseen = followers.into_iter().find(may_agree);
    unseen.map(|set| vec![set])
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

    /// Returns all lists of one or two sets over these members.
    fn definitions(of: u64) -> Vec<VoterSets> {
        let sets: Vec<BTreeSet<MemberId>> = (1..1 << of).map(ids).collect();
        let mut all: Vec<VoterSets> = sets.iter().map(|set| vec![set.clone()]).collect();
        for one in &sets {
            all.extend(sets.iter().map(|other| vec![one.clone(), other.clone()]));
        }
        all
    }

    /// Returns true if `sets` have a quorum without any member of `answering`.
    fn agree_unseen(sets: &VoterSets, answering: &BTreeSet<MemberId>) -> bool {
        sets.iter()
            .all(|set| set.difference(answering).count() >= majority_of(set.len()))
    }

    #[test]
    fn every_intermediate_step_is_planned() {
        // The members are 1 to 4, and all of them may vote in the next step.
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
    fn a_set_without_members_is_no_step() {
        let one = vec![ids(0b1)];
        for empty in [vec![], vec![ids(0)], vec![ids(0b1), ids(0)]] {
            assert!(!is_safe_step(&one, &empty), "to {empty:?}");
            assert!(!is_safe_step(&empty, &one), "from {empty:?}");
        }
    }

    #[test]
    fn only_members_get_a_vote_in_the_next_step() {
        // 2 and 4 answer. {1 4 5} may follow {1 2 4 5}, and its members 1 and 5 are a quorum without them.
        let (pair, both) = (vec![ids(0b11011)], ids(0b01010));
        let unseen = |members| unseen_quorum(&pair, &ids(members), &both);
        assert_eq!(unseen(0b11011), Some(vec![ids(0b11001)]));
        let five = vec![ids(0b11111)];
        assert_eq!(unseen_quorum(&five, &ids(0b11111), &ids(0b00111)), None);
    }
}

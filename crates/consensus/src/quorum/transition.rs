//! One step between two definitions of the quorum, and why it is safe: whoever commits or is elected before it shares a
//! member with whoever does after it. The engine accepts the same steps and no others.

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

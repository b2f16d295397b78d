//! Checks that consecutive quorums intersect. In every log, each quorum of a membership must share a member with each quorum of the
//! previous membership, except after a quorum repair. The check is exact: it tries all subsets of the voters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use raft_types::{MemberId, OpId};

use crate::checkers::Checker;
use crate::event::{Content, Event, Repair, Seen, VoterSets, words};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct ConsecutiveQuorumsIntersect {
    /// For each member, the memberships in its log, in order.
    memberships: BTreeMap<MemberId, Vec<(OpId, Arc<VoterSets>)>>,
    repairs: Repairs,
}

impl ConsecutiveQuorumsIntersect {
    fn take(&mut self, member: MemberId, entries: &[Seen]) -> Result<(), String> {
        let log = self.memberships.entry(member).or_default();
        for entry in entries {
            let Content::Membership(_, sets) = &entry.content else {
                continue;
            };
            let before = log.last().cloned();
            log.push((entry.op_id, sets.clone()));
            if let Some((op_id, before)) = before
                && before != *sets
                && !self.repairs.imposed(entry.op_id)
                && let Some((one, other)) = disjoint_quorums(&before, sets)
            {
                return Err(format!(
                    "in the log of member {member}, {} with voters {} follows {op_id} with voters {}: {} is a quorum of \
                     the older one and {} of the newer one",
                    entry.op_id,
                    words(sets),
                    words(&before),
                    words(&[one]),
                    words(&[other])
                ));
            }
        }
        Ok(())
    }
}

impl Checker for ConsecutiveQuorumsIntersect {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        self.repairs.saw(event);
        match event {
            Event::Appended { member, entries } => self.take(*member, entries),
            Event::Truncated { member, keep } | Event::CutBack { member, keep } => {
                if let Some(log) = self.memberships.get_mut(member) {
                    log.retain(|(op_id, _)| keep.is_some_and(|keep| op_id.index <= keep.index));
                }
                Ok(())
            }
            Event::Began {
                member, membership, ..
            } => {
                self.memberships
                    .insert(*member, membership.iter().cloned().collect());
                Ok(())
            }
            Event::Opened { member, log, .. } => {
                self.memberships.remove(member);
                self.take(*member, &log.entries)
            }
            _ => Ok(()),
        }
    }
}

/// Returns two quorums without a common member, one of each membership. A superset of a quorum is a quorum, so it is enough to check each
/// subset and its complement.
fn disjoint_quorums(
    older: &VoterSets,
    newer: &VoterSets,
) -> Option<(BTreeSet<MemberId>, BTreeSet<MemberId>)> {
    let voters: BTreeSet<MemberId> = older.iter().chain(newer).flatten().copied().collect();
    let voters: Vec<MemberId> = voters.into_iter().collect();
    (0_u64..1 << voters.len()).find_map(|chosen| {
        let part = |wanted: bool| -> BTreeSet<MemberId> {
            let voters = voters.iter().enumerate();
            let part = voters.filter(|(at, _)| (chosen & (1 << at) != 0) == wanted);
            part.map(|(_, id)| *id).collect()
        };
        let (one, other) = (part(true), part(false));
        (is_quorum(older, &one) && is_quorum(newer, &other)).then_some((one, other))
    })
}

fn is_quorum(sets: &VoterSets, members: &BTreeSet<MemberId>) -> bool {
    sets.iter()
        .all(|set| set.intersection(members).count() * 2 > set.len())
}

// The losses that quorum repairs may cause: if the operator accepts a loss, entries after the end of the surviving log. If the plan reports
// no loss, only results of another repair may be lost, which the plan did not know.

/// The quorum repairs of a run.
#[derive(Debug, Default)]
pub(super) struct Repairs(Vec<Repair>);

impl Repairs {
    pub(super) fn saw(&mut self, event: &Event) {
        if let Event::Repaired(repair) = event {
            self.0.push(*repair);
        }
    }

    /// Returns whether a repair gave up this entry, which may have been committed.
    pub(super) fn gave_up(&self, entry: OpId) -> bool {
        let mut repairs = self.0.iter();
        repairs.any(|repair| self.takes(repair, entry))
    }

    /// Returns whether `newer` may replace the committed entry `older`. It may if a repair gave up `older`, and `newer` is either from the
    /// repair's term or later, or an entry of the survivor, which the repair has committed.
    pub(super) fn replaced(&self, older: OpId, newer: OpId) -> bool {
        let mut repairs = self.0.iter();
        repairs.any(|repair| {
            let goes_on = newer.term >= repair.term || Some(newer) <= repair.after;
            goes_on && self.takes(repair, older)
        })
    }

    /// Returns whether a member may lose this entry: a repair gave it up, or it is an entry of a ring that has continued after a repair.
    pub(super) fn frees(&self, entry: OpId) -> bool {
        let mut repairs = self.0.iter();
        let since = repairs.any(|repair| {
            let loses = repair.loss || self.unknown_to(repair).next().is_some();
            loses && entry.term >= repair.term
        });
        since || self.gave_up(entry)
    }

    /// Returns whether the term of this membership is that of a repair.
    pub(super) fn imposed(&self, entry: OpId) -> bool {
        self.0.iter().any(|repair| repair.term == entry.term)
    }

    /// Returns the earlier repairs that the log surviving `repair` does not contain.
    fn unknown_to(&self, repair: &Repair) -> impl Iterator<Item = &Repair> {
        let known = repair.after.map_or(0, |after| after.term);
        let before = repair.term;
        let repairs = self.0.iter();
        repairs.filter(move |other| known < other.term && other.term < before)
    }

    fn takes(&self, repair: &Repair, entry: OpId) -> bool {
        // Compares terms first and then indexes, because a later leader may have replaced entries of the survivor without an event.
        let is_behind = Some(entry) > repair.after && entry.term < repair.term;
        let mut unknown = self.unknown_to(repair);
        is_behind && (repair.loss || unknown.any(|other| entry.term >= other.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(sets: &[&[u64]]) -> VoterSets {
        let set = |set: &&[u64]| set.iter().copied().map(MemberId).collect();
        sets.iter().map(set).collect()
    }

    #[test]
    fn a_step_through_both_sets_intersects_and_a_leap_does_not() {
        let (a, both, b) = (
            sets(&[&[1, 2, 3]]),
            sets(&[&[1, 2, 3], &[4, 5, 6]]),
            sets(&[&[4, 5, 6]]),
        );
        assert_eq!(disjoint_quorums(&a, &both), None);
        assert_eq!(disjoint_quorums(&both, &b), None);
        let (one, other) = disjoint_quorums(&a, &b).unwrap();
        assert!(one.is_disjoint(&other));
    }

    #[test]
    fn one_member_more_intersects_and_two_more_do_not() {
        let three = sets(&[&[1, 2, 3]]);
        assert_eq!(disjoint_quorums(&three, &sets(&[&[1, 2, 3, 4]])), None);
        assert!(disjoint_quorums(&three, &sets(&[&[1, 2, 3, 4, 5, 6]])).is_some());
    }
}

#[cfg(test)]
mod repairs_tests {
    use super::*;

    #[test]
    fn only_abandoned_entries_are_excused() {
        let id = OpId::new;
        let repair = |loss| {
            let mut repairs = Repairs::default();
            let after = Some(id(4, 20));
            let term = 1004;
            repairs.saw(&Event::Repaired(Repair { after, term, loss }));
            repairs
        };
        let lossy = repair(true);
        assert!(lossy.replaced(id(4, 21), id(1004, 21)));
        assert!(
            !lossy.replaced(id(4, 21), id(5, 21)),
            "no operator ordered that"
        );
        assert!(
            !lossy.replaced(id(4, 20), id(1004, 20)),
            "the survivor has it"
        );
        assert!(
            !lossy.replaced(id(1005, 22), id(1006, 22)),
            "after the repair"
        );
        assert!(
            lossy.replaced(id(5, 19), id(4, 19)),
            "the survivor's own is committed now"
        );
        assert!(lossy.gave_up(id(4, 21)) && !lossy.gave_up(id(4, 20)));
        assert!(
            lossy.gave_up(id(5, 19)),
            "in place of what the survivor has"
        );
        assert!(lossy.frees(id(4, 21)) && lossy.frees(id(1005, 21)) && !lossy.frees(id(4, 20)));
        assert!(lossy.imposed(id(1004, 21)) && !lossy.imposed(id(1005, 22)));
        let mut lossless = repair(false);
        assert!(!lossless.replaced(id(4, 21), id(1004, 21)));
        assert!(!lossless.gave_up(id(4, 21)) && !lossless.frees(id(4, 21)));
        assert!(lossless.imposed(id(1004, 21)));
        // A second repair, in which the survivor of the first one did not take part.
        let (after, term, loss) = (Some(id(4, 19)), 9004, false);
        lossless.saw(&Event::Repaired(Repair { after, term, loss }));
        assert!(lossless.replaced(id(1005, 21), id(9004, 20)));
        assert!(lossless.gave_up(id(1004, 20)) && lossless.frees(id(9005, 21)));
        assert!(!lossless.gave_up(id(4, 20)), "that was said not to be lost");
    }
}

//! Consecutive quorums intersect: in every log, any quorum of a membership has a member in common with any quorum of the
//! membership before it, but for the one with which an operator repairs a lost quorum. Computed exactly, over all subsets of the voters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use raft_types::{MemberId, OpId};

use super::Checker;
use super::repairs::Repairs;
use crate::event::Event;
use crate::seen::{Content, Seen, VoterSets, words};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct ConsecutiveQuorumsIntersect {
    /// Of each member's log, the memberships in their order.
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
    fn name(&self) -> &'static str {
        "consecutive quorums intersect"
    }

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
            Event::Opened {
                member, entries, ..
            } => {
                self.memberships.remove(member);
                self.take(*member, entries)
            }
            _ => Ok(()),
        }
    }
}

/// A quorum of each of the two that have nobody in common. Quorums grow with their members, so it is enough to look at
/// every subset and at all the others.
fn disjoint_quorums(
    older: &VoterSets,
    newer: &VoterSets,
) -> Option<(BTreeSet<MemberId>, BTreeSet<MemberId>)> {
    let voters: BTreeSet<MemberId> = older.iter().chain(newer).flatten().copied().collect();
    let voters: Vec<MemberId> = voters.into_iter().collect();
    (0_u64..1 << voters.len()).find_map(|chosen| {
        let (one, other): (Vec<_>, Vec<_>) = voters
            .iter()
            .enumerate()
            .partition(|(at, _)| chosen & (1 << at) != 0);
        let set = |part: Vec<(usize, &MemberId)>| part.into_iter().map(|(_, id)| *id).collect();
        let (one, other): (BTreeSet<MemberId>, BTreeSet<MemberId>) = (set(one), set(other));
        (is_quorum(older, &one) && is_quorum(newer, &other)).then_some((one, other))
    })
}

fn is_quorum(sets: &VoterSets, members: &BTreeSet<MemberId>) -> bool {
    sets.iter()
        .all(|set| set.intersection(members).count() * 2 > set.len())
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

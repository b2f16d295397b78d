//! A member after a restore of its data directory to an earlier state, from a disk snapshot or a virtual machine backup. The member has
//! lost votes and acknowledged entries, and the directory does not show that. The other members can detect the loss. Each member records in
//! [`Recorded`] the latest state of each other member. It takes this state from the greetings and, as a leader, from acknowledgements. The
//! other members send a member their record of it before its Raft starts, and in every greeting.
//!
//! The member itself compares the records with its own log ([`judge`]). A late answer then causes no false result, because each recorded
//! state was durable here before it was reported. If the member has less than the records, its log's end is in doubt
//! ([`super::doubted_tail`]). It votes for no candidate until the doubt is settled, and reports it to all others. A member that has such a
//! record does not wait for the report. It counts no vote of the restored member while that member's log ends before the record, and does
//! not vote for it ([`Recorded::lacks`]).
//!
//! # Monotonic state
//!
//! The state is the term of the stored vote, and the last entry that the member had acknowledged to the leader of that term ([`Standing`]).
//! Votes and entries are durable before they are sent, so no power failure removes them. A leader never truncates entries that a follower
//! accepted from it. A later leader may truncate them, and then the term is later. So states are compared by term first, then by entry. If
//! the last entry is of an earlier term than the vote, the member's own report of it is not recorded. The leader of the vote's term may be
//! about to truncate it.
//!
//! A smaller state is no evidence of a restore if the member has recorded a doubt that covers it. The member reports the term of the doubt,
//! and receivers drop their records up to that term. Acknowledgements before a quorum repair do not count either.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use raft_types::{DoubtedTail, FileStarts, Incarnation, MemberId, OpId, Standing, lock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A member's report about itself to another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The state that the member has reached.
    pub standing: Standing,
    /// The term of a doubt about the member's log since its start: entries of this term or an earlier one may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted: Option<u64>,
    /// Set if the member has detected since its start that its data directory was restored.
    #[serde(rename = "put_back")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<RestoredDirectory>,
}

/// A record about the receiver of this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The state that the receiver had reached at least.
    pub standing: Standing,
    /// The sender's term. The receiver may have continued with the ring without the sender.
    pub term: u64,
}

/// The data directory was restored to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error(
    "its data directory was restored to an earlier state (from a snapshot or a backup), or is a copy: member {told_by} has recorded \
     {had}, and this member started with {has}. Entries that it acknowledged in between are missing. It does not vote until it has \
     received them again. See the runbook restored-data-directory"
)]
pub struct RestoredDirectory {
    /// The member that has recorded the earlier state.
    pub told_by: MemberId,
    /// The state before the restore, at least.
    pub had: Standing,
    /// The state after the restore.
    pub has: Standing,
}

/// Returns the doubt about a log in the state `own`, by the records `told` of other members. Returns `None` if the log has everything that
/// is recorded. Up to the term `explained`, the reason for missing entries is known: an earlier doubt, or a repair that [gave the entries
/// up](given_up).
pub fn judge(
    own: Standing,
    explained: Option<u64>,
    told: &[(MemberId, Remembered)],
) -> Option<(RestoredDirectory, DoubtedTail)> {
    let more = told.iter().filter(|(_, remembered)| {
        remembered.standing > own && explained < Some(remembered.standing.term)
    });
    let (told_by, most) = more.max_by_key(|(_, remembered)| remembered.standing)?;
    let terms = told
        .iter()
        .map(|(_, told)| told.term.max(told.standing.term));
    let found = RestoredDirectory {
        told_by: *told_by,
        had: most.standing,
        has: own,
    };
    let doubt = DoubtedTail {
        term: terms.max().unwrap_or_default(),
        restored: true,
    };
    Some((found, doubt))
}

/// Distance of a repair's term from the latest observed term, because members that did not answer may have seen later terms. Elections
/// never reach such a term: at one election per 100 ms, that takes 19 days without an entry.
pub const TERM_LEAP: u64 = 1 << 24;

/// Returns the lowest term that only a repair can reach, in a ring with a log that ends at `log_end`.
pub fn leap_from(log_end: Option<OpId>) -> u64 {
    log_end.map_or(0, |last| last.term) + TERM_LEAP
}

/// Returns the latest term that a repair gave up; `gone_on_to` is the end of the ring's log after the repair.
pub fn given_up(gone_on_to: Option<OpId>) -> Option<u64> {
    gone_on_to?.term.checked_sub(TERM_LEAP)
}

/// The states of the other members, as this member has recorded them. Clones share the records. They are in memory only, so they are empty
/// after each start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<MemberId, Known>>>);

#[derive(Debug, Clone, Copy)]
struct Known {
    incarnation: Incarnation,
    standing: Standing,
    restored: Option<RestoredDirectory>,
}

impl Recorded {
    /// Records that the member with this data directory has acknowledged `standing` to the leader of that term.
    pub(crate) fn acknowledged(&self, member: MemberId, whose: Incarnation, standing: Standing) {
        let mut known = lock(&self.0);
        let known = known.entry(member).or_insert(Known::nothing_of(whose));
        if known.incarnation != whose {
            *known = Known::nothing_of(whose);
        }
        known.standing = known.standing.max(standing);
    }

    /// Records the report of the member with this data directory about itself. Returns a message for the operator if the report is new.
    pub(crate) fn heard(
        &self,
        member: MemberId,
        whose: Incarnation,
        report: &Report,
    ) -> Option<RestoredDirectory> {
        let mut known = lock(&self.0);
        let known = known.entry(member).or_insert(Known::nothing_of(whose));
        if known.incarnation != whose || report.doubted >= Some(known.standing.term) {
            known.standing = Standing::default();
        }
        let before = known.restored.filter(|_| known.incarnation == whose);
        *known = Known {
            incarnation: whose,
            standing: known.standing.max(report.standing.lasting()),
            restored: report.restored,
        };
        report.restored.filter(|_| before != report.restored)
    }

    /// Returns the state that the member with this data directory must have, in a ring that has reached this term.
    fn of(&self, member: MemberId, whose: Incarnation, term: u64) -> Option<Standing> {
        let known = lock(&self.0).get(&member).copied()?;
        let counts = known.incarnation == whose && known.standing.term + TERM_LEAP > term;
        counts.then_some(known.standing)
    }

    /// Returns the record to send to the member.
    pub(crate) fn to_tell(
        &self,
        member: MemberId,
        whose: Incarnation,
        term: u64,
    ) -> Option<Remembered> {
        let standing = self.of(member, whose, term)?;
        Some(Remembered { standing, term })
    }

    /// Returns the recorded end that a member's log lacks. The member's votes do not count then, and no votes are given to it.
    pub(crate) fn lacks(
        &self,
        member: MemberId,
        whose: Incarnation,
        term: u64,
        end: Option<OpId>,
    ) -> Option<OpId> {
        let standing = self.of(member, whose, term)?;
        standing.end.filter(|known| end < Some(*known))
    }

    /// Returns the restore that the member with this data directory has reported, if any.
    pub(crate) fn restored(
        &self,
        member: MemberId,
        whose: Incarnation,
    ) -> Option<RestoredDirectory> {
        let known = lock(&self.0).get(&member).copied()?;
        known.restored.filter(|_| known.incarnation == whose)
    }
}

impl Known {
    fn nothing_of(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            standing: Standing::default(),
            restored: None,
        }
    }
}

/// The findings of this member about its own data directory since its start.
#[derive(Debug)]
pub(crate) struct OwnPast(Mutex<(Option<u64>, Option<RestoredDirectory>)>);

impl OwnPast {
    /// Creates the state of a member with this doubt about its log at its start.
    pub(crate) fn new(doubt: Option<DoubtedTail>) -> Self {
        Self(Mutex::new((doubt.map(|doubt| doubt.term), None)))
    }

    /// Records that the data directory was restored. The log has stored this already.
    pub(crate) fn found(&self, found: RestoredDirectory, doubt: DoubtedTail) {
        let mut past = lock(&self.0);
        *past = (past.0.max(Some(doubt.term)), Some(found));
    }

    pub(crate) fn doubted(&self) -> Option<u64> {
        lock(&self.0).0
    }

    pub(crate) fn restored(&self) -> Option<RestoredDirectory> {
        lock(&self.0).1
    }

    /// Returns this member's report to others.
    pub(crate) fn report(&self, log: &dyn FileStarts) -> Option<Report> {
        let standing = log.standing()?;
        let (doubted, restored) = *lock(&self.0);
        Some(Report {
            standing,
            doubted,
            restored,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: MemberId = MemberId(1);
    const FOLLOWER: MemberId = MemberId(2);

    fn at(term: u64, end: (u64, u64)) -> Standing {
        Standing {
            term,
            end: Some(OpId::new(end.0, end.1)),
        }
    }

    fn told(standing: Standing, term: u64) -> (MemberId, Remembered) {
        (LEADER, Remembered { standing, term })
    }

    #[test]
    fn a_member_with_less_than_recorded_was_restored() {
        let rows = [
            ("as it was", at(5, (5, 90)), None, at(5, (5, 90)), false),
            (
                "it has gone on",
                at(5, (5, 91)),
                None,
                at(5, (5, 90)),
                false,
            ),
            (
                "acknowledged entries",
                at(5, (5, 89)),
                None,
                at(5, (5, 90)),
                true,
            ),
            (
                "a vote",
                at(4, (4, 90)),
                None,
                Standing { term: 5, end: None },
                true,
            ),
            (
                "cut by a later leader",
                at(6, (4, 10)),
                None,
                at(5, (5, 90)),
                false,
            ),
            (
                "a doubt explains it",
                at(5, (5, 89)),
                Some(5),
                at(5, (5, 90)),
                false,
            ),
            (
                "a doubt explains no lost vote",
                at(4, (4, 9)),
                Some(4),
                at(5, (5, 90)),
                true,
            ),
            ("all of it", Standing::default(), None, at(5, (5, 90)), true),
        ];
        for (what, own, doubted, remembered, expected) in rows {
            let judged = judge(own, doubted, &[told(remembered, 5)]);
            assert_eq!(judged.is_some(), expected, "{what}");
        }
        assert_eq!(
            judge(Standing::default(), None, &[]),
            None,
            "no member has recorded it"
        );
    }

    #[test]
    fn entries_given_up_by_a_repair_are_no_evidence() {
        let (own, had) = (at(3, (2, 34)), at(3, (3, 45)));
        let judged = |gone_on_to: OpId| judge(own, given_up(Some(gone_on_to)), &[told(had, 3)]);
        assert_eq!(judged(OpId::new(3 + TERM_LEAP, 35)), None);
        assert!(
            judged(OpId::new(4, 50)).is_some(),
            "a leader of the same history"
        );
    }

    #[test]
    fn the_doubt_has_the_latest_recorded_term() {
        let own = at(3, (3, 50));
        let follower = Remembered {
            standing: at(3, (3, 60)),
            term: 7,
        };
        let judged = judge(own, None, &[told(at(3, (3, 80)), 4), (FOLLOWER, follower)]);
        let (found, doubt) = judged.unwrap();
        assert_eq!(
            (found.told_by, found.had, found.has),
            (LEADER, at(3, (3, 80)), own)
        );
        assert_eq!((doubt.term, doubt.restored), (7, true));
    }

    #[test]
    fn an_end_that_the_leader_of_the_vote_may_still_cut_is_not_remembered() {
        let (memory, whose) = (Recorded::default(), Incarnation::random());
        let report = |standing| Report {
            standing,
            doubted: None,
            restored: None,
        };
        memory.heard(FOLLOWER, whose, &report(at(5, (4, 100))));
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        // The leader of term 5 truncates the log to the end of the common part.
        assert_eq!(judge(at(5, (4, 90)), None, &[told(known, 5)]), None);
        // A late report does not lower a record.
        memory.heard(FOLLOWER, whose, &report(at(5, (5, 120))));
        memory.heard(FOLLOWER, whose, &report(at(5, (5, 110))));
        memory.acknowledged(FOLLOWER, whose, at(5, (5, 115)));
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        assert_eq!(known, at(5, (5, 120)));
        assert_eq!(
            memory.lacks(FOLLOWER, whose, 5, Some(OpId::new(5, 120))),
            None
        );
        let needed = Some(OpId::new(5, 120));
        assert_eq!(
            memory.lacks(FOLLOWER, whose, 5, Some(OpId::new(5, 119))),
            needed
        );
        assert_eq!(memory.lacks(FOLLOWER, whose, 5, None), needed);
    }

    #[test]
    fn explained_losses_are_no_evidence() {
        let (memory, whose) = (Recorded::default(), Incarnation::random());
        memory.acknowledged(FOLLOWER, whose, at(5, (5, 90)));
        assert!(memory.to_tell(FOLLOWER, whose, 5).is_some());
        // A record of another data directory does not count.
        assert_eq!(memory.to_tell(FOLLOWER, Incarnation::random(), 5), None);
        // A record from before a quorum repair does not count.
        assert_eq!(memory.to_tell(FOLLOWER, whose, 5 + TERM_LEAP), None);
        // A report of a doubt explains the smaller state.
        let report = Report {
            standing: at(5, (5, 70)),
            doubted: Some(5),
            restored: None,
        };
        memory.heard(FOLLOWER, whose, &report);
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        assert_eq!(known, at(5, (5, 70)));
        // The member rejoins under its number, with an empty directory.
        memory.acknowledged(FOLLOWER, Incarnation::default(), Standing::default());
        assert_eq!(memory.to_tell(FOLLOWER, whose, 5), None);
    }

    #[test]
    fn a_restored_member_is_reported_once_and_recorded_until_it_restarts() {
        let (memory, whose) = (Recorded::default(), Incarnation::random());
        let (found, doubt) = judge(at(3, (3, 50)), None, &[told(at(3, (3, 80)), 3)]).unwrap();
        let past = OwnPast::new(None);
        past.found(found, doubt);
        assert_eq!((past.doubted(), past.restored()), (Some(3), Some(found)));
        let mut report = Report {
            standing: at(3, (3, 50)),
            doubted: past.doubted(),
            restored: past.restored(),
        };
        assert_eq!(memory.heard(FOLLOWER, whose, &report), Some(found));
        assert_eq!(memory.heard(FOLLOWER, whose, &report), None);
        assert_eq!(memory.restored(FOLLOWER, whose), Some(found));
        report.restored = None;
        memory.heard(FOLLOWER, whose, &report);
        assert_eq!(memory.restored(FOLLOWER, whose), None);
    }
}

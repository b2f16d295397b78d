//! A member with a data directory that was restored to an earlier state: from a disk snapshot or a backup of its virtual machine.
//! It has lost votes and acknowledged entries, and the directory does not show that. The other members can detect it. Each records in
//! [`Recorded`] how far each other member had come: from what members report in greetings, and as a leader from acknowledgements.
//! They send it that record before its Raft starts, and in every greeting.
//!
//! The member itself judges ([`judge`]) by its own log, so a late answer accuses no member: each recorded state was durable here before
//! it was reported. If the member has less, its log's end is in doubt ([`super::doubted_tail`]). It votes for no candidate until that is
//! settled, and reports it to all others. Another member with such a record does not wait for that: it counts no vote of a member
//! whose log ends before the record, and gives it none ([`Recorded::lacks`]).
//!
//! # Monotonic state
//!
//! The term of the stored vote, and the entries that the leader of that term had acknowledged ([`Standing`]). Votes and entries are
//! durable before they are sent, so no power failure removes them. A leader never truncates what a follower took from it. A later leader
//! may, and then the term is later. So the term counts before the end. An end of an earlier term than the vote's is not recorded from
//! the member's own report: that term's leader may be about to truncate it.
//!
//! A smaller state is no sign where a recorded doubt covers it: the member reports the term, and receivers drop their record up
//! to it. Acknowledgements before a quorum repair do not count either.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use raft_types::{DoubtedTail, FileStarts, Incarnation, MemberId, OpId, Standing, lock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a member reports about itself to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How far it has come.
    pub standing: Standing,
    /// Since its start its log was in doubt, for entries of this term or an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted: Option<u64>,
    /// Since its start it has detected that its data directory was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_back: Option<PutBack>,
}

/// A record about the receiver of this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// How far the receiver had come, at least.
    pub standing: Standing,
    /// The sender's term. The receiver may have continued with the ring unseen.
    pub term: u64,
}

/// A data directory was restored to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error(
    "its data directory was put back to an earlier state (a snapshot, a backup), or was copied: member {told_by} knows that it had \
     {had}, and it came back with {has}. What it acknowledged in between is missing; it elects nobody until it has that again. See \
     the runbook data-directory-put-back"
)]
pub struct PutBack {
    /// The member that has recorded what it had.
    pub told_by: MemberId,
    /// What it had, at least.
    pub had: Standing,
    /// Its state after the restore.
    pub has: Standing,
}

/// The doubt of a log with this standing, by what others have recorded of its member; nothing where it has all of that. Up to the term
/// `explained`, the reason for missing entries is known: a doubt, or a repair that [gave them up](given_up).
pub fn judge(
    own: Standing,
    explained: Option<u64>,
    told: &[(MemberId, Remembered)],
) -> Option<(PutBack, DoubtedTail)> {
    let more = told.iter().filter(|(_, remembered)| {
        remembered.standing > own && explained < Some(remembered.standing.term)
    });
    let (told_by, most) = more.max_by_key(|(_, remembered)| remembered.standing)?;
    let terms = told
        .iter()
        .map(|(_, told)| told.term.max(told.standing.term));
    let found = PutBack {
        told_by: *told_by,
        had: most.standing,
        has: own,
    };
    let doubt = DoubtedTail {
        term: terms.max().unwrap_or_default(),
        put_back: true,
    };
    Some((found, doubt))
}

/// Distance of a repair's term from the latest observed term: members that did not answer may have seen later ones. Elections never reach
/// such a term: at one per 100 ms, it takes 19 days without an entry.
pub const TERM_LEAP: u64 = 1 << 24;

/// The lowest term that only a repair can reach in a ring with a log that ends here.
pub fn leap_from(log_end: Option<OpId>) -> u64 {
    log_end.map_or(0, |last| last.term) + TERM_LEAP
}

/// The latest term that a repair gave up, by the end to which the ring has continued.
pub fn given_up(gone_on_to: Option<OpId>) -> Option<u64> {
    gone_on_to?.term.checked_sub(TERM_LEAP)
}

/// How far the other members have come, as far as this one knows; clones share it. In memory only: empty after each start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<MemberId, Known>>>);

#[derive(Debug, Clone, Copy)]
struct Known {
    incarnation: Incarnation,
    standing: Standing,
    put_back: Option<PutBack>,
}

impl Recorded {
    /// The member with this data directory has acknowledged up to `standing` to the leader of that term.
    pub(crate) fn acknowledged(&self, member: MemberId, whose: Incarnation, standing: Standing) {
        let mut known = lock(&self.0);
        let known = known.entry(member).or_insert(Known::nothing_of(whose));
        if known.incarnation != whose {
            *known = Known::nothing_of(whose);
        }
        known.standing = known.standing.max(standing);
    }

    /// The member with this data directory reports this of itself. Returns the message for the operator, if that is new.
    pub(crate) fn heard(
        &self,
        member: MemberId,
        whose: Incarnation,
        report: &Report,
    ) -> Option<PutBack> {
        let mut known = lock(&self.0);
        let known = known.entry(member).or_insert(Known::nothing_of(whose));
        if known.incarnation != whose || report.doubted >= Some(known.standing.term) {
            known.standing = Standing::default();
        }
        let before = known.put_back.filter(|_| known.incarnation == whose);
        *known = Known {
            incarnation: whose,
            standing: known.standing.max(report.standing.lasting()),
            put_back: report.put_back,
        };
        report.put_back.filter(|_| before != report.put_back)
    }

    /// The state required of the member with this data directory in a ring that has reached this term.
    fn of(&self, member: MemberId, whose: Incarnation, term: u64) -> Option<Standing> {
        let known = lock(&self.0).get(&member).copied()?;
        let counts = known.incarnation == whose && known.standing.term + TERM_LEAP > term;
        counts.then_some(known.standing)
    }

    /// The record to send to it.
    pub(crate) fn to_tell(
        &self,
        member: MemberId,
        whose: Incarnation,
        term: u64,
    ) -> Option<Remembered> {
        let standing = self.of(member, whose, term)?;
        Some(Remembered { standing, term })
    }

    /// The recorded end that a member's log lacks: none of its votes is counted, and it gets none.
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

    /// True if the member with this data directory reports that it was restored.
    pub(crate) fn put_back(&self, member: MemberId, whose: Incarnation) -> Option<PutBack> {
        let known = lock(&self.0).get(&member).copied()?;
        known.put_back.filter(|_| known.incarnation == whose)
    }
}

impl Known {
    fn nothing_of(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            standing: Standing::default(),
            put_back: None,
        }
    }
}

/// Detected by this member about itself since its start.
#[derive(Debug)]
pub(crate) struct OwnPast(Mutex<(Option<u64>, Option<PutBack>)>);

impl OwnPast {
    /// For a member with a log that has this doubt at its start.
    pub(crate) fn new(doubt: Option<DoubtedTail>) -> Self {
        Self(Mutex::new((doubt.map(|doubt| doubt.term), None)))
    }

    /// Its data directory was restored, and that is stored in its log.
    pub(crate) fn found(&self, found: PutBack, doubt: DoubtedTail) {
        let mut past = lock(&self.0);
        *past = (past.0.max(Some(doubt.term)), Some(found));
    }

    pub(crate) fn doubted(&self) -> Option<u64> {
        lock(&self.0).0
    }

    pub(crate) fn put_back(&self) -> Option<PutBack> {
        lock(&self.0).1
    }

    /// What it reports to others.
    pub(crate) fn report(&self, log: &dyn FileStarts) -> Option<Report> {
        let standing = log.standing()?;
        let (doubted, put_back) = *lock(&self.0);
        Some(Report {
            standing,
            doubted,
            put_back,
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
        assert_eq!((doubt.term, doubt.put_back), (7, true));
    }

    #[test]
    fn an_end_that_the_leader_of_the_vote_may_still_cut_is_not_remembered() {
        let (memory, whose) = (Recorded::default(), Incarnation::random());
        let report = |standing| Report {
            standing,
            doubted: None,
            put_back: None,
        };
        memory.heard(FOLLOWER, whose, &report(at(5, (4, 100))));
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        // The leader of term 5 truncates it to the end of the common part.
        assert_eq!(judge(at(5, (4, 90)), None, &[told(known, 5)]), None);
        // A late report removes nothing.
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
        // The state of another data directory.
        assert_eq!(memory.to_tell(FOLLOWER, Incarnation::random(), 5), None);
        // The state before a repair of the quorum.
        assert_eq!(memory.to_tell(FOLLOWER, whose, 5 + TERM_LEAP), None);
        // State covered by a doubt of which it knew itself.
        let report = Report {
            standing: at(5, (5, 70)),
            doubted: Some(5),
            put_back: None,
        };
        memory.heard(FOLLOWER, whose, &report);
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        assert_eq!(known, at(5, (5, 70)));
        // It rejoins under its number, with an empty directory.
        memory.acknowledged(FOLLOWER, Incarnation::default(), Standing::default());
        assert_eq!(memory.to_tell(FOLLOWER, whose, 5), None);
    }

    #[test]
    fn a_restored_member_is_reported_once_and_recorded_until_it_restarts() {
        let (memory, whose) = (Recorded::default(), Incarnation::random());
        let (found, doubt) = judge(at(3, (3, 50)), None, &[told(at(3, (3, 80)), 3)]).unwrap();
        let past = OwnPast::new(None);
        past.found(found, doubt);
        assert_eq!((past.doubted(), past.put_back()), (Some(3), Some(found)));
        let mut report = Report {
            standing: at(3, (3, 50)),
            doubted: past.doubted(),
            put_back: past.put_back(),
        };
        assert_eq!(memory.heard(FOLLOWER, whose, &report), Some(found));
        assert_eq!(memory.heard(FOLLOWER, whose, &report), None);
        assert_eq!(memory.put_back(FOLLOWER, whose), Some(found));
        report.put_back = None;
        memory.heard(FOLLOWER, whose, &report);
        assert_eq!(memory.put_back(FOLLOWER, whose), None);
    }
}

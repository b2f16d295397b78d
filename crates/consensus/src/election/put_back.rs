//! A member whose data directory was put back to an earlier state: from a snapshot of its disk, or a backup of its virtual machine.
//! It has forgotten votes, and entries that it acknowledged, and nothing in the directory tells. The others can: each remembers how
//! far each other one had come ([`Memory`]), by what members say of themselves in greetings, and as a leader by what was
//! acknowledged. They tell it so when it comes back, before its Raft starts, and in every greeting.
//!
//! The member itself judges ([`judge`]), by its own log, so that no answer that comes late accuses anybody: whatever another one
//! remembers was durable here before it was said. Where it has less, its log's end is in doubt ([`super::doubted_tail`]), it elects
//! nobody until that is settled, and it says so to all others. Who remembers does not wait for that: it counts no vote of a
//! member whose log ends before what it remembers, and gives it none ([`Memory::lacks`]).
//!
//! # What never goes back
//!
//! The term of the stored vote, and with it what the leader of that term had acknowledged ([`Standing`]). A vote is durable before it is
//! given, and an acknowledged entry before it is acknowledged, so that no cut of the power takes them. A leader never takes back what it
//! made a follower have; a later one may, and then the term is later. That is why the term counts before the end, and why an end of an
//! earlier term than the vote's is not remembered where the member says it of itself: that term's leader may be about to cut it.
//!
//! What may be less than it was, and is no sign: what a doubt that the member knows of covers (it says up to which term, and
//! who hears that forgets what it remembered up to there), and what was acknowledged before a quorum was repaired, to which nobody is held.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use raft_types::{DoubtedTail, FileStarts, Incarnation, MemberId, OpId, Standing};
use serde::{Deserialize, Serialize};

use crate::repair::plan::TERM_LEAP;

/// What a member says of itself to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How far it has come.
    pub standing: Standing,
    /// Since its start its log was in doubt, for what is of this term or an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted: Option<u64>,
    /// Since its start it has found out that its data directory was put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_back: Option<PutBack>,
}

/// What a member remembers of the one that it says this to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// How far that one had come, at least.
    pub standing: Standing,
    /// The term of the member that says so. The other one may have gone on with the ring unseen.
    pub term: u64,
}

/// That a data directory was put back to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutBack {
    /// Who remembers what it had.
    pub told_by: MemberId,
    /// What it had, at least.
    pub had: Standing,
    /// What it came back with.
    pub has: Standing,
}

impl fmt::Display for PutBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told_by, had, has } = self;
        write!(
            f,
            "its data directory was put back to an earlier state (a snapshot, a backup), or was copied: member {told_by} knows that it had \
             {had}, and it came back with {has}. What it acknowledged in between is missing; it elects nobody until it has that again. See \
             the runbook data-directory-put-back"
        )
    }
}

/// What the doubt of a log with this standing is, by what others remember of its member; nothing where it has all of that. `explained`
/// is the term up to which it is known why something is missing: by a doubt, or by a repair that [gave it up](given_up).
pub(crate) fn judge(
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

/// The latest term of what a repair gave up, by what this member was told that the ring has gone on to.
pub(crate) fn given_up(gone_on_to: Option<OpId>) -> Option<u64> {
    gone_on_to?.term.checked_sub(TERM_LEAP)
}

/// How far the other members have come, as far as this one knows; clones are the same. In memory: it begins anew with each start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<BTreeMap<MemberId, Known>>>);

#[derive(Debug, Clone, Copy)]
struct Known {
    incarnation: Incarnation,
    standing: Standing,
    put_back: Option<PutBack>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Known>> {
        // Every change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The member with this data directory has acknowledged so much to the leader of that term.
    pub(crate) fn acknowledged(&self, member: MemberId, whose: Incarnation, standing: Standing) {
        let mut known = self.lock();
        let known = known.entry(member).or_insert(Known::nothing_of(whose));
        if known.incarnation != whose {
            *known = Known::nothing_of(whose);
        }
        known.standing = known.standing.max(standing);
    }

    /// The member with this data directory says this of itself. What is to be said to the operator, if that is new.
    pub(crate) fn heard(
        &self,
        member: MemberId,
        whose: Incarnation,
        report: &Report,
    ) -> Option<PutBack> {
        let mut known = self.lock();
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

    /// What the member with this data directory is held to in a ring that has come to this term.
    fn of(&self, member: MemberId, whose: Incarnation, term: u64) -> Option<Standing> {
        let known = self.lock().get(&member).copied()?;
        let counts = known.incarnation == whose && known.standing.term + TERM_LEAP > term;
        counts.then_some(known.standing)
    }

    /// What to say to it.
    pub(crate) fn to_tell(
        &self,
        member: MemberId,
        whose: Incarnation,
        term: u64,
    ) -> Option<Remembered> {
        let standing = self.of(member, whose, term)?;
        Some(Remembered { standing, term })
    }

    /// What the log of a member has to have and ends before, so that no vote is counted of it, or given to it.
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

    /// Whether the member with this data directory says that it was put back.
    pub(crate) fn put_back(&self, member: MemberId, whose: Incarnation) -> Option<PutBack> {
        let known = self.lock().get(&member).copied()?;
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

/// What this member has found out of itself since its start.
#[derive(Debug)]
pub(crate) struct OwnPast(Mutex<(Option<u64>, Option<PutBack>)>);

impl OwnPast {
    /// Of a member whose log has this doubt at its start.
    pub(crate) fn new(doubt: Option<DoubtedTail>) -> Self {
        Self(Mutex::new((doubt.map(|doubt| doubt.term), None)))
    }

    fn lock(&self) -> MutexGuard<'_, (Option<u64>, Option<PutBack>)> {
        // Both are replaced as they are.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its data directory was put back, and that was noted in its log.
    pub(crate) fn found(&self, found: PutBack, doubt: DoubtedTail) {
        let mut past = self.lock();
        *past = (past.0.max(Some(doubt.term)), Some(found));
    }

    pub(crate) fn doubted(&self) -> Option<u64> {
        self.lock().0
    }

    pub(crate) fn put_back(&self) -> Option<PutBack> {
        self.lock().1
    }

    /// What it says to others.
    pub(crate) fn report(&self, log: &dyn FileStarts) -> Option<Report> {
        let standing = log.standing()?;
        let (doubted, put_back) = *self.lock();
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
    fn who_has_less_than_it_had_was_put_back() {
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
            "nobody knows it"
        );
    }

    #[test]
    fn what_a_repair_gave_up_is_held_against_nobody() {
        let (own, had) = (at(3, (2, 34)), at(3, (3, 45)));
        let judged = |gone_on_to: OpId| judge(own, given_up(Some(gone_on_to)), &[told(had, 3)]);
        assert_eq!(judged(OpId::new(3 + TERM_LEAP, 35)), None);
        assert!(
            judged(OpId::new(4, 50)).is_some(),
            "a leader of the same history"
        );
    }

    #[test]
    fn the_doubt_is_of_the_latest_term_that_anybody_knows_of() {
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
        let (memory, whose) = (Memory::default(), Incarnation::random());
        let report = |standing| Report {
            standing,
            doubted: None,
            put_back: None,
        };
        memory.heard(FOLLOWER, whose, &report(at(5, (4, 100))));
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        // The leader of term 5 cuts it back to where its own log goes on.
        assert_eq!(judge(at(5, (4, 90)), None, &[told(known, 5)]), None);
        // What it says late takes nothing back.
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
    fn what_is_not_held_against_a_member() {
        let (memory, whose) = (Memory::default(), Incarnation::random());
        memory.acknowledged(FOLLOWER, whose, at(5, (5, 90)));
        assert!(memory.to_tell(FOLLOWER, whose, 5).is_some());
        // What another data directory had.
        assert_eq!(memory.to_tell(FOLLOWER, Incarnation::random(), 5), None);
        // What it had before a repair of the quorum.
        assert_eq!(memory.to_tell(FOLLOWER, whose, 5 + TERM_LEAP), None);
        // What a doubt that it knew of itself covers.
        let report = Report {
            standing: at(5, (5, 70)),
            doubted: Some(5),
            put_back: None,
        };
        memory.heard(FOLLOWER, whose, &report);
        let known = memory.to_tell(FOLLOWER, whose, 5).unwrap().standing;
        assert_eq!(known, at(5, (5, 70)));
        // It comes again under its number, with nothing.
        memory.acknowledged(FOLLOWER, Incarnation::default(), Standing::default());
        assert_eq!(memory.to_tell(FOLLOWER, whose, 5), None);
    }

    #[test]
    fn that_a_member_was_put_back_is_said_once_and_known_until_it_starts_again() {
        let (memory, whose) = (Memory::default(), Incarnation::random());
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

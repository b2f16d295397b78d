//! Which transactions the disks of the ring have room for. The leader asks the voters periodically. It refuses to propose a
//! transaction for which fewer than a majority of a voter set has room.
//!
//! Why enough members can still elect a leader when all disks fill: entries cannot be skipped, so a member can take a new
//! leader's blank entry only if it can take all transactions before it. Let a member be one of the majority that answered
//! with that much room, asked by a serving leader. That leader has committed an entry of its own term, and its mark is at or after
//! that entry. So all that it took over from older terms is committed. The member's log had everything up to the mark when it was
//! asked, or its answer does not count. Entries that were uncommitted then or proposed since may not have arrived. They are of this
//! leadership, are counted and subtracted from the room, and the next proposals must fit the rest. So the leader's whole log fits the
//! disks of that majority without their reserve.
//! Another leader may have put entries of older terms into logs that this one has never seen. None is committed, and
//! this leader's entries replace them. An answer counts only in the leadership in which it was given.
//!
//! Three cases are not proven but bounded; the reserve is for them. First, a new leader asks every voter once, which takes two
//! heartbeats, and a lease if a voter does not answer. Until then, a voter without an answer counts with the room of the leader's own
//! log. Second, the next answer shows what other programs write to the disks. Third, a voter that does not answer counts as one with
//! room: it is away, or of an older version. When it rejoins, it takes nothing beyond its own bound
//! ([`crate::log_room::intake`]). A leader does not write its own transactions beyond that bound either. So none of this ever takes the
//! part of the reserve that the ring's own entries have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use raft_types::{LogIntake, LogRoom, MemberId, OpId, Term, stored_bytes};
use thiserror::Error;

use crate::calls::Answer;

/// The disks of the ring have no room for a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the disk of member {member}'s log has room for {left_bytes} more bytes of transactions, and {needed_bytes} are \
     needed; nothing is lost, and commits continue as soon as there is room: purge old log files (`witness log purge`), raise `log.disk_limit_bytes`, or add space"
)]
pub struct NoRoom {
    /// The member with the least room.
    pub member: MemberId,
    /// Bytes that the transaction takes in a log file, markers included.
    pub needed_bytes: u64,
    /// Bytes that transactions may still take on that member's disk.
    pub left_bytes: u64,
}

/// A member's own log as an intake, the others' reported room, and the bytes proposed since.
#[derive(Default)]
pub(crate) struct Rooms {
    own: OnceLock<Arc<dyn LogIntake>>,
    proposed: AtomicU64,
    under_way: Arc<AtomicU64>,
    told: Mutex<Answers>,
}

/// What the others reported in one leadership.
#[derive(Debug, Default)]
struct Answers {
    term: Option<Term>,
    told: BTreeMap<MemberId, Told>,
    /// Every voter was asked, and has answered or let a lease pass.
    all_asked: bool,
}

impl Answers {
    /// The members that do not count as having room for so many bytes, while the own log has `room`.
    fn lacks(
        &self,
        term: Term,
        room: LogRoom,
        proposed: u64,
        needed: u64,
        voters: impl FnOnce() -> BTreeSet<MemberId>,
    ) -> BTreeMap<MemberId, Lack> {
        let mut lacks = BTreeMap::new();
        let current = self.term == Some(term);
        if current {
            let told = self.told.iter();
            lacks.extend(told.filter_map(|(id, told)| Some((*id, told.lack(proposed, needed)?))));
        }
        if needed > room.transactions && !(current && self.all_asked) {
            let told = |id: &MemberId| current && self.told.contains_key(id);
            let unknown = voters().into_iter().filter(|id| !told(id));
            lacks.extend(unknown.map(|id| (id, Lack::Short(room.transactions))));
        }
        lacks
    }
}

/// A member's answer, and how many bytes had been proposed and committed before it was asked.
#[derive(Debug, Clone, Copy)]
struct Told {
    room: u64,
    since: u64,
    /// Its log lacks something that was committed then, so its room does not count.
    behind: bool,
}

impl Told {
    fn left(self, proposed: u64) -> u64 {
        self.room
            .saturating_sub(proposed.saturating_sub(self.since))
    }

    /// Why it does not count for so many bytes, if so.
    fn lack(self, proposed: u64, needed: u64) -> Option<Lack> {
        let left = self.left(proposed);
        if left < needed {
            Some(Lack::Short(left))
        } else {
            self.behind.then_some(Lack::Behind)
        }
    }
}

/// One round of questions: how many bytes had been proposed and were no longer in flight when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round(u64);

/// Why a member does not count as one with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// It has room for so many bytes.
    Short(u64),
    /// Its room is needed for entries that it lacks.
    Behind,
}

/// Bytes that are proposed and whose outcome is unknown; dropped with the proposal.
pub(crate) struct UnderWay {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Rooms {
    /// From now on the log is asked.
    pub(crate) fn ask(&self, own: Arc<dyn LogIntake>) {
        // The first one is the member's log.
        let _ = self.own.set(own);
    }

    /// The own log, once it is known.
    pub(crate) fn own(&self) -> Option<Arc<dyn LogIntake>> {
        self.own.get().cloned()
    }

    /// Whether a transaction of so many bytes may be proposed in the leadership of `term`.
    pub(crate) fn check(
        &self,
        own: MemberId,
        term: Term,
        sets: impl Fn() -> Vec<BTreeSet<MemberId>>,
        bytes: u64,
    ) -> Result<(), NoRoom> {
        let Some(intake) = self.own.get() else {
            return Ok(());
        };
        let needed = stored_bytes(bytes);
        let room = intake.room(needed);
        let lacks = self.lacks(term, room, needed, &sets);
        let nobody_is_short = lacks.values().all(|lack| *lack == Lack::Behind);
        if room.transactions >= needed && nobody_is_short {
            return Ok(());
        }
        judge(own, room.transactions, &lacks, &sets(), needed)?;
        if room.in_all < needed {
            return Err(NoRoom {
                member: own,
                needed_bytes: needed,
                left_bytes: room.in_all,
            });
        }
        Ok(())
    }

    fn lacks(
        &self,
        term: Term,
        room: LogRoom,
        needed: u64,
        sets: impl Fn() -> Vec<BTreeSet<MemberId>>,
    ) -> BTreeMap<MemberId, Lack> {
        let proposed = self.proposed.load(Ordering::SeqCst);
        let voters = || sets().into_iter().flatten().collect();
        self.lock().lacks(term, room, proposed, needed, voters)
    }

    pub(crate) fn propose(&self, bytes: u64) -> UnderWay {
        // In this order, and read in the other: proposed bytes count as in flight until their outcome is known.
        let bytes = stored_bytes(bytes);
        self.under_way.fetch_add(bytes, Ordering::SeqCst);
        self.proposed.fetch_add(bytes, Ordering::SeqCst);
        UnderWay {
            all: self.under_way.clone(),
            bytes,
        }
    }

    /// Whether the own log has no room for transactions while a majority of each voter set has.
    pub(crate) fn only_here(&self, own: MemberId, term: Term, sets: &[BTreeSet<MemberId>]) -> bool {
        let Some(room) = self.own.get().map(|intake| intake.room(1)) else {
            return false;
        };
        let lacks = self.lacks(term, room, 1, || sets.to_vec());
        room.transactions == 0 && judge(own, 0, &lacks, sets, 1).is_ok()
    }

    /// The own log's answer to another member's question.
    pub(crate) fn answer(&self, end: Option<OpId>) -> Answer {
        // Always reads the disk: space may have been freed. It follows the read of the log's end, so the room
        // is what is left after at least that end.
        let room = self.own.get().map(|own| own.room(u64::MAX));
        Answer::Room {
            transactions: room.map(|room| room.transactions),
            end,
        }
    }

    /// Begins a round of questions in the leadership of `term`. Answers from another leadership, or from members other than these
    /// voters, no longer count.
    pub(super) fn begin_round(&self, term: Term, voters: &BTreeSet<MemberId>) -> Round {
        let mut answers = self.lock();
        if answers.term != Some(term) {
            *answers = Answers {
                term: Some(term),
                ..Answers::default()
            };
        }
        answers.told.retain(|id, _| voters.contains(id));
        drop(answers);
        // Bytes in flight may not have arrived anywhere when the answer is given. Those that end between the two reads are
        // committed before the mark is read.
        let proposed = self.proposed.load(Ordering::SeqCst);
        Round(proposed.saturating_sub(self.under_way.load(Ordering::SeqCst)))
    }

    /// A member's answer in a round; `behind`: its log lacks something that was committed when it was asked.
    pub(super) fn told(&self, id: MemberId, room: u64, behind: bool, round: Round) {
        let since = round.0;
        let told = Told {
            room,
            since,
            behind,
        };
        self.lock().told.insert(id, told);
    }

    /// Every voter was asked, and has answered or let a lease pass.
    pub(super) fn end_round(&self) {
        self.lock().all_asked = true;
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        // Its parts are replaced as a whole.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Rooms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rooms")
            .field("told", &*self.lock())
            .finish_non_exhaustive()
    }
}

/// `lacks` are the others that do not count as having room. A leader that alone has none continues into its reserve until
/// it has transferred the leadership: the committing members have room, and refused commits would delay a promotion.
fn judge(
    own: MemberId,
    room: u64,
    lacks: &BTreeMap<MemberId, Lack>,
    sets: &[BTreeSet<MemberId>],
    needed: u64,
) -> Result<(), NoRoom> {
    let mut lacks = lacks.clone();
    if needed > room {
        lacks.insert(own, Lack::Short(room));
    }
    for set in sets {
        let lacking = set.iter().filter(|id| lacks.contains_key(*id)).count();
        // Lagging members alone are no reason: they need not be the ones that commit.
        let short = set.iter().filter_map(|id| match lacks.get(id)? {
            Lack::Short(left) => Some((*id, *left)),
            Lack::Behind => None,
        });
        if (set.len() - lacking) * 2 <= set.len()
            && let Some((member, left)) = short.min_by_key(|(_, left)| *left)
        {
            return Err(NoRoom {
                member,
                needed_bytes: needed,
                left_bytes: left,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(sets: &[&[u64]]) -> Vec<BTreeSet<MemberId>> {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        sets.iter().map(set).collect()
    }

    /// In the table, this value stands for a lagging member.
    const BEHIND: u64 = u64::MAX;

    fn lacks(members: &[(u64, u64)]) -> BTreeMap<MemberId, Lack> {
        let lack = |(id, left): &(u64, u64)| match *left {
            BEHIND => (MemberId(*id), Lack::Behind),
            left => (MemberId(*id), Lack::Short(left)),
        };
        members.iter().map(lack).collect()
    }

    #[test]
    fn a_majority_of_each_set_must_have_room() {
        let three: &[&[u64]] = &[&[1, 2, 3]];
        let joint: &[&[u64]] = &[&[1, 2, 3], &[4, 5, 6]];
        // The own room, the members short of room, the sets, and the member named as the reason against 100 bytes.
        type Row<'a> = (u64, &'a [(u64, u64)], &'a [&'a [u64]], Option<(u64, u64)>);
        let table: [Row<'_>; 13] = [
            (500, &[], three, None),
            (500, &[(2, 0)], three, None),
            (500, &[(2, 50), (3, 7)], three, Some((3, 7))),
            // Only the own log.
            (0, &[], three, None),
            (0, &[(3, 10)], three, Some((1, 0))),
            (0, &[], &[&[1]], Some((1, 0))),
            (500, &[(1, 0), (2, 0)], &[&[1, 2, 3, 4]], Some((1, 0))),
            (500, &[(4, 0), (2, 0)], joint, None),
            (500, &[(4, 3), (5, 2)], joint, Some((5, 2))),
            // A lagging member does not count, and is no reason.
            (500, &[(2, BEHIND), (3, BEHIND)], three, None),
            (500, &[(2, BEHIND), (3, 8)], three, Some((3, 8))),
            (0, &[(2, BEHIND)], three, Some((1, 0))),
            // A leader that does not vote.
            (0, &[], &[&[4, 5, 6]], None),
        ];
        for (room, lacking, voters, expected) in table {
            let judged = judge(MemberId(1), room, &lacks(lacking), &sets(voters), 100);
            let named = judged.err().map(|no| (no.member.0, no.left_bytes));
            assert_eq!(named, expected, "{room} {lacking:?} {voters:?}");
        }
    }

    #[test]
    fn what_was_proposed_since_is_taken_off_what_a_member_said() {
        let rooms = Rooms::default();
        let (three, six) = (stored_bytes(300), stored_bytes(600));
        let first = rooms.propose(300);
        // Asked now: the 300 may not have arrived.
        let told = Told {
            room: three + six + 100,
            since: 0,
            behind: false,
        };
        let left = || told.left(rooms.proposed.load(Ordering::Relaxed));
        assert_eq!(left(), six + 100);
        let second = rooms.propose(600);
        assert_eq!(left(), 100);
        drop(first);
        assert_eq!(rooms.under_way.load(Ordering::Relaxed), six);
        drop(second);
        assert_eq!(rooms.under_way.load(Ordering::Relaxed), 0);
        let proposed = rooms.proposed.load(Ordering::Relaxed);
        assert_eq!(told.left(proposed + 999), 0);
        assert_eq!(told.lack(proposed, 101), Some(Lack::Short(100)));
        assert_eq!(told.lack(proposed, 100), None);
        let behind = Told {
            behind: true,
            ..told
        };
        assert_eq!(behind.lack(proposed, 100), Some(Lack::Behind));
    }

    /// A log with this room.
    struct Disk(LogRoom);

    impl LogIntake for Disk {
        fn has(&self, _: OpId) -> bool {
            false
        }

        fn room(&self, _: u64) -> LogRoom {
            self.0
        }

        fn queue_room(&self, _: u64) -> raft_types::WaitingForLog<'_> {
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn an_answer_counts_in_its_leadership_and_who_was_not_asked_yet_is_like_the_own_log() {
        let needed = stored_bytes(100);
        let (much, all) = (needed * 10, needed * 20);
        // Room and reserve of the own log, the term of the answers, the answers of members 2 and 3, and whether all were asked.
        // Then: whether member 1 proposes in term 7, and yields.
        type Row = (u64, u64, u64, [Option<u64>; 2], bool, bool, bool);
        let table: [Row; 12] = [
            (much, all, 7, [None, None], false, true, false),
            (much, all, 7, [Some(0), Some(0)], true, false, false),
            // From another leadership.
            (much, all, 6, [Some(0), Some(0)], true, true, false),
            (0, all, 6, [Some(much), Some(much)], true, false, false),
            // It is unknown yet whether only this one is full.
            (0, all, 7, [None, None], false, false, false),
            (0, all, 7, [Some(much), None], false, false, false),
            (0, all, 7, [Some(much), Some(much)], false, true, true),
            // A member that does not answer is away.
            (0, all, 7, [Some(much), None], true, true, true),
            (0, all, 7, [None, None], true, true, true),
            (0, all, 7, [Some(0), None], true, false, false),
            // The rest of its reserve is for the ring's own entries.
            (
                0,
                needed - 1,
                7,
                [Some(much), Some(much)],
                true,
                false,
                true,
            ),
            (0, needed, 7, [Some(much), Some(much)], true, true, true),
        ];
        for row in table {
            let (transactions, in_all, term, answered, all_asked, proposes, gives_way) = row;
            let rooms = Rooms::default();
            rooms.ask(Arc::new(Disk(LogRoom {
                transactions,
                in_all,
            })));
            let told = |room| Told {
                room,
                since: 0,
                behind: false,
            };
            let ids = [MemberId(2), MemberId(3)].into_iter();
            let answered = ids.zip(answered);
            *rooms.lock() = Answers {
                term: Some(Term(term)),
                told: answered
                    .filter_map(|(id, room)| Some((id, told(room?))))
                    .collect(),
                all_asked,
            };
            let three = || sets(&[&[1, 2, 3]]);
            let checked = rooms.check(MemberId(1), Term(7), three, 100);
            assert_eq!(checked.is_ok(), proposes, "{row:?}: {checked:?}");
            let only_here = rooms.only_here(MemberId(1), Term(7), &three());
            assert_eq!(only_here, gives_way, "{row:?}");
        }
    }
}

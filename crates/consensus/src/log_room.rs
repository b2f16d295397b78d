//! Decides which transactions fit the disks of the ring. The leader asks the voters periodically for their room. It refuses to propose a
//! transaction if fewer than a majority of a voter set has room for it.
//!
//! Why enough members can still elect a leader when all disks fill: a member cannot skip entries. So it can take a new leader's blank entry
//! only if it can take all transactions before it. Consider a member of the majority that reported enough room to a serving leader. That
//! leader has committed an entry of its own term, and its commit mark is at or after that entry. So all entries from older terms in its log
//! are committed. The member's answer counts only if its log had everything up to the mark when it was asked. Other entries may not have
//! arrived: those that were uncommitted then, and those proposed since. They all belong to this leadership, so the leader has counted them.
//! It subtracts them from the reported room, and the next proposals must fit the rest. So the leader's whole log fits the disks of that
//! majority without their reserve.
//!
//! Another leader may have put entries of older terms into logs that this leader has never seen. None of those entries is committed, and
//! this leader's entries replace them. An answer counts only in the leadership in which it was given.
//!
//! Three cases are not proven but bounded; the reserve is for them.
//! - A new leader asks every voter once, which takes two heartbeats, and a lease if a voter does not answer. Until then, a voter without an
//!   answer counts with the room of the leader's own log.
//! - Writes of other programs to the disks become visible only in the next answer.
//! - A voter that does not answer counts as a voter with room: it is absent, or of an older version. After it rejoins, it takes no
//!   transactions beyond its own bound ([`wait_for_room`]). Neither does a leader write its own transactions beyond that bound.
//!
//! So none of these cases uses the part of the reserve that the ring's own entries need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use openraft::raft::AppendEntriesRequest;
use raft_types::{
    AppEntry, EntryPayload, LogIntake, LogRoom, MemberId, OpId, Term, TypeConfig, lock,
    stored_bytes,
};
use thiserror::Error;

use crate::calls::{Answer, Question};
use crate::election::elections::Elections;

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

/// The own log as an intake, the room that other members reported, and the bytes proposed since.
#[derive(Default)]
pub(crate) struct Rooms {
    /// The own log. It is set once, after the start of the member.
    pub(crate) own: OnceLock<Arc<dyn LogIntake>>,
    proposed: AtomicU64,
    under_way: Arc<AtomicU64>,
    told: Mutex<RoomReports>,
}

/// The room that the other members reported in one leadership.
#[derive(Debug, Default)]
struct RoomReports {
    term: Option<Term>,
    told: BTreeMap<MemberId, RoomReport>,
    /// True if every voter was asked, and each has answered or let a lease pass.
    all_asked: bool,
}

/// A member's answer, and how many bytes had been proposed and committed before it was asked.
#[derive(Debug, Clone, Copy)]
struct RoomReport {
    room: u64,
    since: u64,
    /// True if the member's log lacked an entry that was committed when it was asked. Its room does not count then.
    lagging: bool,
}

impl RoomReport {
    /// Returns why this member does not count as having room for `needed` bytes; `None` if it counts.
    fn lack(self, proposed: u64, needed: u64) -> Option<RoomLack> {
        let since = proposed.saturating_sub(self.since);
        match self.room.saturating_sub(since) {
            left if left < needed => Some(RoomLack::Short(left)),
            _ => self.lagging.then_some(RoomLack::Lagging),
        }
    }
}

/// Why a member does not count as having room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoomLack {
    /// The member has room for only this many bytes.
    Short(u64),
    /// The member needs its room for entries that it lacks.
    Lagging,
}

/// Proposed bytes without a known outcome; subtracted when the proposal is dropped.
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
    /// Checks whether a transaction of `bytes` bytes may be proposed in the leadership of `term`.
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
        let none_is_short = lacks.values().all(|lack| *lack == RoomLack::Lagging);
        if room.transactions >= needed && none_is_short {
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

    /// Returns the members that do not count as having room for `needed` bytes, while the own log has `room`.
    fn lacks(
        &self,
        term: Term,
        room: LogRoom,
        needed: u64,
        sets: impl Fn() -> Vec<BTreeSet<MemberId>>,
    ) -> BTreeMap<MemberId, RoomLack> {
        let proposed = self.proposed.load(Ordering::SeqCst);
        let reports = lock(&self.told);
        let current = reports.term == Some(term);
        let told = reports.told.iter().filter(|_| current);
        let lack = |(id, told): (&MemberId, &RoomReport)| Some((*id, told.lack(proposed, needed)?));
        let mut lacks: BTreeMap<_, _> = told.filter_map(lack).collect();
        if needed > room.transactions && !(current && reports.all_asked) {
            let told = |id: &MemberId| current && reports.told.contains_key(id);
            let unknown = sets().into_iter().flatten().filter(|id| !told(id));
            lacks.extend(unknown.map(|id| (id, RoomLack::Short(room.transactions))));
        }
        lacks
    }

    pub(crate) fn propose(&self, bytes: u64) -> UnderWay {
        // This order is needed, and the reader uses the reverse order: proposed bytes then count as in flight until their outcome is known.
        let bytes = stored_bytes(bytes);
        self.under_way.fetch_add(bytes, Ordering::SeqCst);
        self.proposed.fetch_add(bytes, Ordering::SeqCst);
        UnderWay {
            all: self.under_way.clone(),
            bytes,
        }
    }

    /// True if the own log has no room for transactions while a majority of each voter set has.
    pub(crate) fn only_here(&self, own: MemberId, term: Term, sets: &[BTreeSet<MemberId>]) -> bool {
        let Some(room) = self.own.get().map(|intake| intake.room(1)) else {
            return false;
        };
        let lacks = self.lacks(term, room, 1, || sets.to_vec());
        room.transactions == 0 && judge(own, 0, &lacks, sets, 1).is_ok()
    }

    /// The own log's answer to another member's question.
    pub(crate) fn answer(&self, end: Option<OpId>) -> Answer {
        // The room is always read from the disk, because space may have been freed. The log's end is read before it, so the room is the
        // space after at least that end.
        let room = self.own.get().map(|own| own.room(u64::MAX));
        Answer::Room {
            transactions: room.map(|room| room.transactions),
            end,
        }
    }

    /// Begins a round of questions in the leadership of `term`. Returns how many proposed bytes are no longer in flight. Answers from
    /// another leadership, or from members other than these voters, no longer count.
    fn begin_round(&self, term: Term, voters: &BTreeSet<MemberId>) -> u64 {
        let mut answers = lock(&self.told);
        if answers.term != Some(term) {
            *answers = RoomReports {
                term: Some(term),
                ..RoomReports::default()
            };
        }
        answers.told.retain(|id, _| voters.contains(id));
        drop(answers);
        // Bytes in flight may not have reached any member when it answers. If bytes stop being in flight between the two reads, they
        // are committed before the mark is read.
        let proposed = self.proposed.load(Ordering::SeqCst);
        proposed.saturating_sub(self.under_way.load(Ordering::SeqCst))
    }
}

/// Judges whether enough members have room; `lacks` are the other members that do not count as having room. If the leader alone has no
/// room, it writes to its reserve until it has transferred the leadership. The members that commit have room, and refused commits would
/// delay a promotion.
fn judge(
    own: MemberId,
    room: u64,
    lacks: &BTreeMap<MemberId, RoomLack>,
    sets: &[BTreeSet<MemberId>],
    needed: u64,
) -> Result<(), NoRoom> {
    let mut lacks = lacks.clone();
    if needed > room {
        lacks.insert(own, RoomLack::Short(room));
    }
    for set in sets {
        let lacking = set.iter().filter(|id| lacks.contains_key(*id)).count();
        // Lagging members alone are no reason to refuse: the other members may be enough to commit.
        let short = set.iter().filter_map(|id| match lacks.get(id)? {
            RoomLack::Short(left) => Some((*id, *left)),
            RoomLack::Lagging => None,
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

// A gate between a leader's stream of entries and the engine. A request waits here until the log can take it, because the engine can
// neither refuse a request nor wait.

/// Interval between two checks of a full disk.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Returns the sizes in bytes of the transactions in a request that the log lacks. Entries other than transactions never wait for room on
/// the disk. Entries that the log has do not wait either: a new leader sends them to find the end of the log.
fn transactions(
    log: &dyn LogIntake,
    request: &AppendEntriesRequest<TypeConfig>,
) -> impl Iterator<Item = u64> {
    let entries = request.entries.iter();
    entries.filter_map(|entry| match &entry.payload {
        EntryPayload::Normal(AppEntry::Transaction(payload)) => {
            let lacks = !log.has(OpId::from(entry.log_id));
            lacks.then(|| payload.bytes().len() as u64)
        }
        _ => None,
    })
}

/// Waits until a log can take a request: the disk has room for its transactions, and there is room in memory for one more pending write. A
/// member whose stream waits lags, and continues when there is room.
pub(crate) async fn wait_for_room(
    log: Option<Arc<dyn LogIntake>>,
    request: &AppendEntriesRequest<TypeConfig>,
) {
    let Some(log) = log else {
        return;
    };
    let bytes: u64 = transactions(&*log, request).sum();
    if bytes == 0 {
        return;
    }
    let stored: u64 = transactions(&*log, request).map(stored_bytes).sum();
    let mut told = false;
    while log.room(stored).in_all < stored {
        if !told {
            tracing::warn!(
                bytes = stored,
                "the log's disk has no room for the leader's entries; they wait until it has: purge old log files, or add space"
            );
            told = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if told {
        tracing::info!("the log's disk has room again; the leader's entries are written again");
    }
    log.queue_room(bytes).await;
}

/// Asks the voters for their room periodically, while this member serves as the leader.
pub(crate) async fn ask_voters(elections: Arc<Elections>, rooms: Arc<Rooms>) {
    let engine = &elections.engine;
    loop {
        tokio::time::sleep(engine.timers.heartbeat * 2).await;
        let Some(own) = rooms.own.get() else {
            continue;
        };
        // The room is always read from the disk, because other programs write to the disk too.
        own.room(u64::MAX);
        let role = engine.role();
        let Some(term) = elections.assess(&role).serving_term() else {
            continue;
        };
        let voters: BTreeSet<MemberId> = role.voter_sets().iter().flatten().copied().collect();
        let since = rooms.begin_round(term, &voters);
        let asked = voters.into_iter().filter(|id| *id != engine.id);
        let asked = asked.filter_map(|id| Some((id, role.membership.get_node(&id)?)));
        let committed = engine.mark.get();
        let asked = asked.map(async |(id, record)| {
            let answer = engine
                .calls
                .ask(id, record, Question::Room, engine.timers.lease);
            if let Ok(Answer::Room {
                transactions: Some(room),
                end,
            }) = answer.await
            {
                let lagging = end < committed;
                let told = RoomReport {
                    room,
                    since,
                    lagging,
                };
                lock(&rooms.told).told.insert(id, told);
            }
        });
        join_all(asked).await;
        // At this point, every voter was asked, and each has answered or let a lease pass.
        lock(&rooms.told).all_asked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(sets: &[&[u64]]) -> Vec<BTreeSet<MemberId>> {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        sets.iter().map(set).collect()
    }

    /// In the table, this value denotes a lagging member.
    const LAGGING: u64 = u64::MAX;

    fn lacks(members: &[(u64, u64)]) -> BTreeMap<MemberId, RoomLack> {
        let lack = |(id, left): &(u64, u64)| match *left {
            LAGGING => (MemberId(*id), RoomLack::Lagging),
            left => (MemberId(*id), RoomLack::Short(left)),
        };
        members.iter().map(lack).collect()
    }

    #[test]
    fn a_majority_of_each_set_must_have_room() {
        let three: &[&[u64]] = &[&[1, 2, 3]];
        let joint: &[&[u64]] = &[&[1, 2, 3], &[4, 5, 6]];
        // The own room; the members short of room; the voter sets; the member named in the refusal of 100 bytes.
        type Row<'a> = (u64, &'a [(u64, u64)], &'a [&'a [u64]], Option<(u64, u64)>);
        let table: [Row<'_>; 13] = [
            (500, &[], three, None),
            (500, &[(2, 0)], three, None),
            (500, &[(2, 50), (3, 7)], three, Some((3, 7))),
            // Only the own log is short of room.
            (0, &[], three, None),
            (0, &[(3, 10)], three, Some((1, 0))),
            (0, &[], &[&[1]], Some((1, 0))),
            (500, &[(1, 0), (2, 0)], &[&[1, 2, 3, 4]], Some((1, 0))),
            (500, &[(4, 0), (2, 0)], joint, None),
            (500, &[(4, 3), (5, 2)], joint, Some((5, 2))),
            // A lagging member does not count as having room, but is never the member named in a refusal.
            (500, &[(2, LAGGING), (3, LAGGING)], three, None),
            (500, &[(2, LAGGING), (3, 8)], three, Some((3, 8))),
            (0, &[(2, LAGGING)], three, Some((1, 0))),
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
    fn bytes_proposed_since_reduce_a_members_room() {
        let rooms = Rooms::default();
        let (three, six) = (stored_bytes(300), stored_bytes(600));
        let first = rooms.propose(300);
        // The 300 bytes proposed before may not have arrived when the member is asked.
        let told = RoomReport {
            room: three + six + 100,
            since: 0,
            lagging: false,
        };
        let left_of = |proposed| told.lack(proposed, u64::MAX);
        let left = || left_of(rooms.proposed.load(Ordering::Relaxed));
        assert_eq!(left(), Some(RoomLack::Short(six + 100)));
        let second = rooms.propose(600);
        assert_eq!(left(), Some(RoomLack::Short(100)));
        drop(first);
        assert_eq!(rooms.under_way.load(Ordering::Relaxed), six);
        drop(second);
        assert_eq!(rooms.under_way.load(Ordering::Relaxed), 0);
        let proposed = rooms.proposed.load(Ordering::Relaxed);
        assert_eq!(left_of(proposed + 999), Some(RoomLack::Short(0)));
        assert_eq!(told.lack(proposed, 101), Some(RoomLack::Short(100)));
        assert_eq!(told.lack(proposed, 100), None);
        let lagging = RoomReport {
            lagging: true,
            ..told
        };
        assert_eq!(lagging.lack(proposed, 100), Some(RoomLack::Lagging));
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
    fn answers_count_in_their_term_and_missing_ones_as_the_own_log() {
        let needed = stored_bytes(100);
        let (much, all) = (needed * 10, needed * 20);
        // The room and the reserve of the own log; the term of the answers; the answers of members 2 and 3; whether all were asked. Then
        // the results: whether member 1 proposes in term 7, and whether it yields the leadership.
        type Row = (u64, u64, u64, [Option<u64>; 2], bool, bool, bool);
        let table: [Row; 12] = [
            (much, all, 7, [None, None], false, true, false),
            (much, all, 7, [Some(0), Some(0)], true, false, false),
            // The answers are from another leadership.
            (much, all, 6, [Some(0), Some(0)], true, true, false),
            (0, all, 6, [Some(much), Some(much)], true, false, false),
            // It is unknown yet whether only this member's disk is full.
            (0, all, 7, [None, None], false, false, false),
            (0, all, 7, [Some(much), None], false, false, false),
            (0, all, 7, [Some(much), Some(much)], false, true, true),
            // A member that does not answer counts as absent.
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
            let (transactions, in_all, term, answered, all_asked, proposes, yielding) = row;
            let rooms = Rooms::default();
            let _ = rooms.own.set(Arc::new(Disk(LogRoom {
                transactions,
                in_all,
            })));
            let told = |room| RoomReport {
                room,
                since: 0,
                lagging: false,
            };
            let ids = [MemberId(2), MemberId(3)].into_iter();
            let answered = ids.zip(answered);
            *lock(&rooms.told) = RoomReports {
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
            assert_eq!(only_here, yielding, "{row:?}");
        }
    }
}

#[cfg(test)]
mod intake_tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use futures::FutureExt;
    use raft_types::Entry;
    use raft_types::LogId;
    use raft_types::LogRoom;
    use raft_types::MemberId;
    use raft_types::TransactionPayload;
    use raft_types::Vote;
    use raft_types::WaitingForLog;

    use super::*;

    #[derive(Default)]
    struct Disk {
        free: AtomicU64,
        /// How many entries the log has.
        entries: AtomicU64,
    }

    impl LogIntake for Disk {
        fn room(&self, _: u64) -> LogRoom {
            LogRoom {
                transactions: 0,
                in_all: self.free.load(Ordering::Relaxed),
            }
        }

        fn queue_room(&self, _: u64) -> WaitingForLog<'_> {
            Box::pin(std::future::ready(()))
        }

        fn has(&self, entry: OpId) -> bool {
            entry.term == 1 && entry.index < self.entries.load(Ordering::Relaxed)
        }
    }

    fn request(payloads: Vec<EntryPayload>) -> AppendEntriesRequest<TypeConfig> {
        let entries = (0..).zip(payloads).map(|(index, payload)| Entry {
            log_id: LogId::from(OpId::new(1, index)),
            payload,
        });
        AppendEntriesRequest {
            vote: Vote::new_committed(1, MemberId(1)),
            prev_log_id: None,
            entries: entries.collect(),
            leader_commit: None,
        }
    }

    fn transaction(bytes: usize) -> EntryPayload {
        let payload = TransactionPayload::seal(Bytes::from(vec![1; bytes]));
        EntryPayload::Normal(AppEntry::Transaction(payload))
    }

    #[tokio::test(start_paused = true)]
    async fn transactions_wait_for_the_disk_and_the_rings_own_entries_do_not() {
        let disk = Arc::new(Disk::default());
        let log: Option<Arc<dyn LogIntake>> = Some(disk.clone());
        let own = request(vec![EntryPayload::Blank]);
        assert!(wait_for_room(log.clone(), &own).now_or_never().is_some());

        let request = request(vec![
            EntryPayload::Blank,
            transaction(700),
            transaction(300),
        ]);
        let needed = stored_bytes(700) + stored_bytes(300);
        disk.free.store(needed - 1, Ordering::Relaxed);
        let waited = tokio::time::timeout(
            Duration::from_secs(60),
            wait_for_room(log.clone(), &request),
        );
        assert!(waited.await.is_err());
        disk.free.store(needed, Ordering::Relaxed);
        wait_for_room(log, &request).await;
        wait_for_room(None, &request).await;
    }

    /// Regression: a new leader's request with entries that the log has waited for room on a full disk, so no member could lead.
    #[tokio::test(start_paused = true)]
    async fn entries_that_a_full_disk_has_do_not_wait() {
        let disk = Arc::new(Disk::default());
        let log: Option<Arc<dyn LogIntake>> = Some(disk.clone());
        let request = request(vec![transaction(700), transaction(300)]);
        disk.entries.store(2, Ordering::Relaxed);
        let waits = wait_for_room(log.clone(), &request).now_or_never();
        assert!(waits.is_some());
        disk.entries.store(1, Ordering::Relaxed);
        disk.free.store(stored_bytes(300) - 1, Ordering::Relaxed);
        let waits = wait_for_room(log.clone(), &request).now_or_never();
        assert!(waits.is_none(), "the second one is new");
        disk.free.store(stored_bytes(300), Ordering::Relaxed);
        wait_for_room(log, &request).await;
    }
}

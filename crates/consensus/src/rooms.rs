//! Which transactions the disks of the ring have room for. The leader asks the voters now and then, and refuses to propose
//! what fewer than a majority of a voter set has room for.
//!
//! Why so many stay able to elect somebody when all disks fill: entries cannot be skipped, so that a member can take a new
//! leader's blank entry only when it can take all transactions before it. Let a member be one of the majority that answered
//! with so much room. Its log had everything that was committed when it was asked, or its answer does not count. All that was
//! not committed then, and all that was proposed since, may not have arrived: it is subtracted from the room, and what
//! is proposed next fits the rest. So whatever is in any log of this term fits into the disks of that majority without their
//! reserve, and what older terms left behind is committed before the leader serves. The reserve is for the ring's own entries,
//! and for what others write to the disks between two answers.
//!
//! A member that never answered such a question counts as one with room: it is away, or of an older version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::future::join_all;
use raft_types::{LogIntake, MemberId, OpId};
use thiserror::Error;

use crate::questions::{Answer, MemberCalls, Question};
use crate::seat::Seat;

/// No room for a transaction on the disks of the ring.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the disk of member {member}'s log has room for {left_bytes} more bytes of transactions, and {needed_bytes} are \
     needed; nothing is lost, and commits go on by themselves once there is room: purge old files of the log \
     (`witness log purge`), raise `log.disk_limit_bytes`, or add space"
)]
pub struct NoRoom {
    /// The member that has the least.
    pub member: MemberId,
    /// What the transaction takes.
    pub needed_bytes: u64,
    /// What there is.
    pub left_bytes: u64,
}

/// A member's own log as an intake, what the others said of theirs, and what was proposed meanwhile.
#[derive(Default)]
pub(crate) struct Rooms {
    own: OnceLock<Arc<dyn LogIntake>>,
    proposed: AtomicU64,
    under_way: Arc<AtomicU64>,
    told: Mutex<BTreeMap<MemberId, Told>>,
}

/// What a member said, and how many bytes had been proposed and committed before it was asked.
#[derive(Debug, Clone, Copy)]
struct Told {
    room: u64,
    since: u64,
    /// Its log lacks something that was committed then, so its room says nothing.
    behind: bool,
}

impl Told {
    fn left(self, proposed: u64) -> u64 {
        self.room
            .saturating_sub(proposed.saturating_sub(self.since))
    }

    /// Why it does not count for so many bytes, if it does not.
    fn lack(self, proposed: u64, needed: u64) -> Option<Lack> {
        let left = self.left(proposed);
        if left < needed {
            Some(Lack::Short(left))
        } else {
            self.behind.then_some(Lack::Behind)
        }
    }
}

/// Why a member does not count as one with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// It has so many bytes.
    Short(u64),
    /// What it has is needed for entries that it lacks.
    Behind,
}

/// Bytes that are proposed and of which nobody knows yet what becomes of them; dropped with the proposal.
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

    /// Whether a transaction of this size may be proposed.
    pub(crate) fn check(
        &self,
        own: MemberId,
        sets: impl FnOnce() -> Vec<BTreeSet<MemberId>>,
        needed: u64,
    ) -> Result<(), NoRoom> {
        let Some(intake) = self.own.get() else {
            return Ok(());
        };
        let room = intake.room(needed);
        let proposed = self.proposed.load(Ordering::Relaxed);
        let others: BTreeMap<MemberId, Lack> = {
            let told = self.lock();
            let lacks = told.iter();
            let lacks = lacks.filter_map(|(id, told)| Some((*id, told.lack(proposed, needed)?)));
            lacks.collect()
        };
        let nobody_is_short = others.values().all(|lack| *lack == Lack::Behind);
        if room.transactions >= needed && nobody_is_short {
            return Ok(());
        }
        judge(own, room.transactions, &others, &sets(), needed)
    }

    /// Counts a proposal.
    pub(crate) fn propose(&self, bytes: u64) -> UnderWay {
        // In this order, and read in the other: what counts as proposed counts as under way until its end is known.
        self.under_way.fetch_add(bytes, Ordering::SeqCst);
        self.proposed.fetch_add(bytes, Ordering::SeqCst);
        UnderWay {
            all: self.under_way.clone(),
            bytes,
        }
    }

    /// Whether the own log has no room for transactions while a majority of each voter set has.
    pub(crate) fn only_here(&self, own: MemberId, sets: &[BTreeSet<MemberId>]) -> bool {
        let room = self.own.get().map(|intake| intake.room(1).transactions);
        room == Some(0) && self.check(own, || sets.to_vec(), 1).is_ok()
    }

    /// What the own log answers to another member's question.
    pub(crate) fn answer(&self, end: Option<OpId>) -> Answer {
        // Always a look at the disk: somebody may have made room.
        let room = self.own.get().map(|own| own.room(u64::MAX));
        Answer::Room {
            transactions: room.map(|room| room.transactions),
            end,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Told>> {
        // Its entries are replaced as a whole.
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

/// `lacks` are the others that do not count as members with room. A leader that alone has none goes on, into its reserve and
/// beyond, until it has given the leadership away: who commits has room, and refused commits would hold a promotion up.
/// If its file system refuses an entry before, it stops, and another one is elected.
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
        // Those who are behind alone are no reason: they need not be those who commit.
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

/// Asks the voters for as long as the member leads; forgets what they said when it does not.
pub(crate) async fn ask_around(seat: Arc<Seat>, calls: Arc<dyn MemberCalls>) {
    loop {
        tokio::time::sleep(seat.timers.heartbeat * 2).await;
        let rooms = &seat.rooms;
        if rooms.own.get().is_none() {
            continue;
        }
        // Always a look at the disk: others write to it, too.
        let _ = rooms.own.get().map(|own| own.room(u64::MAX));
        let role = seat.role();
        if role.state != openraft::ServerState::Leader {
            rooms.lock().clear();
            continue;
        }
        let voters: BTreeSet<MemberId> = role.voter_sets().iter().flatten().copied().collect();
        rooms.lock().retain(|id, _| voters.contains(id));
        let asked = voters.into_iter().filter(|id| *id != seat.id);
        let asked = asked.filter_map(|id| Some((id, role.membership.get_node(&id)?)));
        // What is under way may not have arrived anywhere when the answer is given.
        let proposed = rooms.proposed.load(Ordering::SeqCst);
        let since = proposed.saturating_sub(rooms.under_way.load(Ordering::SeqCst));
        let committed = seat.mark.get();
        let answers = asked.map(async |(id, record)| {
            let answer = calls.ask(id, record, Question::Room, seat.timers.lease);
            (id, answer.await)
        });
        for (id, answer) in join_all(answers).await {
            if let Ok(Answer::Room {
                transactions: Some(room),
                end,
            }) = answer
            {
                let behind = end < committed;
                let told = Told {
                    room,
                    since,
                    behind,
                };
                rooms.lock().insert(id, told);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(sets: &[&[u64]]) -> Vec<BTreeSet<MemberId>> {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        sets.iter().map(set).collect()
    }

    /// In the table, this much is a member that is behind.
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
        // The own room, who is short, the sets, and who is named as the reason against 100 bytes.
        type Row<'a> = (u64, &'a [(u64, u64)], &'a [&'a [u64]], Option<(u64, u64)>);
        let table: [Row<'_>; 13] = [
            (500, &[], three, None),
            (500, &[(2, 0)], three, None),
            (500, &[(2, 50), (3, 7)], three, Some((3, 7))),
            // The own log alone.
            (0, &[], three, None),
            (0, &[(3, 10)], three, Some((1, 0))),
            (0, &[], &[&[1]], Some((1, 0))),
            (500, &[(1, 0), (2, 0)], &[&[1, 2, 3, 4]], Some((1, 0))),
            (500, &[(4, 0), (2, 0)], joint, None),
            (500, &[(4, 3), (5, 2)], joint, Some((5, 2))),
            // Who is behind does not count, and is no reason.
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
        let first = rooms.propose(300);
        // Asked now: the 300 may not have arrived.
        let told = Told {
            room: 1_000,
            since: 0,
            behind: false,
        };
        assert_eq!(told.left(rooms.proposed.load(Ordering::Relaxed)), 700);
        let second = rooms.propose(600);
        assert_eq!(told.left(rooms.proposed.load(Ordering::Relaxed)), 100);
        drop(first);
        assert_eq!(rooms.under_way.load(Ordering::Relaxed), 600);
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
}

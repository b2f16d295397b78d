//! Which transaction is begun next, by which worker, and with which others behind it.

use std::time::Duration;

use crate::run::options::BatchSize;
use crate::run::plan::pacing::PacingMode;
use crate::run::plan::visibility::Turns;
use crate::run::plan::worker_slot::{Held, WorkerId, WorkerSlot};
use crate::run::plan::{Plan, State};
use crate::transaction::{Body, Seq};

/// With fewer batches waiting than this, there is nothing to catch up with.
const BACKLOG_BATCHES: usize = 2;

impl Plan {
    /// Gives the lowest transaction that may begin to a free worker, with those behind it when it is the first of a batch:
    /// how many they are then.
    pub(super) fn begin(&mut self, now: Duration) -> Option<(WorkerId, (Seq, usize))> {
        let seq = *self.ready.first()?;
        let free = self.slots.iter().filter(|slot| slot.is_free()).count();
        let worker = WorkerId(self.slots.iter().position(WorkerSlot::is_free)?);
        let allowed = self.pace.allowed(now);
        if allowed == 0 || self.begin_upto.is_some_and(|upto| seq > upto) {
            return None;
        }
        let base = self.scheduler.base();
        let alone = self.way(now) == PacingMode::Alone;
        // The first one is begun whatever the others do: they may wait for it.
        if alone && free < self.slots.len() && seq != base {
            return None;
        }
        let entry = self.entry(seq)?;
        let barrier = matches!(entry.transaction.body, Body::Barrier(_));
        let turn = self.turns.may_commit(seq, base);
        if barrier && !turn {
            return None;
        }
        let count = if !barrier && turn && self.is_whole(seq) {
            let mut limit = self.batch;
            limit.transactions = limit.transactions.min(allowed);
            if self.passing.is_on() && self.ready.len() > 1 {
                // Each of them shares a force of the log with its neighbours, and those in a batch do not.
                limit.transactions = 1;
            }
            let occasion = Occasion {
                at_front: seq == base,
                others_free: if alone { 0 } else { free - 1 },
                ready: self.ready.len(),
            };
            let bytes = entry.transaction.bytes;
            length(limit, bytes, occasion, self.neighbours(seq))
        } else {
            1
        };
        self.pace.begin(count);
        let seqs = (seq.0..seq.0 + count as u64).map(Seq);
        for seq in seqs {
            self.ready.remove(&seq);
            self.last_begun = self.last_begun.max(seq);
            if let Some(entry) = self.entry_mut(seq) {
                entry.state = State::Begun;
            }
            self.begun.push(seq);
        }
        if count == 1 {
            self.slots[worker.0].held = Some(Held::new(seq));
        }
        Some((worker, (seq, count)))
    }

    /// How the workers go on now.
    fn way(&mut self, now: Duration) -> PacingMode {
        match &self.turns {
            Turns::Log if self.slots.len() > 1 && self.batch.transactions > 1 => {
                let backlog = self.entries.len() >= self.batch.transactions * BACKLOG_BATCHES;
                let way = self.pacing.look(now, self.scheduler.base().0, backlog);
                self.passing.set_on(backlog && way == PacingMode::All);
                way
            }
            _ => PacingMode::All,
        }
    }

    /// The transactions behind `first`, as a batch sees them.
    fn neighbours(&self, first: Seq) -> impl Iterator<Item = Neighbour> {
        let base = self.scheduler.base();
        let place = first.0 - base.0 + 1;
        let behind = self.entries.iter().skip(place as usize);
        behind.zip(first.0 + 1..).map(move |(entry, seq)| {
            let seq = Seq(seq);
            // In the log's order, the turn comes when those before it in the batch are committed.
            let turn = match &self.turns {
                Turns::Log => true,
                Turns::Snapshot(_) => self.turns.may_commit(seq, base),
            };
            let held_back = self.begin_upto.is_some_and(|upto| seq > upto);
            Neighbour {
                ends: entry.state != State::Waiting
                    || matches!(entry.transaction.body, Body::Barrier(_))
                    || !turn
                    || held_back,
                whole: self.is_whole(seq),
                ready: self.ready.contains(&seq),
                bytes: entry.transaction.bytes,
            }
        })
    }

    /// Whether all rows of a transaction are safe.
    fn is_whole(&self, seq: Seq) -> bool {
        self.scheduler.may_begin(seq)
            && self.entry(seq).is_some_and(|entry| {
                matches!(&entry.transaction.body,
                    Body::Rows(changes) if changes.rows.len() == self.scheduler.safe_rows(seq))
            })
    }
}

// How many whole transactions one session is given at once. One network packet with several is faster than several, but a
// transaction that another worker could begin now is not to wait behind others.

/// A transaction behind the first of a batch, in the log's order without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// A worker has it already, it is a barrier, or it may not be committed now: the batch ends before it.
    pub(super) ends: bool,
    /// All its rows are safe now.
    pub(super) whole: bool,
    /// A worker could begin it now, at least in part.
    pub(super) ready: bool,
    pub(super) bytes: usize,
}

/// Who else could do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Occasion {
    /// Everything before the first of the batch is committed: what waits for nothing but the batch may follow in it.
    pub(super) at_front: bool,
    /// Other workers without anything to do.
    pub(super) others_free: usize,
    /// Transactions that could be begun now, with the first.
    pub(super) ready: usize,
}

/// How many transactions to take, the first (of `first_bytes`) included.
pub(super) fn length(
    limit: BatchSize,
    first_bytes: usize,
    occasion: Occasion,
    neighbours: impl IntoIterator<Item = Neighbour>,
) -> usize {
    let share = match occasion.others_free {
        0 => limit.transactions,
        others => occasion.ready.div_ceil(others + 1),
    };
    let (mut taken, mut taken_ready, mut bytes) = (1, 1, first_bytes);
    for neighbour in neighbours {
        bytes = bytes.saturating_add(neighbour.bytes);
        let safe_here = neighbour.whole || occasion.at_front;
        let for_others = neighbour.ready && taken_ready >= share;
        if neighbour.ends
            || !safe_here
            || for_others
            || taken >= limit.transactions
            || bytes > limit.bytes
        {
            break;
        }
        taken += 1;
        taken_ready += usize::from(neighbour.ready);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: BatchSize = BatchSize {
        transactions: 4,
        bytes: 100,
    };

    /// Neighbours by letters: `w` whole, `p` ready in part, `.` waits, `x` ends; each has 10 bytes, or as many as follow.
    fn neighbours(text: &str) -> Vec<Neighbour> {
        let one = |word: &str| {
            let (kind, bytes) = word.split_at(1);
            Neighbour {
                ends: kind == "x",
                whole: kind == "w",
                ready: kind == "w" || kind == "p",
                bytes: bytes.parse().unwrap_or(10),
            }
        };
        text.split_whitespace().map(one).collect()
    }

    #[test]
    fn batches_are_as_long_as_they_may_be() {
        // at the front, others that are free, transactions that are ready, neighbours, length
        let table = [
            (
                "nobody else is free: as many as allowed",
                true,
                0,
                9,
                "w w w w w w",
                4,
            ),
            (
                "and whatever waits for them only",
                true,
                0,
                1,
                ". . . . .",
                4,
            ),
            (
                "also one whose first rows alone are safe",
                true,
                0,
                2,
                "p . .",
                4,
            ),
            ("up to one that another worker has", true, 0, 2, "w x w", 2),
            ("bytes count", true, 0, 3, "w60 w60", 2),
            ("a large one is for another batch", true, 0, 3, "w w95 w", 2),
            ("a chain is for nobody else", true, 3, 1, ". . .", 4),
            ("what others can begin is theirs", true, 3, 4, "w w w", 1),
            (
                "unless there is more than they can begin",
                true,
                1,
                8,
                "w w w w w",
                4,
            ),
            ("shares are fair", true, 2, 7, "w w w w", 3),
            ("a chain goes on behind one's share", true, 3, 1, ". p .", 2),
            (
                "behind the front, only what waits for nothing",
                false,
                0,
                3,
                "w . w",
                2,
            ),
            ("not what is safe in part", false, 0, 3, "p w", 1),
            (
                "and there, too, others get their share",
                false,
                1,
                6,
                "w w w w w",
                3,
            ),
        ];
        for (what, at_front, others_free, ready, text, expected) in table {
            let occasion = Occasion {
                at_front,
                others_free,
                ready,
            };
            let taken = length(LIMIT, 10, occasion, neighbours(text));
            assert_eq!(taken, expected, "{what}");
        }
        let alone = Occasion {
            at_front: true,
            others_free: 0,
            ready: 3,
        };
        assert_eq!(length(LIMIT, 500, alone, neighbours("w w")), 1);
    }
}

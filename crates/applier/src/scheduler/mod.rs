//! Which row writes are safe to do now. Pure: no clock, no task, no database.
//!
//! Implements C5's scheduler: one first-in-first-out queue per key, in the log's order. A row write is safe when it is at
//! the head of all its queues. The transactions of earlier writes of these keys are committed then, since the database locks
//! rows until the commit. Transactions arrive in the log's order. Each commit returns the transactions that can proceed
//! further.

mod key_queue;

use std::collections::VecDeque;

use crate::batch::BatchSeq;
use crate::keys::{KeyAccess, KeyHash};
use crate::scheduler::key_queue::{Queues, RowPlace};

/// Which writes may run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Row by row, as in C5: a write waits only for earlier writes that have a key in common with it.
    Rows,
    /// Transaction by transaction, as in KuaFu and with MySQL's WRITESET: a transaction begins when all earlier transactions
    /// that conflict with it are committed.
    Transactions,
    /// Sequentially: a transaction begins when the previous one is committed.
    Serial,
}

impl Policy {
    /// Every policy, for options, tests and comparisons.
    pub const ALL: [Self; 3] = [Self::Rows, Self::Transactions, Self::Serial];

    /// Its name in options, figures and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Transactions => "transactions",
            Self::Serial => "serial",
        }
    }
}

/// The scheduler.
///
/// ```text
///        base                                      next
///   ──────┬────────┬────────┬─────────┬──────────────►  sequence numbers
///  all    │ open   │ commit-│ barrier │ held until the
///  commit-│        │ ted    │         │ barrier is committed
///  ted    │        │        │         │
/// ```
#[derive(Debug)]
pub struct Scheduler {
    policy: Policy,
    /// The first uncommitted transaction. If all are committed, the number of the next transaction.
    base: BatchSeq,
    /// The transactions from `base` on; `None` for a committed one.
    window: VecDeque<Option<Admitted>>,
    queues: Queues,
    /// Transactions that must not begin yet, in order: each with the number that `base` must reach first.
    held: VecDeque<(BatchSeq, BatchSeq)>,
    /// An arriving transaction must not begin before `base` reaches this number.
    floor: BatchSeq,
}

impl Scheduler {
    /// Creates a scheduler; `first` is the number of its first transaction.
    pub fn new(policy: Policy, first: BatchSeq) -> Self {
        Self {
            policy,
            base: first,
            window: VecDeque::new(),
            queues: Queues::default(),
            held: VecDeque::new(),
            floor: first,
        }
    }

    /// Adds the next transaction of the log: the keys of each row. Returns its number.
    pub fn admit<'a>(&mut self, rows: impl IntoIterator<Item = &'a [KeyAccess]>) -> BatchSeq {
        let seq = self.next();
        let mut admitted = Admitted::default();
        for keys in rows {
            let (row, keys) = match self.policy {
                Policy::Rows => (admitted.rows, keys),
                Policy::Transactions => (0, keys),
                Policy::Serial => (0, &[][..]),
            };
            admitted.rows += 1;
            for use_of_key in keys {
                admitted.keys.push(use_of_key.key);
                if !self.queues.join(RowPlace { seq, row }, *use_of_key) {
                    continue;
                }
                match admitted.waiting.last_mut() {
                    Some(last) if last.row == row => last.keys += 1,
                    _ => admitted.waiting.push(Waiting { row, keys: 1 }),
                }
            }
        }
        let not_before = match self.policy {
            Policy::Serial => seq,
            Policy::Rows | Policy::Transactions => self.floor,
        };
        self.push(seq, admitted, not_before)
    }

    /// Adds a barrier: it begins when everything before it is committed, and no later transaction begins until it is
    /// committed.
    pub fn admit_barrier(&mut self) -> BatchSeq {
        let seq = self.next();
        self.floor = seq.next();
        self.push(seq, Admitted::default(), seq)
    }

    fn push(&mut self, seq: BatchSeq, mut admitted: Admitted, not_before: BatchSeq) -> BatchSeq {
        admitted.held = self.base < not_before;
        if admitted.held {
            self.held.push_back((seq, not_before));
        }
        self.window.push_back(Some(admitted));
        seq
    }

    /// Returns the number of the next transaction.
    pub fn next(&self) -> BatchSeq {
        BatchSeq(self.base.0 + self.window.len() as u64)
    }

    /// Returns the first uncommitted transaction.
    pub fn base(&self) -> BatchSeq {
        self.base
    }

    /// Returns how many rows of a transaction may be written by now, counted from its first row.
    pub fn safe_rows(&self, seq: BatchSeq) -> usize {
        self.free(seq).map_or(0, Admitted::safe_rows)
    }

    /// True if a transaction may begin: its first row is safe, or it has no rows.
    pub fn may_begin(&self, seq: BatchSeq) -> bool {
        let free = self.free(seq);
        free.is_some_and(|admitted| admitted.safe_rows() > 0 || admitted.rows == 0)
    }

    /// Records that a transaction is committed. Returns the transactions that can proceed further now.
    pub fn committed(&mut self, seq: BatchSeq) -> Vec<BatchSeq> {
        let Some(admitted) = self.slot(seq).and_then(Option::take) else {
            return Vec::new();
        };
        let mut released = Vec::new();
        self.queues.leave(seq, &admitted.keys, &mut released);
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.base = self.base.next();
        }
        let mut further = Vec::new();
        for at in released {
            if let Some(admitted) = self.slot(at.seq).and_then(Option::as_mut)
                && admitted.release(at.row)
                && !admitted.held
            {
                further.push(at.seq);
            }
        }
        let base = self.base;
        while let Some((seq, _)) = self.held.pop_front_if(|(_, after)| *after <= base) {
            if let Some(admitted) = self.slot(seq).and_then(Option::as_mut) {
                admitted.held = false;
                further.push(seq);
            }
        }
        further.sort_unstable();
        further.dedup();
        further
    }

    /// Returns an uncommitted transaction, if it is not held.
    fn free(&self, seq: BatchSeq) -> Option<&Admitted> {
        let place = seq.0.checked_sub(self.base.0)?;
        let admitted = self.window.get(usize::try_from(place).ok()?)?.as_ref()?;
        (!admitted.held).then_some(admitted)
    }

    fn slot(&mut self, seq: BatchSeq) -> Option<&mut Option<Admitted>> {
        let place = seq.0.checked_sub(self.base.0)?;
        self.window.get_mut(usize::try_from(place).ok()?)
    }
}

// The scheduler's state of one transaction: its keys and its waiting rows.

/// A waiting row, and the number of keys that it waits for.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    row: u32,
    keys: u32,
}

/// An uncommitted transaction.
#[derive(Debug, Default)]
struct Admitted {
    /// True if it waits until everything before some transaction is committed.
    held: bool,
    rows: u32,
    /// The keys of all rows, in order.
    keys: Vec<KeyHash>,
    /// Rows that had to wait when the transaction was added, in order.
    waiting: Vec<Waiting>,
    /// How many of the `waiting` rows, counted from the first, no longer wait.
    through: usize,
}

impl Admitted {
    /// Returns the number of rows before the first waiting row.
    fn safe_rows(&self) -> usize {
        let waiting = self.waiting.get(self.through);
        waiting.map_or(self.rows, |waiting| waiting.row) as usize
    }

    /// Counts one key less for which a row waits. Returns whether this makes more rows safe.
    fn release(&mut self, row: u32) -> bool {
        if let Ok(place) = self.waiting.binary_search_by_key(&row, |one| one.row) {
            self.waiting[place].keys = self.waiting[place].keys.saturating_sub(1);
        }
        let rest = self.waiting.iter().skip(self.through);
        let free = rest.take_while(|one| one.keys == 0).count();
        self.through += free;
        free > 0
    }
}

#[cfg(test)]
mod tests;

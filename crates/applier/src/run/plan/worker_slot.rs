//! What a worker holds, what it is asked to do, and what it says about it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Refusal, Then, Turn};
use crate::batch::{Batch, BatchSeq};
use crate::transaction::Transaction;

/// A worker, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// What a worker is asked to do on its session.
#[derive(Debug, Clone)]
pub enum Order {
    /// Writes rows of a batch; row 0 begins it.
    Write {
        /// The batch that the rows are of.
        batch: Arc<Batch>,
        /// Which of its rows are written now.
        rows: Range<usize>,
        /// Whether it stays open behind them or is committed.
        then: Then,
    },
    /// Writes the last rows of a batch that commits as one, or none, and commits it in its turn.
    InTurn {
        /// The batch that the rows are of.
        batch: Arc<Batch>,
        /// Which of its rows are written now; may be none.
        rows: Range<usize>,
        /// The batch whose commit it waits for.
        turn: Turn,
    },
    /// Commits the batch whose rows are written.
    Commit(Arc<Batch>),
    /// Applies the transactions of a batch from this one on, each committed before the next begins.
    Apply(Arc<Batch>, usize),
    /// Applies a transaction that has to run alone.
    Barrier(Arc<Transaction>),
    /// Takes the open transaction back.
    RollBack,
}

/// What became of an order.
#[derive(Debug)]
pub struct Report {
    /// Of the order's transactions, so many are committed, from the first on. Looked at when it was not done as a whole.
    pub committed: usize,
    /// Why it was not done as a whole: the transaction behind those is rolled back.
    pub failure: Option<Failure>,
}

impl Report {
    /// All of it was done.
    pub const DONE: Self = Self {
        committed: 0,
        failure: None,
    };
}

/// Why an order was not done.
#[derive(Debug)]
pub enum Failure {
    /// A deadlock, or a lock that was not had in time.
    Again(String),
    /// The session was lost; the worker has a new one.
    Reopened(String),
    /// The database refuses it, and would again.
    Refused(Box<Refusal>),
}

/// One batch in a worker's slot.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) seq: BatchSeq,
    /// Rows that the open transaction of the session has.
    pub(super) written: usize,
    /// Its transactions go one by one, when everything before it is committed.
    pub(super) one_by_one: bool,
    /// So many of its transactions are committed, one by one.
    pub(super) committed: usize,
    /// How often it began again after a failure.
    pub(super) attempts: u32,
    /// It goes on from here on.
    pub(super) not_before: Duration,
    /// It goes on when this one is committed.
    pub(super) after: Option<BatchSeq>,
    /// It goes on when everything before it is committed.
    pub(super) at_front_only: bool,
    /// It is to be taken back, for it is in the way of an earlier one.
    pub(super) steps_back: bool,
}

impl Held {
    pub(super) fn new(seq: BatchSeq) -> Self {
        Self {
            seq,
            written: 0,
            one_by_one: false,
            committed: 0,
            attempts: 0,
            not_before: Duration::ZERO,
            after: None,
            at_front_only: false,
            steps_back: false,
        }
    }
}

/// What a worker does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Write { upto: usize, then: Then },
    InTurn { upto: usize, turn: Turn },
    Commit,
    OneByOne,
    Barrier,
    RollBack,
}

impl Call {
    /// Whether it ends with a commit.
    pub(super) fn commits(self) -> bool {
        match self {
            Self::Write { then, .. } => then == Then::Commit,
            Self::InTurn { .. } | Self::Commit | Self::OneByOne | Self::Barrier => true,
            Self::RollBack => false,
        }
    }
}

/// A call that was not answered yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) call: Call,
    /// When to ask what holds it up, and how long to wait until the next time.
    pub(super) ask_at: Duration,
    pub(super) ask_again: Duration,
}

/// A worker as the plan knows it.
#[derive(Debug, Default)]
pub(super) struct WorkerSlot {
    pub(super) held: Option<Held>,
    pub(super) running: Option<Running>,
}

impl WorkerSlot {
    pub(super) fn is_free(&self) -> bool {
        self.held.is_none() && self.running.is_none()
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long a transaction pauses before it begins again for the `attempt`th time.
pub(super) fn pause(attempt: u32) -> Duration {
    let doubled = 1_u32.checked_shl(attempt.saturating_sub(1).min(16));
    FIRST_PAUSE
        .saturating_mul(doubled.unwrap_or(u32::MAX))
        .min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let pauses = [1, 2, 3, 8, 9, 1000].map(|attempt| pause(attempt).as_millis());
        assert_eq!(pauses, [1, 2, 4, 128, 200, 200]);
    }
}

//! A worker's batch, its orders, and its reports.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Refusal, Then, Turn};
use crate::batch::{Batch, BatchSeq};
use crate::transaction::Transaction;

/// A worker, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// A worker's order, for its session.
#[derive(Debug, Clone)]
pub enum Order {
    /// Writes rows of a batch; row 0 begins it.
    Write {
        /// The batch that the rows are of.
        batch: Arc<Batch>,
        /// The range of rows to write now.
        rows: Range<usize>,
        /// Whether it then stays open or is committed.
        then: Then,
    },
    /// Writes the last rows of a batch that commits as one, or none, and commits it in its turn.
    InTurn {
        /// The batch that the rows are of.
        batch: Arc<Batch>,
        /// The range of rows to write now; may be empty.
        rows: Range<usize>,
        /// Its predecessor in the order of commits.
        turn: Turn,
    },
    /// Commits the batch whose rows are written.
    Commit(Arc<Batch>),
    /// Applies the transactions of a batch from this one on, each committed before the next begins.
    Apply(Arc<Batch>, usize),
    /// Applies a transaction that has to run alone.
    Barrier(Arc<Transaction>),
    /// Rolls back the open transaction.
    RollBack,
}

/// Result of an order.
#[derive(Debug)]
pub struct Report {
    /// The number of the order's transactions that are committed, from the first on. Only used after a failure.
    pub committed: usize,
    /// Why the order was not completed: the transaction after those is rolled back.
    pub failure: Option<Failure>,
}

impl Report {
    /// All of it was done.
    pub const DONE: Self = Self {
        committed: 0,
        failure: None,
    };
}

/// Why an order failed.
#[derive(Debug)]
pub enum Failure {
    /// A deadlock, or a lock timeout.
    Again(String),
    /// The session was lost; the worker has a new one.
    Reopened(String),
    /// The database refuses it, and a retry would fail too.
    Refused(Box<Refusal>),
}

/// One batch in a worker's slot.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) seq: BatchSeq,
    /// Number of rows in the session's open transaction.
    pub(super) written: usize,
    /// Its transactions go one by one, when everything before it is committed.
    pub(super) one_by_one: bool,
    /// The number of its transactions committed one by one.
    pub(super) committed: usize,
    /// The number of retries.
    pub(super) attempts: u32,
    /// It pauses until this moment.
    pub(super) not_before: Duration,
    /// It pauses until this one is committed.
    pub(super) after: Option<BatchSeq>,
    /// It pauses until everything before it is committed.
    pub(super) at_front_only: bool,
    /// It must be rolled back, because it blocks an earlier one.
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

/// A worker's current call.
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

/// An unanswered call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) call: Call,
    /// When to query its blockers, and the wait until the next query.
    pub(super) ask_at: Duration,
    pub(super) ask_again: Duration,
}

/// The plan's state of a worker.
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

/// The pause of a transaction before its `attempt`th retry.
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

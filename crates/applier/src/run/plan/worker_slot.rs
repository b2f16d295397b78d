//! The state of one worker: its batch, its current order, and its report.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Then, WriteError};
use crate::batch::{Batch, BatchSeq};

/// A worker, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// An order to a worker.
#[derive(Debug, Clone)]
pub struct Order {
    /// The batch to work on.
    pub batch: Arc<Batch>,
    /// What to do with the batch.
    pub call: Call,
}

/// A call of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Writes rows of the batch.
    Write {
        /// The rows to write now; row 0 begins the batch.
        rows: Range<usize>,
        /// What to do after these rows.
        then: Then,
    },
    /// Applies the batch's transactions from this index on, and commits each before the next begins.
    Apply(usize),
    /// Applies a barrier.
    Barrier,
    /// Rolls back the open transaction.
    RollBack,
}

impl Call {
    /// True if the call ends with a commit.
    pub fn commits(&self) -> bool {
        match self {
            Self::Write { then, .. } => *then != Then::StayOpen,
            Self::Apply(_) | Self::Barrier => true,
            Self::RollBack => false,
        }
    }
}

/// The result of an order.
#[derive(Debug, Default)]
pub struct Report {
    /// After a failure: how many transactions of the order are committed, counted from the first. Ignored if there was no
    /// failure.
    pub committed: usize,
    /// Why the order was not completed. The transaction after the committed ones is rolled back. After `WriteError::Lost` the
    /// worker has a new session.
    pub failure: Option<WriteError>,
}

/// A worker's batch.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) seq: BatchSeq,
    /// Number of rows in the session's open transaction.
    pub(super) written: usize,
    /// Its transactions are committed one by one, after everything before the batch is committed.
    pub(super) one_by_one: bool,
    /// How many of its transactions are committed one by one so far.
    pub(super) committed: usize,
    /// The number of failed attempts.
    pub(super) attempts: u32,
    /// No order for this batch before this time.
    pub(super) not_before: Duration,
    /// No order for this batch before this other batch is committed.
    pub(super) after: Option<BatchSeq>,
    /// No order for this batch before everything before it is committed.
    pub(super) at_front_only: bool,
    /// The batch must be rolled back, because it blocks an earlier one.
    pub(super) rolls_back: bool,
}

/// A call that has not been answered.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) call: Call,
    /// When to query the sessions that block the call, and the time between two queries.
    pub(super) ask_at: Duration,
    pub(super) ask_again: Duration,
}

/// The state of one worker.
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

/// Returns the pause before the `attempt`th retry of a batch.
pub(super) fn pause(attempt: u32) -> Duration {
    let doubled = 1 << attempt.saturating_sub(1).min(16);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
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

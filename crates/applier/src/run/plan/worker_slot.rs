//! A worker's batch, its orders, and its reports.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Then, WriteError};
use crate::batch::{Batch, BatchSeq};

/// A worker, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// A worker's order for its session.
#[derive(Debug, Clone)]
pub struct Order {
    /// The batch that it is for.
    pub batch: Arc<Batch>,
    /// What to do with it.
    pub call: Call,
}

/// A call of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Writes rows of the batch.
    Write {
        /// The rows to write now; row 0 begins the batch.
        rows: Range<usize>,
        /// Whether it then stays open or is committed.
        then: Then,
    },
    /// Applies the transactions from this one on, each committed before the next begins.
    Apply(usize),
    /// Applies a transaction that has to run alone.
    Barrier,
    /// Rolls back the open transaction.
    RollBack,
}

impl Call {
    /// Whether it ends with a commit.
    pub fn commits(&self) -> bool {
        match self {
            Self::Write { then, .. } => *then != Then::StayOpen,
            Self::Apply(_) | Self::Barrier => true,
            Self::RollBack => false,
        }
    }
}

/// Result of an order.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of the order's transactions that are committed, from the first on. Only used after a failure.
    pub committed: usize,
    /// Why the order was not completed: the transaction after those is rolled back. After a lost session, the worker has a new
    /// one.
    pub failure: Option<WriteError>,
}

/// One batch in a worker's slot.
#[derive(Debug, Default)]
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
    pub(super) rolls_back: bool,
}

/// An unanswered call.
#[derive(Debug)]
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

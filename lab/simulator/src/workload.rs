//! The clients' workload, chosen by the seed: rates of writes and reads, sizes of transactions, and file rotations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use crate::dice::pick;

/// Clones share the transaction numbers, which are unique in a run.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// Maximum pause between two transactions of a primary.
    pub(crate) write_pause: Duration,
    /// Maximum pause between two reads at one member.
    pub(crate) read_pause: Duration,
    /// Maximum bytes of text in a transaction.
    pub(crate) largest: usize,
    /// One transaction in this many is large.
    pub(crate) large_one_in: usize,
    /// Maximum bytes of text in a large one: in some runs, more than is read, sent or cached at a time.
    pub(crate) largest_of_all: usize,
    /// One entry in this many ends the log's file.
    pub(crate) rotate_one_in: u32,
    next: Arc<AtomicU64>,
}

impl Workload {
    pub(crate) fn choose(dice: &mut Rng) -> Self {
        Self {
            write_pause: Duration::from_millis(dice.u64(20..200)),
            read_pause: Duration::from_millis(dice.u64(40..300)),
            largest: dice.usize(10..600),
            large_one_in: *pick(dice, &[8, 30, 100]),
            largest_of_all: *pick(dice, &[600, 8_000, 40_000]),
            rotate_one_in: dice.u32(4..40),
            next: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The number of the next transaction.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

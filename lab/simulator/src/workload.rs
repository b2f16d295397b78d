//! The clients' workload, chosen by the seed: rates of writes and reads, sizes of transactions, and file rotations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use crate::dice::pick;

/// The clients' workload. Clones share the transaction numbers, which are unique in a run.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// The maximum pause between two transactions at a primary.
    pub(crate) write_pause: Duration,
    /// The maximum pause between two reads at a member.
    pub(crate) read_pause: Duration,
    /// The maximum size of a transaction's text, in bytes.
    pub(crate) largest: usize,
    /// One in this many transactions is large.
    pub(crate) large_one_in: usize,
    /// The maximum size of a large transaction's text, in bytes. In some runs this is more than is read, sent or cached at a time.
    pub(crate) largest_of_all: usize,
    /// One in this many entries is a rotate entry, which ends the log file.
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

    /// Returns the number of the next transaction.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

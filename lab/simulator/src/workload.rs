//! What clients do, chosen by the seed: how often they write and read, how large transactions are, how often the log begins
//! a new file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use crate::dice::pick;

/// Clones share the numbers of transactions, which are unique in a run.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// The longest pause between two transactions of a primary.
    pub(crate) write_pause: Duration,
    /// The longest pause between two reads at one member.
    pub(crate) read_pause: Duration,
    /// Bytes of text in a transaction, at most.
    pub(crate) largest: usize,
    /// One transaction of so many is a large one.
    pub(crate) large_one_in: usize,
    /// Bytes of text in a large one, at most: more than is read, sent or cached at once in some runs.
    pub(crate) largest_of_all: usize,
    /// One entry of so many ends the log's file.
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

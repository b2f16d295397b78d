//! How many transactions a second the scheduler takes in, releases and forgets, on one core and without anything else.
//! C5-MyRocks's did 95,683 (section 6.2 of the paper, inserts of unique rows).

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use applier::backend::Finished;
use applier::keys::{Access, KeyAccess, KeyHash};
use applier::scheduler::{Policy, Scheduler};
use applier::transaction::Seq;

/// Transactions that are open at once.
const OPEN: usize = 1_000;

/// Transactions a second, each of so many inserts of unique rows: the table's key shared, the row's own exclusive.
pub(crate) fn transactions_per_second(policy: Policy, rows: usize, transactions: usize) -> f64 {
    let logs: Vec<Vec<[KeyAccess; 2]>> = (0..transactions)
        .map(|number| (0..rows).map(|row| keys(number * rows + row)).collect())
        .collect();
    let mut scheduler = Scheduler::new(policy, Finished::AtCommit, Seq(1));
    let mut open = VecDeque::with_capacity(OPEN);
    let begin = Instant::now();
    for rows in &logs {
        open.push_back(scheduler.admit(rows.iter().map(<[KeyAccess; 2]>::as_slice)));
        if open.len() == OPEN {
            finish(&mut scheduler, open.pop_front());
        }
    }
    while !open.is_empty() {
        finish(&mut scheduler, open.pop_front());
    }
    transactions as f64 / begin.elapsed().as_secs_f64()
}

fn finish(scheduler: &mut Scheduler, seq: Option<Seq>) {
    let Some(seq) = seq else { return };
    let safe = scheduler.safe_rows(seq);
    black_box(scheduler.row_written(seq, safe));
    black_box(scheduler.committed(seq));
}

fn keys(row: usize) -> [KeyAccess; 2] {
    // Well spread, as hashes are.
    let hash = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [
        KeyAccess {
            key: KeyHash(7),
            access: Access::Shared,
        },
        KeyAccess {
            key: KeyHash(hash),
            access: Access::Exclusive,
        },
    ]
}

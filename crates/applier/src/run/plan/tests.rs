//! Tests the plan with small logs. Each worker's orders are written as text.
//!
//! The number before the colon is the worker. `0:w1[0..2]` writes rows 0 and 1 of transaction 1, `0:W1[0..2]` writes and commits them,
//! and `0:W1[2..2]` only commits. `0:a1-3` applies transactions 1 to 3 one by one. `0:f1[0..2]` and `0:n1-3[0..4]` commit a batch in
//! its turn, as the first or the next. `0:b1` applies a barrier, and `0:r` rolls back.

use std::time::Duration;

use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};

use super::*;
use crate::backend::{Turn, WriteError};
use crate::keys::{Access, KeyAccess, KeyHash};
use crate::transaction::{Barrier, BarrierEnd, Body, RowChanges, RowWrite, SchemaChange, Seq};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn transaction(seq: u64, body: Body) -> Arc<Transaction> {
    Arc::new(Transaction {
        seq: Seq(seq),
        gtid: Gtid {
            source: SourceId::from_bytes([7; SourceId::LEN]),
            tag: Tag::NONE,
            gno: Gno::new(seq).unwrap(),
        },
        immediate_commit: None,
        original_commit: None,
        original_version: None,
        bytes: 10,
        body,
    })
}

/// Creates a row for each word of `text`; the word, a single letter, is the row's exclusive key.
fn rows(text: &str) -> Body {
    let keys = text.split_whitespace().map(|name| KeyAccess {
        key: KeyHash(u64::from(name.as_bytes()[0])),
        access: Access::Exclusive,
    });
    let keys: Vec<KeyAccess> = keys.collect();
    let rows = (0..keys.len() as u32).map(|at| RowWrite {
        event: 0,
        images: 0..0,
        joinable_after: None,
        keys: at..at + 1,
    });
    Body::Rows(RowChanges {
        rows: rows.collect(),
        keys,
        ..RowChanges::default()
    })
}

#[test]
fn pieces_of_a_batch_are_per_transaction() {
    let transactions = [(1, "a b"), (2, "c"), (3, "d e f")];
    let transactions = transactions.map(|(seq, keys)| transaction(seq, rows(keys)));
    let batch = Batch::new(BatchSeq(1), Commits::AsOne, transactions.to_vec());
    let pieces = |rows| {
        let pieces = batch.pieces(rows);
        let pieces = pieces.map(|(_, piece)| (piece.start, piece.end));
        pieces.collect::<Vec<_>>()
    };
    assert_eq!(pieces(0..6), [(0, 2), (0, 1), (0, 3)]);
    assert_eq!(pieces(1..2), [(1, 2)]);
    assert_eq!(pieces(1..3), [(1, 2), (0, 1)]);
    assert_eq!(pieces(3..5), [(0, 2)]);
    assert_eq!(pieces(6..6), []);
}

struct Table {
    plan: Plan,
    next: u64,
    now: Duration,
}

impl Table {
    fn new(workers: usize, change: fn(&mut Options)) -> Self {
        let mut options = Options {
            workers,
            ..Options::default()
        };
        change(&mut options);
        Self {
            plan: Plan::new(&options, BatchSeq(1), false),
            next: 1,
            now: Duration::ZERO,
        }
    }

    fn admit(&mut self, rows_of_each: &[&str]) {
        for text in rows_of_each {
            let body = match *text {
                "barrier" => Body::Barrier(Barrier {
                    context: None,
                    steps: Vec::new(),
                    end: BarrierEnd::ByItself,
                    changes: SchemaChange::Anything,
                    without_transactions: Vec::new(),
                }),
                text => rows(text),
            };
            self.plan.admit(transaction(self.next, body));
            self.next += 1;
        }
    }

    #[track_caller]
    fn orders(&mut self, expected: &str) {
        let orders = self.plan.orders(self.now);
        let shown_orders: Vec<String> = orders
            .iter()
            .map(|(worker, order)| format!("{}:{}", worker.0, shown(order)))
            .collect();
        assert_eq!(shown_orders.join(" "), expected);
    }

    #[track_caller]
    fn done(&mut self, worker: usize, committed: &[u64]) {
        self.reported(worker, Report::default(), committed);
    }

    #[track_caller]
    fn reported(&mut self, worker: usize, report: Report, committed: &[u64]) {
        let found = self.plan.report(WorkerId(worker), report, self.now);
        let found: Vec<u64> = found.iter().map(|transaction| transaction.seq.0).collect();
        assert_eq!(found, committed);
    }
}

fn shown(Order { batch, call }: &Order) -> String {
    match call {
        Call::Write { rows, then } => {
            let letter = match then {
                Then::StayOpen => "w",
                Then::Commit => "W",
                Then::InTurn(Turn::First) => "f",
                Then::InTurn(Turn::Next) => "n",
            };
            format!("{letter}{}[{rows:?}]", names(batch, 0))
        }
        Call::Apply(from) => format!("a{}", names(batch, *from)),
        Call::Barrier => format!("b{}", names(batch, 0)),
        Call::RollBack => "r".to_owned(),
    }
}

fn names(batch: &Batch, from: usize) -> String {
    match &batch.transactions()[from..] {
        [one] => one.seq.0.to_string(),
        all => format!("{}-{}", all[0].seq.0, all[all.len() - 1].seq.0),
    }
}

fn again() -> Report {
    Report {
        committed: 0,
        failure: Some(WriteError::Again("deadlock".into())),
    }
}

fn refused(committed: usize) -> Report {
    let refusal = Refusal {
        table: None,
        row: None,
        code: 1062,
        message: "duplicate".to_owned(),
    };
    Report {
        committed,
        failure: Some(WriteError::Refused(Box::new(refusal))),
    }
}

#[test]
fn rows_are_written_concurrently_and_committed_in_order() {
    let mut table = Table::new(3, |_| {});
    table.admit(&["a h", "b h", "c h"]);
    table.orders("0:W1[0..2] 1:w2[0..1] 2:w3[0..1]");
    table.done(2, &[]);
    table.done(1, &[]);
    table.orders("");
    table.done(0, &[1]);
    table.orders("1:W2[1..2]");
    table.done(1, &[2]);
    table.orders("2:W3[1..2]");
    table.done(2, &[3]);
    assert_eq!(table.plan.depth, 0);
}

#[test]
fn a_finished_transaction_waits_for_its_turn() {
    let mut table = Table::new(2, |_| {});
    table.admit(&["a", "b"]);
    table.orders("0:W1[0..1] 1:w2[0..1]");
    table.done(1, &[]);
    table.orders("");
    table.done(0, &[1]);
    table.orders("1:W2[1..1]");
}

#[test]
fn a_barrier_is_alone() {
    let mut table = Table::new(3, |_| {});
    table.admit(&["a", "barrier", "b", "c"]);
    table.orders("0:W1[0..1]");
    table.done(0, &[1]);
    table.orders("0:b2");
    table.done(0, &[2]);
    table.orders("0:W3[0..1] 1:w4[0..1]");
}

#[test]
fn blockers_roll_back_until_the_earlier_transaction_commits() {
    let mut table = Table::new(3, |_| {});
    table.admit(&["a b", "c", "d a"]);
    table.orders("0:W1[0..2] 1:w2[0..1] 2:w3[0..1]");
    table.done(1, &[]);
    table.orders("");
    assert_eq!(table.plan.stalled(MS(49)), None);
    assert_eq!(table.plan.stalled(MS(50)), Some((WorkerId(0), BatchSeq(1))));
    assert_eq!(table.plan.stalled(MS(100)), None, "not asked twice");
    table
        .plan
        .blocked_by(BatchSeq(1), &[WorkerId(1), WorkerId(2)]);
    table.now = MS(60);
    // The third transaction is still in its call, and is rolled back after the call.
    table.orders("1:r");
    table.done(2, &[]);
    table.done(1, &[]);
    table.orders("2:r");
    table.done(2, &[]);
    table.orders("");
    table.done(0, &[1]);
    table.orders("1:W2[0..1] 2:w3[0..2]");
    assert_eq!(table.plan.step_backs, 2);
}

/// The plan also works with a database that does not report which session blocks which.
#[test]
fn later_transactions_roll_back_when_the_first_fails_again() {
    let mut table = Table::new(3, |_| {});
    table.admit(&["a", "b", "c"]);
    table.orders("0:W1[0..1] 1:w2[0..1] 2:w3[0..1]");
    table.done(1, &[]);
    table.done(2, &[]);
    table.reported(0, again(), &[]);
    table.now = MS(100);
    table.orders("0:W1[0..1]");
    table.reported(0, again(), &[]);
    table.now = MS(200);
    table.orders("0:W1[0..1] 1:r 2:r");
    table.done(1, &[]);
    table.done(2, &[]);
    table.orders("");
    table.done(0, &[1]);
    table.orders("1:W2[0..1] 2:w3[0..1]");
    table.done(1, &[2]);
    // Only the first uncommitted transaction may cause rollbacks of others.
    table.orders("");
    table.done(2, &[]);
    table.orders("2:W3[1..1]");
}

#[test]
fn a_refused_transaction_is_retried_at_the_front() {
    let mut table = Table::new(2, |options| options.batch.transactions = 1);
    table.admit(&["a", "b", "c"]);
    table.orders("0:W1[0..1] 1:w2[0..1]");
    table.reported(1, refused(0), &[]);
    table.orders("");
    assert!(table.plan.refused().is_none());
    table.done(0, &[1]);
    table.orders("1:W2[0..1] 0:w3[0..1]");
    table.reported(1, refused(0), &[]);
    let refused = table.plan.refused().map(|(transaction, _)| transaction.seq);
    assert_eq!(refused, Some(Seq(2)));
    table.done(0, &[]);
    table.orders("0:r");
    table.done(0, &[]);
    table.orders("");
    assert!(!table.plan.is_busy());
}

#[test]
fn while_held_only_begun_transactions_proceed() {
    let mut table = Table::new(3, |options| options.batch.transactions = 1);
    table.admit(&["a", "a", "b", "c", "d"]);
    table.orders("0:W1[0..1] 1:w3[0..1] 2:w4[0..1]");
    table.plan.set_paused(true);
    table.done(1, &[]);
    table.done(2, &[]);
    table.done(0, &[1]);
    table.orders("0:W2[0..1]");
    table.done(0, &[2]);
    table.orders("1:W3[1..1]");
    table.done(1, &[3]);
    table.orders("2:W4[1..1]");
    table.done(2, &[4]);
    table.orders("");
    table.plan.set_paused(false);
    table.orders("0:W5[0..1]");
}

#[test]
fn a_stop_rolls_back_transactions_that_need_unbegun_ones() {
    let mut table = Table::new(4, |options| options.batch.transactions = 1);
    table.admit(&["a", "a", "b", "c", "d"]);
    table.orders("0:W1[0..1] 1:w3[0..1] 2:w4[0..1] 3:w5[0..1]");
    table.done(1, &[]);
    table.plan.stop();
    // A transaction within a call may also wait for an open one.
    table.orders("1:r");
    table.done(2, &[]);
    table.done(0, &[1]);
    table.orders("2:r");
    table.done(1, &[]);
    table.done(2, &[]);
    table.done(3, &[]);
    table.orders("3:r");
    table.done(3, &[]);
    table.orders("");
    assert!(!table.plan.is_busy());
}

#[test]
fn a_rate_limits_what_begins() {
    let mut table = Table::new(3, |_| {});
    table.plan.set_rate(Some(100.0), MS(0));
    table.admit(&["a", "b", "c"]);
    table.orders("");
    table.now = table.plan.next_moment(MS(0)).unwrap();
    assert_eq!(table.now.as_millis(), 10);
    table.orders("0:W1[0..1]");
    table.orders("");
    table.now += MS(20);
    table.orders("1:w2[0..1] 2:w3[0..1]");
}

#[test]
fn one_worker_applies_a_batch_one_by_one_and_resumes_at_the_failure() {
    let mut table = Table::new(1, |_| {});
    table.admit(&["z"]);
    table.orders("0:W1[0..1]");
    table.admit(&["a", "a", "b", "a"]);
    table.done(0, &[1]);
    table.orders("0:a2-5");
    let mut report = again();
    report.committed = 2;
    table.reported(0, report, &[2, 3]);
    assert_eq!(table.plan.front().map(|front| front.seq), Some(Seq(4)));
    table.orders("");
    assert_eq!(table.plan.next_moment(table.now), Some(MS(1)));
    table.now = MS(1);
    table.orders("0:a4-5");
    table.done(0, &[4, 5]);
    assert_eq!(table.plan.retries, 1);
    assert_eq!(table.plan.depth, 0);
}

#[test]
fn no_blockers_are_queried_without_a_later_open_transaction() {
    let mut table = Table::new(2, |_| {});
    table.admit(&["a", "a"]);
    table.orders("0:W1[0..1]");
    assert_eq!(table.plan.stalled(MS(500)), None);
}

/// Creates a table whose batches commit as one.
fn as_one(workers: usize) -> Table {
    let mut table = Table::new(workers, |options| options.batch.transactions = 3);
    table.plan.passing = Passing::new(true);
    table
}

#[test]
fn a_single_transaction_begins_immediately_and_later_ones_share_a_batch() {
    let mut table = as_one(1);
    table.admit(&["a"]);
    table.orders("0:f1[0..1]");
    table.admit(&["b", "a c"]);
    table.orders("");
    assert_eq!(
        table.plan.first_waiting().map(|first| first.seq),
        Some(Seq(2))
    );
    table.done(0, &[1]);
    table.orders("0:f2-3[0..3]");
    table.done(0, &[2, 3]);
    table.orders("");
    assert_eq!(table.plan.depth, 0);
}

#[test]
fn a_batch_is_full_at_its_limits_and_ends_before_a_barrier() {
    let mut table = as_one(1);
    table.admit(&["a", "b", "c", "d", "barrier", "e"]);
    table.orders("0:f1-3[0..3]");
    table.done(0, &[1, 2, 3]);
    table.orders("0:f4[0..1]");
    table.done(0, &[4]);
    table.orders("0:b5");
    table.done(0, &[5]);
    table.orders("0:f6[0..1]");
    table.done(0, &[6]);
    table.plan.batch.bytes = 25;
    table.admit(&["a", "b", "c"]);
    table.orders("0:f7-8[0..2]");
}

/// Writes of one key within a batch do not conflict. Two batches are written concurrently up to the first row that they have in
/// common.
#[test]
fn batches_are_written_concurrently_row_by_row() {
    let mut table = as_one(2);
    table.admit(&["a h", "a", "b", "c", "h", "h d"]);
    table.orders("0:f1-3[0..4] 1:w4-6[0..1]");
    table.plan.passing.taken(BatchSeq(1));
    table.done(1, &[]);
    table.orders("");
    table.done(0, &[1, 2, 3]);
    table.orders("1:f4-6[1..4]");
}

#[test]
fn a_refused_batch_is_applied_one_by_one_at_the_front() {
    let mut table = as_one(2);
    table.admit(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    table.orders("0:f1-3[0..3] 1:w4-6[0..3]");
    table.reported(1, refused(0), &[]);
    table.orders("");
    table.done(0, &[1, 2, 3]);
    table.orders("1:a4-6 0:w7-9[0..3]");
    table.done(0, &[]);
    table.reported(1, refused(1), &[4]);
    let refused = table.plan.refused().map(|(transaction, _)| transaction.seq);
    assert_eq!(refused, Some(Seq(5)));
    table.orders("0:r");
}

#[test]
fn a_batch_applied_one_by_one_clears_its_refusal() {
    let mut table = as_one(1);
    table.admit(&["a", "b"]);
    table.orders("0:f1-2[0..2]");
    table.reported(0, refused(0), &[]);
    table.orders("0:a1-2");
    table.done(0, &[1, 2]);
    table.admit(&["c"]);
    table.orders("0:f3[0..1]");
    assert!(table.plan.refused().is_none());
}

#[test]
fn a_lost_session_whose_commit_had_happened_is_not_applied_again() {
    let mut table = as_one(1);
    table.admit(&["a", "b"]);
    table.orders("0:f1-2[0..2]");
    let report = |committed| Report {
        committed,
        failure: Some(WriteError::Lost("gone".into())),
    };
    table.reported(0, report(0), &[]);
    table.orders("0:f1-2[0..2]");
    table.reported(0, report(2), &[1, 2]);
    assert_eq!(table.plan.depth, 0);
}

#[test]
fn a_gathered_batch_is_split_when_a_rate_is_set() {
    let mut table = as_one(1);
    table.plan.set_paused(true);
    table.admit(&["a", "b"]);
    table.orders("");
    table.plan.set_rate(Some(20.0), MS(0));
    table.plan.set_paused(false);
    table.now = MS(50);
    table.orders("0:f1[0..1]");
    table.done(0, &[1]);
    table.orders("");
    table.now = MS(100);
    table.orders("0:f2[0..1]");
}

#[test]
fn a_low_rate_makes_no_large_batches() {
    let mut table = as_one(1);
    table.plan.set_rate(Some(40.0), MS(0));
    table.admit(&["a", "b", "c", "d"]);
    table.orders("");
    table.now = MS(50);
    table.orders("0:f1-2[0..2]");
    table.done(0, &[1, 2]);
    table.orders("");
    table.now = MS(100);
    table.orders("0:f3-4[0..2]");
}

/// Creates a table with batches of one transaction, which commit in their turn.
fn with_turns(workers: usize) -> Table {
    let mut table = Table::new(workers, |options| options.batch.transactions = 1);
    table.plan.passing = Passing::new(true);
    table
}

#[test]
fn the_next_one_commits_when_the_turn_before_it_is_taken() {
    let mut table = with_turns(3);
    table.admit(&["a", "b", "c", "d", "e", "f"]);
    table.orders("0:f1[0..1] 1:w2[0..1] 2:w3[0..1]");
    table.done(2, &[]);
    table.done(1, &[]);
    table.orders("");
    table.plan.passing.taken(BatchSeq(1));
    table.orders("1:n2[1..1]");
    table.orders("");
    table.plan.passing.taken(BatchSeq(2));
    table.orders("2:n3[1..1]");
    // Reports may arrive in any order.
    table.done(1, &[2]);
    table.orders("1:w4[0..1]");
    table.plan.passing.taken(BatchSeq(3));
    table.done(1, &[]);
    table.orders("1:n4[1..1]");
    table.done(0, &[1]);
    table.done(2, &[3]);
    table.orders("0:w5[0..1] 2:w6[0..1]");
    table.plan.passing.taken(BatchSeq(4));
    table.done(0, &[]);
    table.orders("0:n5[1..1]");
}

#[test]
fn no_batch_follows_one_that_failed_after_its_turn() {
    let mut table = with_turns(2);
    table.admit(&["a", "b", "c", "d", "e"]);
    table.orders("0:f1[0..1] 1:w2[0..1]");
    table.done(1, &[]);
    table.plan.passing.taken(BatchSeq(1));
    table.reported(0, again(), &[]);
    table.orders("");
    table.now = MS(1);
    table.orders("0:f1[0..1]");
    // The turn had already been requested, and the database refused it.
    table.plan.passing.taken(BatchSeq(1));
    table.orders("1:n2[1..1]");
    table.reported(0, again(), &[]);
    table.reported(1, again(), &[]);
    table.now = MS(10);
    table.orders("0:f1[0..1] 1:w2[0..1]");
    table.done(1, &[]);
    table.orders("");
    table.plan.passing.taken(BatchSeq(1));
    table.orders("1:n2[1..1]");
    table.done(0, &[1]);
    table.done(1, &[2]);
}

#[test]
fn barriers_and_held_batches_commit_one_by_one() {
    let mut table = with_turns(2);
    table.admit(&["a", "b", "barrier", "c", "c"]);
    table.orders("0:f1[0..1] 1:w2[0..1]");
    table.done(1, &[]);
    table.plan.passing.taken(BatchSeq(1));
    table.orders("1:n2[1..1]");
    table.plan.passing.taken(BatchSeq(2));
    table.done(1, &[2]);
    table.orders("");
    table.done(0, &[1]);
    table.orders("0:b3");
    table.done(0, &[3]);
    table.orders("0:f4[0..1]");
    table.done(0, &[4]);
    table.orders("0:f5[0..1]");
}

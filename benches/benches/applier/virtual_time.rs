//! C5's adversarial workload in virtual time. Every transaction inserts n rows, then updates one row that all transactions update (the hot
//! row). Primary and backup each have m threads, a cost for each row write, and a cost for each commit. Nothing else takes time.
//!
//! * **The primary** uses two-phase locking. The inserts of m transactions run in parallel. The update waits for the row's lock, in FIFO
//!   order, and keeps the lock until the commit is done. The log has this order.
//! * **The backup** is this project's plan with the real scheduler. A worker's call takes the time of its rows and its commit. Commits are
//!   in the log's order.
//!
//! Let w be the cost of a row write and c the cost of a commit. If the hot row limits the primary, the primary completes a transaction
//! every w + c. A policy that runs conflicting transactions sequentially completes one every (n + 1) w + c. Its throughput relative to
//! the primary's is (w + c) / ((n + 1) w + c). It is at least 1/m, because the primary's cores limit the primary as well. Only c / w
//! depends on the machine.
//!
//! With c = 0, which is the model of the paper's proof with d = e, this ratio approaches 1/m = 0.05. The paper measured 0.40 with 128
//! inserts (Figure 11) and 0.38 with 64 (Figure 7). Solved for c, these are 84 w and 38 w, the values of `COMMITS`. So the end of each
//! curve is given; its shape and the curve of `rows` are results. Figure 7 begins lower (0.70 with one insert), which the cost of a commit
//! does not explain.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use applier::backend::Then;
use applier::batch::BatchSeq;
use applier::keys::{Access, KeyAccess, KeyHash};
use applier::run::Options;
use applier::run::plan::{Call as Task, Order, Plan, Report, WorkerId};
use applier::scheduler::Policy;
use applier::transaction::{Body, RowChanges, RowWrite, Seq, Transaction};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};

/// The number of threads, m in the paper.
pub(crate) const THREADS: usize = 20;
/// The numbers of inserts in a transaction, n.
pub(crate) const INSERTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The costs of a commit, in row writes. The picture uses the first one.
pub(crate) const COMMITS: [u64; 3] = [84, 38, 0];

/// The duration of a row write. Only ratios matter. The whole log must end before the plan's first measurement of a single worker.
const WRITE: Duration = Duration::from_nanos(1);
/// How many transactions the backup reads ahead.
const AHEAD: usize = 400;

/// The costs of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// The cost of a commit, in row writes.
    pub(crate) commit: u64,
}

impl Costs {
    fn of(self, rows: usize, commits: usize) -> Duration {
        WRITE * u32::try_from(rows as u64 + commits as u64 * self.commit).unwrap_or(u32::MAX)
    }
}

/// Computes the throughput in the steady state from the times of commits, in transactions per second of virtual time. Threads that begin
/// together proceed in rounds, so only whole rounds are counted.
fn throughput(commits: &[Duration]) -> Result<f64> {
    let last = commits.len().saturating_sub(1);
    let counted = last / 2 / THREADS * THREADS;
    match (commits.get(last - counted), commits.get(last)) {
        (Some(first), Some(last)) if last > first => {
            Ok(counted as f64 / (*last - *first).as_secs_f64())
        }
        _ => bail!("too few transactions"),
    }
}

/// Computes the primary's throughput.
pub(crate) fn primary(inserts: usize, costs: Costs, transactions: usize) -> Result<f64> {
    let mut threads: BinaryHeap<Reverse<Duration>> = (0..THREADS)
        .map(|_| Reverse(costs.of(inserts, 0)))
        .collect();
    let mut free = Duration::ZERO;
    let mut commits = Vec::new();
    // The lock is FIFO, so transactions can be processed in the order in which they request it.
    while commits.len() < transactions
        && let Some(Reverse(asks)) = threads.pop()
    {
        free = free.max(asks) + costs.of(1, 1);
        commits.push(free);
        threads.push(Reverse(free + costs.of(inserts, 0)));
    }
    throughput(&commits)
}

/// A worker's current call.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    ends: Duration,
    worker: WorkerId,
    /// The times of the commits in this call.
    commits: Vec<Duration>,
}

/// Computes the throughput of a backup that locks rows until the commit, for a log that is complete from the beginning.
pub(crate) fn backup(
    policy: Policy,
    inserts: usize,
    costs: Costs,
    transactions: usize,
) -> Result<f64> {
    let options = Options {
        policy,
        workers: THREADS,
        // No write waits for a lock that the scheduler does not track.
        stall_after: Duration::from_secs(1_000_000),
        ..Options::default()
    };
    let mut plan = Plan::new(&options, BatchSeq(1), false);
    let mut calls = BinaryHeap::new();
    let mut now = Duration::ZERO;
    let mut next = Seq(1);
    let mut commits = Vec::new();
    while commits.len() < transactions {
        while plan.depth < AHEAD {
            plan.admit(Arc::new(transaction(next, inserts)?));
            next = next.next();
        }
        for (worker, order) in plan.orders(now) {
            calls.push(Reverse(call(worker, &order, now, costs)));
        }
        let Some(Reverse(call)) = calls.pop() else {
            bail!("the plan makes no progress");
        };
        now = call.ends;
        plan.report(call.worker, Report::default(), now);
        commits.extend(call.commits);
    }
    throughput(&commits)
}

fn call(worker: WorkerId, order: &Order, now: Duration, costs: Costs) -> Call {
    let steps: Vec<(usize, bool)> = match &order.call {
        Task::Write { rows, then } => vec![(rows.len(), *then != Then::StayOpen)],
        Task::Barrier => vec![(0, true)],
        Task::Apply(from) => order.batch.transactions()[*from..]
            .iter()
            .map(|one| (rows_of(one), true))
            .collect(),
        Task::RollBack => Vec::new(),
    };
    let mut ends = now;
    let mut commits = Vec::new();
    for (rows, commit) in steps {
        ends += costs.of(rows, usize::from(commit));
        commits.extend(commit.then_some(ends));
    }
    Call {
        ends,
        worker,
        commits,
    }
}

fn rows_of(transaction: &Transaction) -> usize {
    match &transaction.body {
        Body::Rows(changes) => changes.rows.len(),
        Body::Barrier(_) => 0,
    }
}

/// The key of the hot row. The keys of inserted rows are higher.
const HOT: u64 = 1;

fn transaction(seq: Seq, inserts: usize) -> Result<Transaction> {
    let first = seq.0 * 1_000;
    let own = (first..).take(inserts);
    let keys = own.chain([HOT]).map(|key| KeyAccess {
        key: KeyHash(key),
        access: Access::Exclusive,
    });
    let rows = (0..=inserts as u32).map(|at| RowWrite {
        event: 0,
        images: 0..0,
        joinable_after: None,
        keys: at..at + 1,
    });
    let Some(gno) = Gno::new(seq.0) else {
        bail!("no such GTID");
    };
    Ok(Transaction {
        seq,
        gtid: Gtid {
            source: SourceId::from_bytes([1; SourceId::LEN]),
            tag: Tag::NONE,
            gno,
        },
        immediate_commit: None,
        original_commit: None,
        original_version: None,
        bytes: 100,
        body: Body::Rows(RowChanges {
            rows: rows.collect(),
            keys: keys.collect(),
            ..RowChanges::default()
        }),
    })
}

//! Progress of a run: counters that any task may read at any time, and the resulting lag.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use binlog_format::events::CommitTimestamp;
use binlog_format::gtid::Gtid;

use crate::locked;
use crate::schema::TableName;
use crate::transaction::{Body, Seq, Transaction};

/// The stages that a transaction passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StageName {
    /// The transaction was received from the source, and is decoded.
    Received,
    /// A worker has begun the transaction.
    Scheduled,
    /// The transaction is committed in the target.
    Committed,
}

impl StageName {
    /// All stages, in order.
    pub const ALL: [Self; 3] = [Self::Received, Self::Scheduled, Self::Committed];

    /// Returns the stage's name in metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Scheduled => "scheduled",
            Self::Committed => "committed",
        }
    }
}

/// Counters of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// The number of transactions that have passed the stage.
    pub transactions: u64,
    /// The number of row writes that have passed the stage.
    pub rows: u64,
    /// The bytes of the transactions that have passed the stage.
    pub bytes: u64,
    /// The last transaction that has passed the stage, by the log's order.
    pub last: Option<Gtid>,
    /// When the server that wrote the log committed the transaction `last`.
    pub last_commit: Option<CommitTimestamp>,
}

#[derive(Debug, Default)]
struct Stage {
    passed: Mutex<(Seq, Passed)>,
    /// The first received transaction that has not passed the stage.
    waiting: Mutex<Option<Unpassed>>,
}

/// A transaction that has not passed a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpassed {
    /// Its GTID.
    pub gtid: Gtid,
    /// When the server that wrote the log committed the transaction, by that server's clock; `None` if the log has no
    /// timestamp.
    pub committed: Option<CommitTimestamp>,
}

impl Unpassed {
    /// Returns the transaction's age by its timestamp; zero if the timestamp is in the future, `None` if there is no
    /// timestamp.
    pub fn age(&self, now: CommitTimestamp) -> Option<Duration> {
        let committed = self.committed?;
        Some(Duration::from_micros(now.0.saturating_sub(committed.0)))
    }
}

/// The first transaction for which a stage lags the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagStart {
    /// No lag: the source had nothing more.
    Nothing,
    /// The first received transaction that has not passed the stage. If all received transactions have passed and the
    /// source has more, the last received one, since the next one is unknown.
    From(Unpassed),
    /// Unknown: the source has transactions, and none was received yet.
    Unknown,
}

/// Tables that an operator should know about. All runs with the same remarks share this list.
#[derive(Debug, Default)]
pub struct TableRemarks {
    pub(super) without_primary_key: Mutex<BTreeSet<TableName>>,
    pub(super) without_transactions: Mutex<BTreeSet<TableName>>,
}

impl TableRemarks {
    /// Returns written tables without a primary key. Their writes are applied sequentially.
    pub fn without_primary_key(&self) -> Vec<TableName> {
        locked(&self.without_primary_key).iter().cloned().collect()
    }

    /// Returns written tables of engines without transactions. Their changes cannot be rolled back.
    pub fn without_transactions(&self) -> Vec<TableName> {
        locked(&self.without_transactions).iter().cloned().collect()
    }
}

/// Counters of a run that do not belong to one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that the target already had.
    pub skipped: u64,
    /// Batches retried after a deadlock, a lock timeout, or a lost session.
    pub retries: u64,
    /// Batches rolled back because they blocked an earlier batch.
    pub step_backs: u64,
    /// How often the reader had to wait because the window was full.
    pub window_waits: u64,
    /// The number of transactions that are in the window now.
    pub window_transactions: u64,
}

/// Progress of a run.
#[derive(Debug, Default)]
pub struct Progress {
    /// In the order of [`StageName::ALL`].
    stages: [Stage; 3],
    drained: AtomicBool,
    counts: Mutex<Counts>,
    remarks: Arc<TableRemarks>,
}

impl Progress {
    /// Creates the progress of a run that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Self::new`], for a further run with the remarks of earlier ones.
    pub fn with_remarks(remarks: Arc<TableRemarks>) -> Self {
        Self {
            remarks,
            ..Self::default()
        }
    }

    /// Counters of a stage.
    pub fn passed(&self, stage: StageName) -> Passed {
        locked(&self.stage(stage).passed).1
    }

    /// Returns the first transaction for which a stage lags the source.
    pub fn lag_start(&self, stage: StageName) -> LagStart {
        if let Some(first) = *locked(&self.stage(stage).waiting) {
            return LagStart::From(first);
        }
        let received = self.passed(StageName::Received);
        let committed = received.last_commit;
        match received.last {
            _ if self.drained.load(Relaxed) => LagStart::Nothing,
            Some(gtid) => LagStart::From(Unpassed { gtid, committed }),
            None => LagStart::Unknown,
        }
    }

    /// Returns the lag of a stage by commit timestamps; `None` if it is unknown, or the log has no timestamps.
    pub fn lag(&self, stage: StageName, now: CommitTimestamp) -> Option<Duration> {
        match self.lag_start(stage) {
            LagStart::Nothing => Some(Duration::ZERO),
            LagStart::From(first) => first.age(now),
            LagStart::Unknown => None,
        }
    }

    /// Returns the lag of a stage in milliseconds at this moment.
    pub fn lag_ms(&self, stage: StageName) -> Option<u64> {
        let lag = self.lag(stage, CommitTimestamp::now())?;
        Some(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the counters that do not belong to one stage.
    pub fn counts(&self) -> Counts {
        *locked(&self.counts)
    }

    /// Returns the remarks about tables.
    pub fn remarks(&self) -> &TableRemarks {
        &self.remarks
    }

    pub(super) fn pass(&self, stage: StageName, transaction: &Transaction) {
        let mut guard = locked(&self.stage(stage).passed);
        let (seq, passed) = &mut *guard;
        passed.transactions += 1;
        passed.rows += rows_of(transaction) as u64;
        passed.bytes += transaction.bytes as u64;
        if transaction.seq >= *seq {
            *seq = transaction.seq;
            passed.last = Some(transaction.gtid);
            passed.last_commit = transaction.immediate_commit;
        }
    }

    /// Records the first transaction that has not passed a stage.
    pub(super) fn waits(&self, stage: StageName, first: Option<&Transaction>) {
        *locked(&self.stage(stage).waiting) = first.map(|first| Unpassed {
            gtid: first.gtid,
            committed: first.immediate_commit,
        });
    }

    pub(super) fn set_drained(&self, drained: bool) {
        self.drained.store(drained, Relaxed);
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut locked(&self.counts));
    }

    fn stage(&self, stage: StageName) -> &Stage {
        &self.stages[stage as usize]
    }
}

/// Returns the number of row writes of a transaction; for a barrier, the number of its steps.
pub(super) fn rows_of(transaction: &Transaction) -> usize {
    match &transaction.body {
        Body::Rows(changes) => changes.rows.len(),
        Body::Barrier(barrier) => barrier.steps.len(),
    }
}

/// Adds a table to `all` if `lacks` is true; removes it otherwise. Returns whether the table was added.
pub(super) fn noted(all: &Mutex<BTreeSet<TableName>>, table: &TableName, lacks: bool) -> bool {
    let mut all = locked(all);
    if !lacks {
        all.remove(table);
    }
    lacks && all.insert(table.clone())
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::Gno;
    use binlog_format::gtid::SourceId;
    use binlog_format::gtid::Tag;

    use super::*;
    use crate::transaction::RowChanges;

    fn transaction(seq: u64, committed_us: u64) -> Transaction {
        Transaction {
            seq: Seq(seq),
            gtid: Gtid {
                source: SourceId::from_bytes([1; SourceId::LEN]),
                tag: Tag::NONE,
                gno: Gno::new(seq).unwrap(),
            },
            immediate_commit: Some(CommitTimestamp(committed_us)),
            original_commit: None,
            original_version: None,
            bytes: 100,
            body: Body::Rows(RowChanges::default()),
        }
    }

    #[test]
    fn lag_is_the_age_of_the_first_unpassed_transaction() {
        let progress = Progress::new();
        let now = CommitTimestamp(10_000_000);
        let lag = |stage| progress.lag(stage, now).map(|lag| lag.as_millis());
        assert_eq!(StageName::ALL.map(lag), [None; 3]);
        let (first, second) = (transaction(1, 7_000_000), transaction(2, 9_500_000));
        progress.pass(StageName::Received, &first);
        progress.pass(StageName::Received, &second);
        progress.waits(StageName::Scheduled, Some(&second));
        progress.waits(StageName::Committed, Some(&first));
        assert_eq!(StageName::ALL.map(lag), [Some(500), Some(500), Some(3000)]);
        progress.set_drained(true);
        assert_eq!(StageName::ALL.map(lag), [Some(0), Some(500), Some(3000)]);
        progress.waits(StageName::Scheduled, None);
        progress.waits(StageName::Committed, None);
        assert_eq!(
            StageName::ALL.map(lag),
            [Some(0); 3],
            "an idle target has no lag"
        );
        progress.set_drained(false);
        assert_eq!(StageName::ALL.map(lag), [Some(500); 3]);
        let early = CommitTimestamp(1);
        assert_eq!(
            progress.lag(StageName::Received, early),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn the_last_passed_is_the_last_in_log_order() {
        let progress = Progress::new();
        let (first, second) = (transaction(1, 1), transaction(2, 2));
        progress.pass(StageName::Committed, &second);
        progress.pass(StageName::Committed, &first);
        let passed = progress.passed(StageName::Committed);
        assert_eq!((passed.transactions, passed.bytes), (2, 200));
        assert_eq!(passed.last, Some(second.gtid));
    }

    #[test]
    fn a_table_is_remarked_on_once_across_runs() {
        let remarks = Arc::default();
        let runs = [(); 2].map(|()| Progress::with_remarks(Arc::clone(&remarks)));
        let [one, other] = ["one", "other"].map(|table| TableName::new("d", table));
        let first = |run: usize, table, lacks| {
            noted(&runs[run].remarks().without_transactions, table, lacks)
        };
        assert!(first(0, &one, true) && !first(0, &one, true) && !first(1, &one, true));
        assert!(!first(1, &other, false));
        assert_eq!(
            runs[1].remarks().without_transactions(),
            std::slice::from_ref(&one)
        );
        assert!(runs[1].remarks().without_primary_key().is_empty());
        assert!(!first(1, &one, false) && remarks.without_transactions().is_empty());
        assert!(first(1, &one, true), "it was converted back");
    }
}

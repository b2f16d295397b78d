//! Measures rows per second from a log in memory into the in-memory database: decoder, keys, scheduler, workers, commits. Each
//! transaction has four rows: three inserts, and an increment of one of 64 counters.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use applier::backend::Backend;
use applier::keys::Fold;
use applier::run::{Control, Ended, Options, Progress, RunHandle, StageName, apply};
use applier::scheduler::Policy;
use applier::schema::{ColumnShape, KeyShape, TableName, TableShape};
use applier::source::{Drained, Source, SourceError};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use testkit::memory_database::MemoryBackend;

/// Numbers of writing sessions.
pub(crate) const WORKERS: [usize; 4] = [1, 2, 4, 8];

const COUNTERS: i64 = 64;
const ROWS: usize = 4;

/// A log that is created once for all runs.
pub(crate) struct Log {
    transactions: Arc<Vec<FramedTransaction>>,
}

struct FromMemory {
    transactions: Arc<Vec<FramedTransaction>>,
    next: usize,
}

impl Source for FromMemory {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        let transaction = self.transactions.get(self.next).cloned();
        self.next += 1;
        Ok(transaction)
    }

    fn drained(&self) -> Drained {
        Drained::default()
    }
}

fn table() -> Table {
    let column = Column {
        column_type: ColumnType::BigInt,
        nullable: false,
    };
    Table {
        id: TableId(1),
        schema: "s".to_owned(),
        name: "t".to_owned(),
        columns: vec![column; 2],
    }
}

pub(crate) fn shape() -> TableShape {
    let column = |name: &str| ColumnShape {
        name: name.into(),
        fold: Fold::Bytes,
    };
    TableShape {
        primary_key: Some(KeyShape::of(&[0])),
        ..TableShape::new(TableName::new("s", "t"), vec![column("id"), column("v")])
    }
}

impl Log {
    /// Creates the log. The first transaction inserts the counters.
    pub(crate) fn make(transactions: usize) -> Result<Self> {
        let table = table();
        let row = |id: i64, value: i64| vec![Value::BigInt(id), Value::BigInt(value)];
        let mut log = Vec::with_capacity(transactions + 1);
        let mut first = RowTransaction::begin(head(1)?);
        let counters: Vec<_> = (0..COUNTERS).map(|counter| row(counter, 0)).collect();
        first.insert(&table, &counters)?;
        log.push(framed(first)?);
        let mut next = COUNTERS;
        let mut random = fastrand::Rng::with_seed(1);
        let mut counted = vec![0; COUNTERS as usize];
        for number in 0..transactions {
            let mut transaction = RowTransaction::begin(head(number as u64 + 2)?);
            let new: Vec<_> = (next..).take(ROWS - 1).map(|id| row(id, id)).collect();
            next += new.len() as i64;
            transaction.insert(&table, &new)?;
            let counter = random.usize(0..counted.len());
            let (from, to) = (counted[counter], counted[counter] + 1);
            counted[counter] = to;
            let change = (row(counter as i64, from), row(counter as i64, to));
            transaction.update(&table, &[change])?;
            log.push(framed(transaction)?);
        }
        Ok(Self {
            transactions: Arc::new(log),
        })
    }

    /// Returns the rows per second of one run into the in-memory database.
    pub(crate) async fn rows_per_second(&self, policy: Policy, workers: usize) -> Result<f64> {
        let options = Options {
            policy,
            workers,
            ..Options::default()
        };
        let per_second = self.per_second(memory_database(), &options).await?;
        Ok(per_second * ROWS as f64)
    }

    /// Returns the transactions per second of one run with one worker.
    pub(crate) async fn transactions_per_second(&self, backend: Arc<impl Backend>) -> Result<f64> {
        let options = Options {
            policy: Policy::Rows,
            workers: 1,
            ..Options::default()
        };
        self.per_second(backend, &options).await
    }

    /// Returns transactions per second. The time to drop the database is not included.
    async fn per_second(&self, backend: Arc<impl Backend>, options: &Options) -> Result<f64> {
        let source = FromMemory {
            transactions: Arc::clone(&self.transactions),
            next: 0,
        };
        let progress = Arc::new(Progress::new());
        let handle = RunHandle {
            control: tokio::sync::watch::channel(Control::default()).1,
            cancel: Default::default(),
            progress: Arc::clone(&progress),
        };
        let begin = Instant::now();
        let ended = apply(source, Arc::clone(&backend), options, handle).await?;
        let seconds = begin.elapsed().as_secs_f64();
        ensure!(ended == Ended::WithTheLog, "the run was cancelled");
        let committed = progress.passed(StageName::Committed);
        ensure!(
            committed.transactions == self.transactions.len() as u64,
            "{} transactions were committed",
            committed.transactions
        );
        Ok(committed.transactions as f64 / seconds)
    }
}

/// Creates an empty in-memory database.
pub(crate) fn memory_database() -> Arc<MemoryBackend> {
    let backend = MemoryBackend::default();
    backend.put_table(shape());
    Arc::new(backend)
}

fn head(number: u64) -> Result<TransactionHead> {
    Ok(TransactionHead {
        gtid: Gtid {
            source: SourceId::from_bytes([1; SourceId::LEN]),
            tag: Tag::NONE,
            gno: Gno::new(number).context("no such GTID")?,
        },
        server_id: 1,
        thread_id: 1,
        commit: CommitTimestamp(number),
        version: ServerVersion(90_704),
        clock: LogicalClock::default(),
        xid: number,
    })
}

fn framed(transaction: RowTransaction) -> Result<FramedTransaction> {
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, 1 << 30);
    let mut last = None;
    for event in CanonicalEvents::new(transaction.commit()) {
        last = framer.push(&event?)?;
    }
    match last {
        Some(StreamItem::Transaction(framed)) => Ok(framed),
        _ => anyhow::bail!("no whole transaction"),
    }
}

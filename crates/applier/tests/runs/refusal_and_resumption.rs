//! A transaction that the database refuses stops the run: everything before it is committed, but neither this transaction nor a
//! later one. The error contains its GTID, table and row, and the database's message. After the cause is removed, another run
//! continues there.

#![allow(clippy::unwrap_used, reason = "a test without its requirements fails")]

use std::sync::Arc;

use applier::backend::Backend;
use applier::keys::Fold;
use applier::run::{ApplyError, Ended, Options, Progress, StageName, apply};
use applier::schema::{ColumnShape, KeyShape, TableName, TableShape};
use applier::source::{Drained, Source, SourceError};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::{Gno, Gtid, GtidSet, SourceId, Tag};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use testkit::memory_database::MemoryBackend;

struct Given(std::vec::IntoIter<FramedTransaction>);

impl Source for Given {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        Ok(self.0.next())
    }

    fn drained(&self) -> Drained {
        Drained::default()
    }
}

const COUNT: u64 = 20;
const BAD: u64 = 12;

fn gtid(number: u64) -> Gtid {
    Gtid {
        source: SourceId::from_bytes([1; SourceId::LEN]),
        tag: Tag::NONE,
        gno: Gno::new(number).unwrap(),
    }
}

/// Returns a log in which each transaction inserts two rows. The second row of the bad transaction was already inserted by an
/// earlier one.
fn log(with_the_bad_one: bool) -> Given {
    let column = Column {
        column_type: ColumnType::BigInt,
        nullable: false,
    };
    let table = Table {
        id: TableId(1),
        schema: "s".to_owned(),
        name: "t".to_owned(),
        columns: vec![column],
    };
    let one = |number: u64| {
        let mut transaction = RowTransaction::begin(TransactionHead {
            gtid: gtid(number),
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(number),
            version: ServerVersion(90_704),
            clock: LogicalClock::default(),
            xid: number,
        });
        let second = if number == BAD && with_the_bad_one {
            6
        } else {
            number * 2 + 1
        };
        let rows = [number * 2, second].map(|id| vec![Value::BigInt(id as i64)]);
        transaction.insert(&table, &rows).unwrap();
        let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, 1 << 20);
        let mut last = None;
        for event in CanonicalEvents::new(transaction.commit()) {
            last = framer.push(&event.unwrap()).unwrap();
        }
        match last {
            Some(StreamItem::Transaction(framed)) => framed,
            _ => panic!("no whole transaction"),
        }
    };
    Given((1..=COUNT).map(one).collect::<Vec<_>>().into_iter())
}

fn name() -> TableName {
    TableName::new("s", "t")
}

fn database() -> MemoryBackend {
    let database = MemoryBackend::default();
    let id = ColumnShape {
        name: "id".into(),
        fold: Fold::Bytes,
    };
    database.put_table(TableShape {
        primary_key: Some(KeyShape::of(&[0])),
        ..TableShape::new(name(), vec![id])
    });
    database
}

#[tokio::test]
async fn a_refusal_says_where_and_a_later_run_goes_on() {
    let database = database();
    let options = Options {
        workers: 4,
        ..Options::default()
    };
    let run = async |source: Given| {
        let handle = crate::unattended();
        let progress: Arc<Progress> = Arc::clone(&handle.progress);
        let ended = apply(source, Arc::new(database.clone()), &options, handle).await;
        (ended, progress)
    };
    let (ended, _) = run(log(true)).await;
    let error = ended.unwrap_err();
    let message = error.to_string();
    let ApplyError::Refused { gtid: at, refusal } = error else {
        panic!("{message}");
    };
    assert_eq!(at, gtid(BAD));
    assert_eq!((refusal.table, refusal.row), (Some(name()), Some(2)));
    for part in [
        &gtid(BAD).to_string(),
        "s.t, row 2",
        "already",
        "apply again",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let before: GtidSet = (1..BAD).map(gtid).collect();
    assert_eq!(database.executed().await.unwrap(), before);
    let (ended, progress) = run(log(false)).await;
    assert_eq!(ended.unwrap(), Ended::WithTheLog);
    let all: GtidSet = (1..=COUNT).map(gtid).collect();
    assert_eq!(database.executed().await.unwrap(), all);
    assert_eq!(database.rows(&name()).len() as u64, COUNT * 2);
    let passed = progress.passed(StageName::Committed);
    assert_eq!(progress.counts().skipped + passed.transactions, COUNT);
    assert_eq!(passed.last, Some(gtid(COUNT)));
    assert_eq!(progress.lag_ms(StageName::Committed), Some(0));
}

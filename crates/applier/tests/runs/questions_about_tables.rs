//! Tests how often and when the target is queried about its tables. A query takes as long as dozens of rows, and nothing is
//! decoded in the meantime.

#![allow(clippy::unwrap_used, reason = "all of this is test")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applier::backend::{Backend, BackendError, SessionId};
use applier::keys::Fold;
use applier::run::{Control, Ended, LagStart, Options, Progress, RunHandle, StageName, apply};
use applier::schema::{ColumnShape, KeyShape, ParentShape, TableName, TableShape};
use applier::source::{Drained, Source, SourceError};
use applier::transaction::{Changed, SchemaChange};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::{Gno, Gtid, GtidSet, SourceId, Tag};
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, Table, TransactionHead, Value, statement_transaction,
};
use bytes::Bytes;
use testkit::memory_database::{MemoryBackend, MemorySession};

const TABLES: u64 = 8;

/// A database that counts the queries about tables.
struct Asked {
    memory: MemoryBackend,
    questions: AtomicUsize,
    /// The tables of the last query.
    last: Mutex<Vec<String>>,
    /// The number of queries before each reported change.
    changes: Mutex<Vec<(usize, SchemaChange)>>,
    /// The delay before each answer.
    answers_after: Duration,
}

impl Backend for Asked {
    type Session = MemorySession;

    async fn open(&self) -> Result<MemorySession, BackendError> {
        self.memory.open().await
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        self.memory.executed().await
    }

    async fn tables(&self, names: &[TableName]) -> Result<Vec<Option<TableShape>>, BackendError> {
        self.questions.fetch_add(1, SeqCst);
        let mut asked: Vec<String> = names.iter().map(|name| name.table.to_string()).collect();
        asked.sort();
        *self.last.lock().unwrap() = asked;
        tokio::time::sleep(self.answers_after).await;
        self.memory.tables(names).await
    }

    fn schema_changed(&self, change: &SchemaChange) {
        let asked = self.questions.load(SeqCst);
        self.changes.lock().unwrap().push((asked, change.clone()));
    }

    async fn blockers(&self, waiting: SessionId) -> Result<Option<Vec<SessionId>>, BackendError> {
        self.memory.blockers(waiting).await
    }
}

/// A log that is created while it is read.
#[derive(Default)]
struct Log {
    transactions: Vec<FramedTransaction>,
    rows: i64,
}

impl Log {
    fn head(&self) -> TransactionHead {
        let number = self.transactions.len() as u64 + 1;
        TransactionHead {
            gtid: Gtid {
                source: SourceId::from_bytes([1; SourceId::LEN]),
                tag: Tag::NONE,
                gno: Gno::new(number).unwrap(),
            },
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(1_700_000_000_000_000 + number),
            version: ServerVersion(90_704),
            clock: LogicalClock::default(),
            xid: number,
        }
    }

    fn push(&mut self, payload: Bytes) {
        let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, 1 << 30);
        let mut framed = None;
        for event in CanonicalEvents::new(payload) {
            framed = framer.push(&event.unwrap()).unwrap();
        }
        let Some(StreamItem::Transaction(framed)) = framed else {
            panic!("no whole transaction");
        };
        self.transactions.push(framed);
    }

    /// Adds a row to each table, each in a separate transaction.
    fn load(&mut self) {
        for number in 0..TABLES {
            self.rows += 1;
            let table = Table {
                id: TableId(number + 1),
                schema: "d".to_owned(),
                name: format!("t{number}"),
                columns: vec![Column {
                    column_type: ColumnType::BigInt,
                    nullable: false,
                }],
            };
            let mut transaction = RowTransaction::begin(self.head());
            transaction
                .insert(&table, &[vec![Value::BigInt(self.rows)]])
                .unwrap();
            self.push(transaction.commit());
        }
    }

    fn statement(&mut self, statement: &str) {
        let payload = statement_transaction(self.head(), "d", statement);
        self.push(payload);
    }
}

struct Whole(std::vec::IntoIter<FramedTransaction>);

impl Source for Whole {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        Ok(self.0.next())
    }

    fn drained(&self) -> Drained {
        Drained::default()
    }
}

/// A log that is slow to read: each transaction has a delay, and a dropped call has received nothing.
struct Far {
    log: Whole,
    takes: Duration,
    drained: Drained,
    /// Shows whether the run reported the log as drained before the log ended.
    told: Arc<Progress>,
    was_told: Arc<AtomicUsize>,
}

impl Source for Far {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        tokio::time::sleep(self.takes).await;
        if self.log.0.len() == 0 {
            self.drained.set(true);
            tokio::time::sleep(self.takes).await;
            let drained = self.told.lag_start(StageName::Received) == LagStart::Nothing;
            self.was_told.store(drained.into(), SeqCst);
        }
        self.log.next().await
    }

    fn drained(&self) -> Drained {
        self.drained.clone()
    }
}

/// Creates the tables `t0` to `t7`; `t1` refers to `t0`.
fn database(answers_after: Duration) -> Arc<Asked> {
    let memory = MemoryBackend::default();
    for number in 0..TABLES {
        let id = ColumnShape {
            name: "id".into(),
            fold: Fold::Bytes,
        };
        let parents = match number {
            1 => vec![ParentShape {
                columns: vec![0],
                table: TableName::new("d", "t0"),
                referenced: vec!["id".into()],
            }],
            _ => Vec::new(),
        };
        memory.put_table(TableShape {
            primary_key: Some(KeyShape::of(&[0])),
            parents,
            ..TableShape::new(TableName::new("d", &format!("t{number}")), vec![id])
        });
    }
    Arc::new(Asked {
        memory,
        questions: AtomicUsize::new(0),
        last: Mutex::default(),
        changes: Mutex::default(),
        answers_after,
    })
}

/// Applies a log. Returns the number of queries, and the tables of the last query.
async fn questions(log: Log) -> (usize, Vec<String>) {
    let asked = database(Duration::ZERO);
    let options = Options::default();
    let ended = apply(
        Whole(log.transactions.into_iter()),
        Arc::clone(&asked),
        &options,
        crate::unattended(),
    );
    assert_eq!(ended.await.unwrap(), Ended::WithTheLog);
    let last = asked.last.lock().unwrap().clone();
    (asked.questions.load(SeqCst), last)
}

#[tokio::test]
async fn a_change_of_one_table_lets_the_others_be_applied_without_a_question() {
    let mut log = Log::default();
    for number in 0..10 {
        log.load();
        log.statement(&format!("CREATE TABLE made{number} (id INT PRIMARY KEY)"));
        log.load();
        log.statement(&format!("ALTER TABLE d.made{number} ADD KEY (more)"));
        log.statement("XA COMMIT X'31',X'',1");
        log.load();
        log.statement(&format!(
            "DROP TABLE `made{number}` /* generated by server */"
        ));
    }
    // One query for each table at the beginning, while the tables are unknown.
    assert_eq!(questions(log).await.0, TABLES as usize);
}

#[tokio::test]
async fn a_database_is_told_of_a_change_before_it_is_asked_again() {
    let mut log = Log::default();
    log.load();
    log.statement("ALTER TABLE t0 ADD KEY (id)");
    log.load();
    let asked = database(Duration::ZERO);
    let options = Options::default();
    let run = apply(
        Whole(log.transactions.into_iter()),
        Arc::clone(&asked),
        &options,
        crate::unattended(),
    );
    assert_eq!(run.await.unwrap(), Ended::WithTheLog);
    let changed = Changed::Table(TableName::new("d", "t0"));
    assert_eq!(
        *asked.changes.lock().unwrap(),
        [(TABLES as usize, SchemaChange::Tables(vec![changed]))]
    );
    assert_eq!(asked.questions.load(SeqCst), TABLES as usize + 1);
}

#[tokio::test]
async fn tables_that_a_change_ties_together_are_asked_for_with_one_question() {
    let mut log = Log::default();
    log.load();
    log.statement("ALTER TABLE t0 ADD KEY (id)");
    log.load();
    let (count, last) = questions(log).await;
    assert_eq!(
        (count, last),
        (
            TABLES as usize + 1,
            ["t0", "t1"].map(str::to_owned).to_vec()
        )
    );
}

#[tokio::test]
async fn behind_a_statement_that_is_not_understood_all_tables_are_asked_for_with_one_question() {
    let mut log = Log::default();
    log.load();
    for _ in 0..10 {
        log.statement("/*!80000 ALTER TABLE t0 ADD KEY (id) */");
        log.load();
    }
    let (count, last) = questions(log).await;
    assert_eq!((count, last.len()), (TABLES as usize + 10, TABLES as usize));
}

/// With a busy machine or a remote target, an answer takes longer than the reader's poll interval.
#[tokio::test(start_paused = true)]
async fn a_question_that_takes_long_is_asked_once() {
    let mut log = Log::default();
    log.load();
    let asked = database(Duration::from_millis(250));
    let options = Options::default();
    let run = apply(
        Whole(log.transactions.into_iter()),
        Arc::clone(&asked),
        &options,
        crate::unattended(),
    );
    let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
    let count = asked.questions.load(SeqCst);
    assert!(ended.is_ok(), "{count} questions in a minute, and no row");
    assert_eq!(count, TABLES as usize);
}

/// Opening the connection takes three round trips, longer than the reader's poll interval.
#[tokio::test(start_paused = true)]
async fn a_log_that_takes_long_to_be_reached_is_waited_for_in_one_call() {
    let mut log = Log::default();
    log.load();
    let progress = Arc::new(Progress::new());
    let was_told = Arc::new(AtomicUsize::new(0));
    let far = Far {
        log: Whole(log.transactions.into_iter()),
        takes: Duration::from_millis(300),
        drained: Drained::default(),
        told: Arc::clone(&progress),
        was_told: Arc::clone(&was_told),
    };
    let handle = RunHandle {
        progress: Arc::clone(&progress),
        ..crate::unattended()
    };
    let options = Options::default();
    let run = apply(far, database(Duration::ZERO), &options, handle);
    let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
    let ended = ended.expect("nothing came in a minute");
    assert_eq!(ended.unwrap(), Ended::WithTheLog);
    let committed = progress.passed(StageName::Committed).transactions;
    assert_eq!(committed, TABLES);
    assert_eq!(was_told.load(SeqCst), 1, "that nothing more was there");
}

/// Returns the number of transactions read and the number of queries, while nothing is applied.
async fn read_ahead(log: Log) -> (u64, usize) {
    let asked = database(Duration::ZERO);
    let options = Options::default();
    let (control, obeyed) = tokio::sync::watch::channel(Control {
        paused: true,
        ..Control::default()
    });
    let progress = Arc::new(Progress::new());
    let handle = RunHandle {
        control: obeyed,
        progress: Arc::clone(&progress),
        ..crate::unattended()
    };
    let count = log.transactions.len() as u64;
    let run = apply(
        Whole(log.transactions.into_iter()),
        Arc::clone(&asked),
        &options,
        handle,
    );
    let look = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let seen = (
            progress.passed(StageName::Received).transactions,
            asked.questions.load(SeqCst),
        );
        control.send(Control::default()).unwrap();
        seen
    };
    let (ended, seen) = tokio::join!(run, look);
    assert_eq!(ended.unwrap(), Ended::WithTheLog);
    assert_eq!(progress.passed(StageName::Committed).transactions, count);
    seen
}

#[tokio::test(start_paused = true)]
async fn what_a_barrier_leaves_alone_is_read_before_it_is_committed_and_nothing_else() {
    let before = TABLES;
    let log = |statements: &[&str]| {
        let mut log = Log::default();
        log.load();
        for statement in statements {
            log.statement(statement);
        }
        log.load();
        log
    };
    let table: [(&[&str], u64); 5] = [
        // The reader reads the whole log.
        (&["XA COMMIT X'31',X'',1"], before + 1 + TABLES),
        (
            &["CREATE TABLE made (id INT PRIMARY KEY)", "DROP TABLE made"],
            before + 2 + TABLES,
        ),
        // The reader stops at the first row of the changed table: the answer about this table must be later than all
        // barriers.
        (
            &["ALTER TABLE t3 ADD KEY (id)", "XA COMMIT X'31',X'',1"],
            before + 2 + 3,
        ),
        (&["ALTER TABLE t0 ADD KEY (id)"], before + 1),
        // The reader stops immediately, because the effect of the statement is unknown.
        (&["/*!80000 ALTER TABLE t7 ADD KEY (id) */"], before + 1),
    ];
    for (statements, read) in table {
        let (received, questions) = read_ahead(log(statements)).await;
        assert_eq!(
            (received, questions),
            (read, TABLES as usize),
            "{statements:?}"
        );
    }
}

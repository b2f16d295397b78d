//! A database in memory: rows with versions, and reads at a prefix of the log. It serves the demonstration, the tests and the
//! benches.
//!
//! It checks what it is asked to do: that a row is what the log says that it was, that no row is written out of the log's
//! order or under an open transaction, that unique values are unique. It has one weakness by intention: keys are compared
//! byte by byte, whatever the collation of their columns.
//!
//! It can be either kind of database ([`Finished`]): one whose rows have versions by their places in the log, as C5 wants it,
//! or one that locks rows until the commit, as MySQL does. The first kind keeps what is committed behind its current prefix
//! as long as a session is open, and loses it with the last one.

mod crash;
mod row;
mod session;
mod table;
mod versions;

use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use binlog_format::gtid::GtidSet;

pub use crate::memory_database::crash::CrashPoint;
use crate::memory_database::crash::{Crashes, locked};
pub use crate::memory_database::row::Row;
pub use crate::memory_database::session::MemorySession;
use crate::memory_database::table::Table;
use crate::memory_database::versions::{Commits, Versions};
use applier::backend::{Backend, BackendError, Finished, SessionId};
use applier::schema::{TableName, TableShape};

/// What kind of database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOptions {
    /// When the write of a row is finished.
    pub finished: Finished,
    /// Every call of a session takes so long, besides what it does.
    pub call_takes: Duration,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            finished: Finished::AtWrite,
            call_takes: Duration::ZERO,
        }
    }
}

/// The database. Clones are the same one.
#[derive(Debug, Clone)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: MemoryOptions,
    versions: Versions,
    tables: Mutex<Tables>,
    commits: Mutex<Commits>,
    /// Rows that transactions wrote before they were to begin again, by their stamps.
    kept: Mutex<HashMap<u64, usize>>,
    /// Numbers given to sessions.
    sessions: AtomicU64,
    /// Sessions that there are.
    open_sessions: AtomicU64,
    crashes: Crashes,
    down: AtomicBool,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<TableName, Table>,
    /// Tables as they are behind statements.
    after: HashMap<String, TableShape>,
    statements: Vec<String>,
    numbers: u32,
}

impl Tables {
    fn put(&mut self, shape: TableShape) {
        let number = match self.by_name.get(&shape.name) {
            Some(table) => table.number,
            None => {
                self.numbers += 1;
                self.numbers
            }
        };
        let name = shape.name.clone();
        let shape = Arc::new(shape);
        self.by_name.insert(name, Table { number, shape });
    }
}

/// A moment that readers may read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point(pub u64);

impl MemoryBackend {
    /// An empty database.
    pub fn new(options: MemoryOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                versions: Versions::new(),
                tables: Mutex::default(),
                commits: Mutex::new(Commits::new(options.finished)),
                kept: Mutex::default(),
                sessions: AtomicU64::new(0),
                open_sessions: AtomicU64::new(0),
                crashes: Crashes::default(),
                down: AtomicBool::new(false),
            }),
        }
    }

    /// Makes a table, or changes what is known of it; its rows stay as they are.
    pub fn put_table(&self, shape: TableShape) {
        locked(&self.shared.tables).put(shape);
    }

    /// A statement of the log, word by word, makes or changes this table.
    pub fn on_statement(&self, statement: &str, shape: TableShape) {
        let mut tables = locked(&self.shared.tables);
        tables.after.insert(statement.to_owned(), shape);
    }

    /// The statements that were run, in order.
    pub fn statements(&self) -> Vec<String> {
        locked(&self.shared.tables).statements.clone()
    }

    /// What readers see now. Where versions have places in the log, it is always a prefix of it (C5's c).
    pub fn current(&self) -> Snapshot {
        let mut commits = locked(&self.shared.commits);
        let at = commits.current;
        commits.pin(at);
        self.snapshot(at)
    }

    /// What readers saw at the last prefix point.
    pub fn at_last_prefix_point(&self) -> Snapshot {
        let mut commits = locked(&self.shared.commits);
        let at = commits.point;
        commits.pin(at);
        self.snapshot(at)
    }

    /// Prefix points that were taken.
    pub fn prefix_points(&self) -> u64 {
        locked(&self.shared.commits).points
    }

    /// Versions of all rows and unique values.
    pub fn versions(&self) -> usize {
        self.shared.versions.count()
    }

    /// Calls of sessions so far.
    pub fn calls(&self) -> u64 {
        self.shared.crashes.calls()
    }

    /// Crashes at a call to come.
    pub fn crash_at(&self, point: Option<CrashPoint>) {
        self.shared.crashes.set(point);
    }

    /// Crashes: every session is lost, and everything that is not committed. One whose versions have places in the log
    /// keeps only its current prefix, and is down until [`Self::restart`].
    pub fn crash(&self) {
        self.shared.crash();
    }

    /// Up again.
    pub fn restart(&self) {
        self.shared.down.store(false, SeqCst);
    }

    fn snapshot(&self, at: u64) -> Snapshot {
        Snapshot {
            shared: Arc::clone(&self.shared),
            at: Point(at),
        }
    }
}

impl Shared {
    fn table(&self, name: &TableName) -> Option<Table> {
        locked(&self.tables).by_name.get(name).cloned()
    }

    fn run_statement(&self, statement: &str) {
        let mut tables = locked(&self.tables);
        tables.statements.push(statement.to_owned());
        if let Some(shape) = tables.after.get(statement).cloned() {
            tables.put(shape);
        }
    }

    fn horizon(&self) -> u64 {
        locked(&self.commits).horizon()
    }

    fn crash(&self) {
        let _life = self.crashes.end_life();
        self.lose_what_is_no_prefix();
        let down = self.options.finished == Finished::AtWrite;
        self.down.store(down, SeqCst);
    }

    fn close_session(&self) {
        if self.open_sessions.fetch_sub(1, SeqCst) == 1
            && self.options.finished == Finished::AtWrite
        {
            let _life = self.crashes.end_life();
            self.lose_what_is_no_prefix();
        }
    }

    fn lose_what_is_no_prefix(&self) {
        let kept = locked(&self.commits).lose();
        self.versions.lose_behind(kept);
        locked(&self.kept).clear();
    }
}

/// What a reader sees; it stays while this is held.
#[derive(Debug)]
pub struct Snapshot {
    shared: Arc<Shared>,
    at: Point,
}

impl Snapshot {
    /// Where it is.
    pub fn point(&self) -> Point {
        self.at
    }

    /// The row with these values of its primary key, as the log writes them.
    pub fn get(&self, table: &TableName, key: &[&[u8]]) -> Option<Row> {
        let table = self.shared.table(table)?;
        let values: Vec<Option<&[u8]>> = key.iter().copied().map(Some).collect();
        self.shared
            .versions
            .get(&table.key_of_values(&values), self.at.0)
    }

    /// All rows of a table, in the order of their keys' bytes.
    pub fn rows(&self, table: &TableName) -> Vec<Row> {
        let Some(table) = self.shared.table(table) else {
            return Vec::new();
        };
        let stored = self.shared.versions.all(&table.prefix(0), self.at.0);
        let rows = stored.into_iter();
        rows.flat_map(|(key, row)| table.rows_of(&key, row))
            .collect()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        locked(&self.shared.commits).unpin(self.at.0);
    }
}

impl Backend for MemoryBackend {
    type Session = MemorySession;

    fn finished(&self) -> Finished {
        self.shared.options.finished
    }

    async fn open(&self) -> Result<MemorySession, BackendError> {
        if self.shared.down.load(SeqCst) {
            return Err(BackendError::Refused(
                "the in-memory database has crashed, with what was committed behind its prefix: \
                 start it again, and then apply again"
                    .to_owned(),
            ));
        }
        self.shared.open_sessions.fetch_add(1, SeqCst);
        Ok(MemorySession {
            id: SessionId(self.shared.sessions.fetch_add(1, SeqCst) + 1),
            life: *self.shared.crashes.life(),
            shared: Arc::clone(&self.shared),
            open: None,
        })
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        Ok(locked(&self.shared.commits).executed.clone())
    }

    async fn tables(&self, names: &[TableName]) -> Result<Vec<Option<TableShape>>, BackendError> {
        let shape = |name| Some(TableShape::clone(&self.shared.table(name)?.shape));
        Ok(names.iter().map(shape).collect())
    }

    async fn at_prefix_point(&self) -> Result<(), BackendError> {
        let mut commits = locked(&self.shared.commits);
        if !commits.is_prefix() {
            return Err(BackendError::Refused(
                "what is committed is no prefix of the log at a prefix point".to_owned(),
            ));
        }
        commits.take_point();
        Ok(())
    }

    async fn blockers(&self, _waiting: SessionId) -> Result<Vec<SessionId>, BackendError> {
        // A locked row is refused at once: nobody waits for another session here.
        Ok(Vec::new())
    }
}

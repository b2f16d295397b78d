//! An in-memory database for the demonstration, the tests and the benches.
//!
//! It locks rows until the commit, as MySQL does. It refuses a row that differs from the log's row, a row locked by another
//! session, a duplicate key, and a commit out of the log's order. It deliberately compares keys bytewise, whatever the collation of
//! their columns.

mod row;
mod rows;
mod session;
mod table;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applier::backend::{Backend, BackendError, SessionId};
use applier::schema::{TableName, TableShape};
use binlog_format::gtid::GtidSet;

pub use crate::memory_database::row::Row;
use crate::memory_database::rows::Rows;
pub use crate::memory_database::session::MemorySession;
use crate::memory_database::table::Table;

/// When a planned crash occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// At this call of a session. Calls are counted from 1 on over all sessions.
    pub call: u64,
    /// True if the call takes effect before the crash. It returns an error in either case.
    pub after: bool,
}

/// The in-memory database. Clones share one database.
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    tables: HashMap<TableName, Table>,
    /// Shapes of tables after given statements.
    after: HashMap<String, TableShape>,
    statements: Vec<String>,
    rows: Rows,
    executed: GtidSet,
    /// Number of sessions opened.
    sessions: u64,
    /// Sessions up to this number were lost in a crash.
    lost: u64,
    /// Session calls so far.
    calls: u64,
    crash_at: Option<CrashPoint>,
}

impl State {
    fn put(&mut self, shape: TableShape) {
        let next = self.tables.len() as u32;
        let known = self.tables.get(&shape.name);
        let number = known.map_or(next, |table| table.number);
        self.tables
            .insert(shape.name.clone(), Table { number, shape });
    }

    fn crash(&mut self) {
        self.lost = self.sessions;
        self.rows.lose_uncommitted();
    }
}

impl MemoryBackend {
    /// Creates a table, or changes its shape; its rows are unchanged.
    pub fn put_table(&self, shape: TableShape) {
        self.state().put(shape);
    }

    /// Sets the shape of the table that the log creates or changes with exactly this statement.
    pub fn on_statement(&self, statement: &str, shape: TableShape) {
        self.state().after.insert(statement.to_owned(), shape);
    }

    /// Returns the executed statements, in order.
    pub fn statements(&self) -> Vec<String> {
        self.state().statements.clone()
    }

    /// Returns the number of committed transactions: the length of the log's prefix that a reader sees.
    pub fn committed(&self) -> u128 {
        self.state().executed.count()
    }

    /// Returns all committed rows of a table, in the order of their keys' bytes.
    pub fn rows(&self, table: &TableName) -> Vec<Row> {
        let state = self.state();
        let Some(table) = state.tables.get(table) else {
            return Vec::new();
        };
        let prefix = table.prefix(0);
        let stored = state.rows.committed(&prefix);
        stored
            .flat_map(|(key, row)| table.rows_of(key, row))
            .collect()
    }

    /// Returns the number of session calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Plans a crash at a later call: all sessions and all uncommitted changes are lost.
    pub fn crash_at(&self, point: CrashPoint) {
        self.state().crash_at = Some(point);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryBackend {
    type Session = MemorySession;

    async fn open(&self) -> Result<MemorySession, BackendError> {
        let mut state = self.state();
        state.sessions += 1;
        Ok(MemorySession {
            id: SessionId(state.sessions),
            backend: self.clone(),
        })
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        Ok(self.state().executed.clone())
    }

    async fn tables(&self, names: &[TableName]) -> Result<Vec<Option<TableShape>>, BackendError> {
        let state = self.state();
        let shape = |name| Some(state.tables.get(name)?.shape.clone());
        Ok(names.iter().map(shape).collect())
    }

    async fn blockers(&self, _: SessionId) -> Result<Option<Vec<SessionId>>, BackendError> {
        // Sessions never wait for each other here, since a locked row is refused.
        Ok(Some(Vec::new()))
    }
}

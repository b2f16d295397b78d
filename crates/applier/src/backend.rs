//! The workers' interface to a database. One implementation is MySQL, the other keeps rows in memory.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use thiserror::Error;

use crate::batch::Batch;
use crate::schema::{TableName, TableShape};
use crate::transaction::{SchemaChange, Transaction};

/// The next step for the transaction after the last row of a call is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Leave the transaction open, for more rows or its commit.
    StayOpen,
    /// Commit the transaction in the same call.
    Commit,
    /// Commit the batch as one transaction, in its turn: readers and crash recovery see it only after the previous batch. Allowed
    /// only if [`Backend::commits_as_one`] is true.
    InTurn(Turn),
}

/// What is known about the previous batch when a batch commits in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// All earlier batches are known to be committed.
    First,
    /// The previous batch has taken its turn in another session; its commit may still fail.
    Next,
}

/// A database that transactions are applied to. It locks each written row until the transaction commits.
pub trait Backend: Send + Sync + 'static {
    /// The type of a session of this database; each worker has one session.
    type Session: Session;

    /// True if sessions can commit several transactions as one, and let the next batch take its turn early: see [`Then::InTurn`].
    fn commits_as_one(&self) -> bool {
        false
    }

    /// Opens a session for a worker.
    fn open(&self) -> impl Future<Output = Result<Self::Session, BackendError>> + Send;

    /// Returns the committed transactions, which are the only checkpoint. A call of a lost session may still be in progress and
    /// commit later; even then no transaction is committed twice.
    fn executed(&self) -> impl Future<Output = Result<GtidSet, BackendError>> + Send;

    /// Returns the current shapes of tables in the order of `names`, which are distinct; `None` for a missing table. The caller uses
    /// an answer until a barrier changes the table. An implementation should avoid queries if it can.
    fn tables(
        &self,
        names: &[TableName],
    ) -> impl Future<Output = Result<Vec<Option<TableShape>>, BackendError>> + Send;

    /// Reports that a barrier changes tables, so that earlier answers of [`Backend::tables`] may be outdated. Called before the next
    /// such query, never during one.
    fn schema_changed(&self, change: &SchemaChange) {
        let _ = change;
    }

    /// Called when a run begins, before its sessions are opened; returns the committed transactions. After it returns, no call of an
    /// earlier run can commit.
    fn begin(&self) -> impl Future<Output = Result<GtidSet, BackendError>> + Send {
        self.executed()
    }

    /// Called after the sessions have ended. When it returns, every client of the database sees all commits.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns the sessions that block `waiting`, a session with a long-running write. They hold locks of transactions later in the log,
    /// so the caller rolls them back. `None` if the database does not report blockers: any other session may be one.
    fn blockers(
        &self,
        waiting: SessionId,
    ) -> impl Future<Output = Result<Option<Vec<SessionId>>, BackendError>> + Send;
}

/// A session's id in its database (MySQL's connection id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One session, which runs one transaction at a time. If the future of a call is dropped, the session is unusable.
pub trait Session: Send {
    /// The session's id, as used by [`Backend::blockers`].
    fn id(&self) -> SessionId;

    /// Writes the given rows of a batch in order; the range may be empty. Row 0 begins the batch; a transaction without rows begins
    /// with its commit. `passed` is called as soon as the batch has taken its turn. From then on the next batch may request its own
    /// turn, while the commit of this batch is still in progress.
    ///
    /// # Errors
    /// After an error the batch is rolled back. If the session is lost, the outcome is unknown, and only [`Backend::executed`] shows
    /// it. When the batch commits in its turn, [`WriteError::Again`] means that the previous batch was not committed.
    /// [`WriteError::Refused`] may mean that the transactions cannot be committed as one; [`Session::apply`] then finds the refused
    /// transaction.
    fn write(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
        passed: impl FnMut() + Send,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Applies the transactions of a batch sequentially, beginning with index `from`, and commits each under its own GTID before the
    /// next begins. Stops at the first failure, and earlier commits stay. Returns the number of commits and the failure, if any.
    fn apply(
        &mut self,
        batch: &Arc<Batch>,
        from: usize,
    ) -> impl Future<Output = (usize, Result<(), WriteError>)> + Send;

    /// Applies a barrier from beginning to end.
    ///
    /// # Errors
    /// As for [`Session::write`].
    fn run_barrier(
        &mut self,
        transaction: &Arc<Transaction>,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Rolls back an open transaction.
    ///
    /// # Errors
    /// If the session is lost.
    fn roll_back(&mut self) -> impl Future<Output = Result<(), WriteError>> + Send;
}

/// Why a write failed.
#[derive(Debug, Clone, Error)]
pub enum WriteError {
    /// A deadlock or a lock timeout: the transaction is rolled back and may be retried.
    #[error("{0}")]
    Again(String),
    /// The connection is gone. The outcome of a requested commit is unknown.
    #[error("{0}")]
    Lost(String),
    /// The database refuses the write, and a retry would fail too.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

/// The refusal of a write, with the database's own message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{message}", match (.table, .row) {
    (Some(table), Some(row)) => format!("{table}, row {row} of the transaction: "),
    (Some(table), None) => format!("{table}: "),
    _ => String::new(),
})]
pub struct Refusal {
    /// The table, when it is known.
    pub table: Option<TableName>,
    /// The number of the refused row within the transaction, from 1 on; if only a range of rows is known, its first row.
    pub row: Option<usize>,
    /// The database's error number; 0 if it returned none.
    pub code: u16,
    /// The database's error message.
    pub message: String,
}

/// Why a query to a database failed.
#[derive(Debug, Clone, Error)]
pub enum BackendError {
    /// The database is unreachable now; a later retry may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// The database refuses, and a retry would fail too, such as after a missing privilege or a wrong setting.
    #[error("{0}")]
    Refused(String),
}

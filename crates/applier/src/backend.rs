//! The workers' interface to a database. One implementation is MySQL, the other keeps rows in memory.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use thiserror::Error;

use crate::batch::Batch;
use crate::schema::{TableName, TableShape};
use crate::transaction::{SchemaChange, Transaction};

/// The action after the last written row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The transaction stays open, for more rows or its commit.
    StayOpen,
    /// The transaction is committed in the same call.
    Commit,
    /// The batch, which commits as one, is committed in its turn: not before the previous batch, as far as readers and a crash can
    /// tell. Only where [`Backend::commits_as_one`] is true.
    InTurn(Turn),
}

/// The predecessor of a batch that commits in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Everything before it is known to be committed.
    First,
    /// The previous batch has taken its turn in another session, and commits or fails now.
    Next,
}

/// A database that transactions are applied to. It locks the rows that a transaction writes until the commit.
pub trait Backend: Send + Sync + 'static {
    /// The type of its sessions; each worker has one.
    type Session: Session;

    /// Whether its sessions can commit several transactions as one, and pass on the turn to do so: see [`Then::InTurn`].
    fn commits_as_one(&self) -> bool {
        false
    }

    /// Opens a session for a worker.
    fn open(&self) -> impl Future<Output = Result<Self::Session, BackendError>> + Send;

    /// The committed transactions: the only checkpoint. A call of a lost session may still be in progress; whatever it commits
    /// later, nothing is committed twice.
    fn executed(&self) -> impl Future<Output = Result<GtidSet, BackendError>> + Send;

    /// The current shapes of tables, in the order of their distinct names; `None` for a missing table.
    /// An answer is used until a barrier changes the table; avoid queries where possible.
    fn tables(
        &self,
        names: &[TableName],
    ) -> impl Future<Output = Result<Vec<Option<TableShape>>, BackendError>> + Send;

    /// Called when a barrier changes tables, before the next query about any and never during one: earlier
    /// results may be outdated.
    fn schema_changed(&self, change: &SchemaChange) {
        let _ = change;
    }

    /// Called when a run begins, before its sessions are opened; returns the committed transactions. No call left over from an
    /// earlier run commits from here on.
    fn begin(&self) -> impl Future<Output = Result<GtidSet, BackendError>> + Send {
        self.executed()
    }

    /// Called when the sessions have ended: on return, every client of the database sees all commits.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The sessions that block `waiting`, a session with a long write: those with locks of transactions later in the log,
    /// which must be rolled back. `None`: they are unknown, and any other session may be one.
    fn blockers(
        &self,
        waiting: SessionId,
    ) -> impl Future<Output = Result<Option<Vec<SessionId>>, BackendError>> + Send;
}

/// A session's id in its database (MySQL's connection id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One session: one transaction at a time. A dropped call makes it unusable.
pub trait Session: Send {
    /// The session's id, as used by [`Backend::blockers`].
    fn id(&self) -> SessionId;

    /// Writes some rows of a batch, or none, in order. Row 0 begins it; a transaction without rows begins with its commit. `passed`
    /// is called as soon as a turn is taken: from then on the next batch may request its own, while this one's commit is in progress.
    ///
    /// # Errors
    /// The batch is rolled back, unless the session is lost: then only [`Backend::executed`] shows
    /// its outcome. In its turn, [`WriteError::Again`] when the previous batch was not committed, and [`WriteError::Refused`] may
    /// mean that its transactions cannot be committed as one: [`Session::apply`] shows more.
    fn write(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
        passed: impl FnMut() + Send,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Applies the transactions of a batch sequentially, from the `from`th on, each committed under its own GTID before
    /// the next begins. Stops at the first failure; earlier commits stay. Returns the number of commits, and
    /// the failure.
    fn apply(
        &mut self,
        batch: &Arc<Batch>,
        from: usize,
    ) -> impl Future<Output = (usize, Result<(), WriteError>)> + Send;

    /// Applies a barrier as a whole.
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
    /// When the session is lost.
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
    /// The database refuses it, and a retry would fail too.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

/// A database's refusal, with its own message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{message}", match (.table, .row) {
    (Some(table), Some(row)) => format!("{table}, row {row} of the transaction: "),
    (Some(table), None) => format!("{table}: "),
    _ => String::new(),
})]
pub struct Refusal {
    /// The table, when it is known.
    pub table: Option<TableName>,
    /// The row within the transaction, from 1 on, or the first of several suspects.
    pub row: Option<usize>,
    /// The database's error number; 0 for none.
    pub code: u16,
    /// The database's error message.
    pub message: String,
}

/// Why a query to a database failed.
#[derive(Debug, Clone, Error)]
pub enum BackendError {
    /// It is unreachable now; a retry later may help.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses, and a retry would fail too: missing privileges, a wrong setting.
    #[error("{0}")]
    Refused(String),
}

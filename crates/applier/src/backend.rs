//! The seam to a database: what the workers ask of it. One implementation is MySQL, the other keeps rows in memory.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use thiserror::Error;

use crate::batch::Batch;
use crate::schema::{TableName, TableShape};
use crate::transaction::{SchemaChange, Transaction};

/// What follows the last row that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The transaction stays open, for more rows or its commit.
    StayOpen,
    /// The transaction is committed in the same breath.
    Commit,
}

/// Whose commit a batch follows that commits in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Everything before it is committed, and that is known.
    First,
    /// The batch before it has taken its turn in another session, and commits or fails now.
    Next,
}

/// A database that transactions are applied to. It locks the rows that a transaction writes until the commit.
pub trait Backend: Send + Sync + 'static {
    /// The type of its sessions; each worker has one.
    type Session: Session;

    /// Whether its sessions can commit several transactions as one, and pass on the turn to do so: see
    /// [`Session::write_in_turn`].
    fn commits_as_one(&self) -> bool {
        false
    }

    /// Opens a session for a worker.
    fn open(&self) -> impl Future<Output = Result<Self::Session, BackendError>> + Send;

    /// What is committed: the only checkpoint. A call of a session that was lost may still be under way; whatever it commits
    /// later, nothing is committed twice.
    fn executed(&self) -> impl Future<Output = Result<GtidSet, BackendError>> + Send;

    /// Tables as they are now, in the order of their names, which are different ones; `None` where there is no such table.
    /// What is answered is used until a barrier changes it, and a question is worth saving.
    fn tables(
        &self,
        names: &[TableName],
    ) -> impl Future<Output = Result<Vec<Option<TableShape>>, BackendError>> + Send;

    /// Called when a barrier changes tables, before the next question about any and never during one: what was found out for
    /// earlier questions may be so no longer.
    fn schema_changed(&self, change: &SchemaChange) {
        let _ = change;
    }

    /// Called when a run begins, before its sessions are opened: what is committed. Nothing that an earlier run has left under
    /// way is committed from here on.
    fn begin(&self) -> impl Future<Output = Result<GtidSet, BackendError>> + Send {
        self.executed()
    }

    /// Called when the sessions have ended: what is committed is known to everybody who asks the database when it returns.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Which sessions hold up `waiting`, a session that has not finished a write for a while: locks of transactions that
    /// come later in the log, and have to step back.
    fn blockers(
        &self,
        waiting: SessionId,
    ) -> impl Future<Output = Result<Vec<SessionId>, BackendError>> + Send;
}

/// A session's number in its database (MySQL's connection id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One session: one transaction at a time. A call that is dropped makes it unusable.
pub trait Session: Send {
    /// The database's number of the session, as [`Backend::blockers`] names it.
    fn id(&self) -> SessionId;

    /// Writes some rows of a batch, in order. Row 0 begins it.
    ///
    /// # Errors
    /// The batch is rolled back, unless the session is lost: then its outcome is only known by
    /// [`Backend::executed`].
    fn write(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Writes rows of a batch that commits as one, its last ones (or none, when all are written), and commits it in its turn:
    /// not before the batch before it is committed, as far as readers and a crash can tell. `passed` is called as soon as the
    /// turn is taken: from then on the next batch may be asked for its own, while this one's commit is under way. Only asked
    /// for where [`Backend::commits_as_one`] says so.
    ///
    /// # Errors
    /// As for [`Session::write`]; [`WriteError::Again`] when the batch before it was not committed after all.
    /// [`WriteError::Refused`] may mean that its transactions cannot be committed as one: [`Session::apply`] tells more.
    fn write_in_turn(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        turn: Turn,
        passed: impl FnMut() + Send,
    ) -> impl Future<Output = Result<(), WriteError>> + Send {
        let _ = (turn, passed);
        self.write(batch, rows, Then::Commit)
    }

    /// Commits the batch whose rows are written. With nothing written: an empty transaction with its GTID.
    ///
    /// # Errors
    /// As for [`Session::write`].
    fn commit(&mut self, batch: &Arc<Batch>)
    -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Applies the transactions of a batch one after the other, from the `from`th on, each committed under its own GTID before
    /// the next begins. Stops at the first that fails; what was committed before it stays. Returns how many were committed, and
    /// why no more.
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

    /// Takes an open transaction back.
    ///
    /// # Errors
    /// When the session is lost.
    fn roll_back(&mut self) -> impl Future<Output = Result<(), WriteError>> + Send;
}

/// Why a write was not done.
#[derive(Debug, Clone, Error)]
pub enum WriteError {
    /// A deadlock or a lock that was not had in time: the transaction is rolled back and may be applied again.
    #[error("{0}")]
    Again(String),
    /// The connection is gone. Whether a commit that was asked for happened is not known.
    #[error("{0}")]
    Lost(String),
    /// The database refuses it, and would do so again.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

/// What a database refuses, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{words}", match (.table, .row) {
    (Some(table), Some(row)) => format!("{table}, row {row} of the transaction: "),
    (Some(table), None) => format!("{table}: "),
    _ => String::new(),
})]
pub struct Refusal {
    /// The table, when it is known.
    pub table: Option<TableName>,
    /// The row within the transaction, from 1 on, or the first of the rows among which it is.
    pub row: Option<usize>,
    /// The database's error number; 0 for none.
    pub code: u16,
    /// The text of the database's error.
    pub words: String,
}

/// Why a database could not be asked.
#[derive(Debug, Clone, Error)]
pub enum BackendError {
    /// It cannot be reached now; asking again later may help.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses, and would do so again: rights are missing, a setting is not as it must be.
    #[error("{0}")]
    Refused(String),
}

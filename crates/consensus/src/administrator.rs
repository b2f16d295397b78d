//! What a member's Raft needs of the administration of its ring, which is in a crate above this one: the formats of the log, and answers
//! about the member's mysqld and the ring's history.

use std::io;

use futures::future::BoxFuture;
use openraft::raft::AppendEntriesRequest;
use raft_types::{FormatMismatch, FormatVersion, HistoryEntry, StoredMembership, TypeConfig};
use thiserror::Error;

use crate::calls::DatabaseState;

/// Why a member cannot use data of a format.
#[derive(Debug, Error)]
pub enum FormatError {
    /// This program does not support it.
    #[error("the ring has gone on to {0}")]
    Unsupported(#[from] FormatMismatch),
    /// Its data directory could not record the format.
    #[error("the data directory cannot be raised to format {format}: {error}")]
    Directory {
        /// The format to be recorded.
        format: FormatVersion,
        /// The error of the write.
        error: io::Error,
    },
}

/// The administration of a ring by one of its members.
pub trait Administrator: Send + Sync + 'static {
    /// Checks the newest membership of the log, before anything is started over that log.
    ///
    /// # Errors
    /// The ring uses a format that this program does not support.
    fn check(&self, membership: &StoredMembership) -> Result<(), FormatMismatch>;

    /// Receives the newest membership of the log when it may have changed, before the leadership under it is published.
    fn note_membership(&self, membership: &StoredMembership);

    /// Prepares the data directory for a log that begins with this membership.
    ///
    /// # Errors
    /// [`FormatError`]; the log must stay as it is then.
    fn prepare_for(&self, membership: &StoredMembership) -> Result<(), FormatError>;

    /// Prepares the data directory for a leader's entries; false refuses them.
    fn accept_entries(&self, request: &AppendEntriesRequest<TypeConfig>) -> bool;

    /// Records why this member accepts no entries, as text, until it accepts some.
    fn entries_refused(&self, why: &str);

    /// The cost of a promotion of this member, after a primary of this version; `None` without a mysqld.
    fn database_state(&self, primary: Option<String>) -> BoxFuture<'_, Option<DatabaseState>>;

    /// Keeps events that another member has recorded until the ring's history has them.
    fn keep_events(&self, entries: Vec<HistoryEntry>);
}

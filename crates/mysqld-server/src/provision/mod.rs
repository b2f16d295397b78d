//! Replaces the data of a mysqld that can no longer follow with a copy of another member's data, by MySQL's clone plugin. The *donor*
//! creates an account for this one copy, under a unique name. The *recipient*'s data are replaced, and its mysqld restarts.
//!
//! The account is the proof of a complete copy: it is in the recipient's tables if and only if the copy is complete. A
//! [note](ProvisionNote) on disk blocks all other actions on the server from before the first removal until that proof.

mod donor;
mod local_copy;
mod note;
pub(crate) mod other_engines;
mod recipient;

use mysql_link::LinkError;
use thiserror::Error;

pub use crate::closed_server::execute_instead;
pub use crate::provision::donor::{CloneAccount, CloneOffer, NoCloneAccount, offer, withdraw};
pub use crate::provision::local_copy::{
    CopyUnderWay, LocalCopy, LocalSource, copy_under_way, end_copy, executed, executed_and_applied,
    local_source, ready_for_copies,
};
pub use crate::provision::note::{NoteStep, ProvisionNote};
pub use crate::provision::recipient::{
    BeforeALook, CopyState, copy, finish, log_place, look, make_ready, prepared_transactions,
    roll_back_prepared, schema_sizes,
};

/// Why a step of provisioning failed at a mysqld, with what an operator must check.
#[derive(Debug, Error)]
pub enum ProvisionError {
    /// mysqld refused a statement, or cannot be reached.
    #[error("{what}: {source}")]
    Server {
        /// The purpose of the statement.
        what: &'static str,
        /// The error of the statement or connection.
        source: Box<LinkError>,
    },
    /// mysqld's answer is invalid.
    #[error("{what} cannot be read from mysqld's answer")]
    Answer {
        /// Name of the queried value.
        what: &'static str,
    },
    /// The donor has tables whose rows a copy would lack.
    #[error(
        "a copy would have no rows of tables of other engines than InnoDB, as {0}; ALTER TABLE … ENGINE = InnoDB at the primary, or drop them"
    )]
    OtherEngines(String),
    /// The donor's data are encrypted, and the recipient cannot decrypt them.
    #[error(
        "the donor's data are encrypted, and this mysqld has no keyring at work: its copy could not be read; start it with one, or name \
         another donor"
    )]
    NoKeyring,
    /// Another session repeatedly sets `super_read_only` on the recipient, which must be off for the copy. Nothing was removed.
    #[error(
        "another session sets super_read_only at this mysqld, under which no copy begins; find it, and run the command again"
    )]
    Closed,
    /// Commits wait for an ACK in this mysqld. A restart would complete them without an ACK.
    #[error(
        "commits wait for an ACK in this mysqld, and would be let through; wait until it was started again"
    )]
    CommitsWait,
}

/// Adds the purpose of a statement to its error.
trait At<T> {
    fn at(self, what: &'static str) -> Result<T, ProvisionError>;
}

impl<T> At<T> for Result<T, LinkError> {
    fn at(self, what: &'static str) -> Result<T, ProvisionError> {
        self.map_err(|source| ProvisionError::Server {
            what,
            source: Box::new(source),
        })
    }
}

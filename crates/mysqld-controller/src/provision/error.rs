//! Why a step of a provisioning did not work, told so that an operator knows what to check.

use mysql_link::LinkError;
use thiserror::Error;

/// Why a step of provisioning failed at a mysqld.
#[derive(Debug, Error)]
pub enum ProvisionError {
    /// mysqld refused a statement, or cannot be reached.
    #[error("{what}: {source}")]
    Server {
        /// What the statement was to do.
        what: &'static str,
        /// The error of the statement or connection.
        source: LinkError,
    },
    /// mysqld's answer makes no sense.
    #[error("{what} cannot be read from mysqld's answer")]
    Answer {
        /// Name of the value that was asked for.
        what: &'static str,
    },
    /// The donor has tables, which are named, that a copy would have without their rows.
    #[error(
        "a copy would have no rows of tables whose engine is not InnoDB, as {0}; ALTER TABLE … ENGINE = InnoDB at the primary, or drop them"
    )]
    OtherEngines(String),
    /// The donor's data are encrypted, and the recipient has nothing to read them with.
    #[error(
        "the donor's data are encrypted, and this mysqld has no keyring at work: its copy could not be read; start it with one, or name \
         another donor"
    )]
    NoKeyring,
    /// Somebody closes the recipient for writes again and again, which a copy needs. Nothing was removed.
    #[error(
        "somebody sets super_read_only at this mysqld, under which no copy begins; find who does, and run the command again"
    )]
    Closed,
    /// Sessions of this mysqld wait for an acknowledgement; a restart would let their commits through.
    #[error(
        "commits wait for an ACK in this mysqld, and would be let through; wait until it was started again"
    )]
    CommitsWait,
}

impl ProvisionError {
    pub(super) fn at(what: &'static str) -> impl FnOnce(LinkError) -> Self {
        move |source| Self::Server { what, source }
    }
}

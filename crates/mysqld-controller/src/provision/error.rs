//! Why a step of a provisioning did not work, told so that an operator knows what to check.

use mysql_link::LinkError;
use thiserror::Error;

/// See the module.
#[derive(Debug, Error)]
pub enum ProvisionError {
    /// mysqld refused a statement, or cannot be reached.
    #[error("{what}: {source}")]
    Server {
        /// What was tried.
        what: &'static str,
        /// What mysqld said.
        source: LinkError,
    },
    /// mysqld's answer makes no sense.
    #[error("{what} cannot be read from mysqld's answer")]
    Answer {
        /// What was asked for.
        what: &'static str,
    },
    /// Commits wait in it.
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

//! Why a member does not start, or why it ends.

use std::io;
use std::path::{Path, PathBuf};

use binlog_store::{CutBackError, OpenError, StoreError};
use consensus::{Fault, StartError};
use ring_admin::{BootstrapError, IdentityError};
use thiserror::Error;
use transport::{RingBootstrapError, TlsError};

use crate::data_directory::{IdentityFileError, LockError};

/// Why a member did not start, or why it ended.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The data directory cannot be created.
    #[error("the data directory {path} cannot be made: {source}", path = path.display())]
    DataDir {
        /// `data_dir` of the configuration.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process has locked the data directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The data directory's identity cannot be used.
    #[error(transparent)]
    IdentityFile(#[from] IdentityFileError),
    /// The data directory cannot join the ring.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The files for TLS between members cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened on.
    #[error("`{key}` {address} cannot be listened at: {source}")]
    Listen {
        /// The configuration key that holds the address.
        key: &'static str,
        /// The configured address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server for the other members' calls failed.
    #[error("the listener for other members cannot be used: {0}")]
    Serve(io::Error),
    /// The log must be truncated, and cannot be.
    #[error(transparent)]
    CutBack(#[from] CutBackError),
    /// The transactions before the log cannot be parsed.
    #[error("{path} is damaged: the log's origin is no GTID set ({reason})", path = path.display())]
    Origin {
        /// The identity file that holds the set.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The ring could not be bootstrapped.
    #[error(transparent)]
    RingBootstrap(#[from] RingBootstrapError),
    /// The hard state next to the log cannot be opened.
    #[error("the hard state in {path} cannot be opened: {source}", path = path.display())]
    Meta {
        /// The directory of the hard state, `meta/`.
        path: PathBuf,
        /// The error of the hard state's database.
        source: io::Error,
    },
    /// A password file cannot be used.
    #[error("cannot use the file of `{key}`: {source}")]
    PasswordFile {
        /// The configuration key that names the file.
        key: &'static str,
        /// The file's path, and the error.
        source: io::Error,
    },
    /// The binlog server cannot serve.
    #[error("the binlog server cannot listen: {0}")]
    BinlogServer(io::Error),
    /// The binlog server's certificate cannot be used.
    #[error(transparent)]
    BinlogServerTls(TlsError),
    /// The log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The ring's first entry was not written.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The log failed while the member ran.
    #[error(transparent)]
    Store(StoreError),
    /// The engine failed while the member ran.
    #[error(transparent)]
    Engine(Fault),
    /// An essential task ended.
    #[error("{what} ended: {why}")]
    Ended {
        /// Name of the task.
        what: &'static str,
        /// Its error.
        why: String,
    },
}

impl MemberError {
    pub(crate) fn ended(what: &'static str, why: impl ToString) -> Self {
        let why = why.to_string();
        Self::Ended { what, why }
    }

    pub(crate) fn password_file(key: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::PasswordFile { key, source }
    }

    pub(crate) fn data_dir(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::DataDir { path, source }
    }
}

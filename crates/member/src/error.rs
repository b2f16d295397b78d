//! Why a member does not start, or does not go on.

use std::io;
use std::path::PathBuf;

use binlog_store::{CutBackError, OpenError, StoreError};
use consensus::{BootstrapError, Fault, IdentityError, StartError};
use thiserror::Error;
use transport::{RingBootstrapError, ServeError, TlsError};

use crate::data_directory::{IdentityFileError, LockError};

/// Why a member did not start, or why it ended.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The data directory cannot be made.
    #[error("the data directory {path} cannot be made: {source}", path = path.display())]
    DataDir {
        /// `data_dir` of the configuration.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process has the data directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The data directory is somebody else's.
    #[error(transparent)]
    IdentityFile(#[from] IdentityFileError),
    /// The data directory does not join the ring.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The files for TLS between members cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened at.
    #[error("`{key}` {address} cannot be listened at: {source}")]
    Listen {
        /// The configuration key that holds the address.
        key: &'static str,
        /// The address as the configuration says it.
        address: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The other members' calls cannot be taken in.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The log has to be cut back and cannot be.
    #[error(transparent)]
    CutBack(#[from] CutBackError),
    /// What the log begins behind is not readable.
    #[error("{path} is damaged: the log's origin is no GTID set ({reason})", path = path.display())]
    Origin {
        /// The identity file that holds the set.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The ring could not be bootstrapped.
    #[error(transparent)]
    RingBootstrap(#[from] RingBootstrapError),
    /// The hard state beside the log cannot be opened.
    #[error("the hard state in {path} cannot be opened: {source}", path = path.display())]
    Meta {
        /// The directory of the hard state, `meta/`.
        path: PathBuf,
        /// The error of its database.
        source: io::Error,
    },
    /// A password file cannot be used.
    #[error("cannot use the file of `{key}`: {source}")]
    PasswordFile {
        /// The configuration key that names the file.
        key: &'static str,
        /// The file's path, and why.
        source: io::Error,
    },
    /// The binlog server cannot serve.
    #[error(transparent)]
    BinlogServer(#[from] binlog_server::ServerError),
    /// The binlog server's certificate cannot be used.
    #[error(transparent)]
    BinlogServerTls(binlog_server::TlsError),
    /// The log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The ring got no first entry.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The log failed while the member ran.
    #[error(transparent)]
    Store(StoreError),
    /// The engine failed while the member ran.
    #[error(transparent)]
    Engine(Fault),
    /// A part of the member ended that must not end.
    #[error("{what} ended: {why}")]
    Ended {
        /// The task of the member that ended.
        what: &'static str,
        /// The error with which it ended.
        why: String,
    },
}

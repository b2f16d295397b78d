//! Who the server is, who may log in, and its bounds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mysql_link::Secret;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// The one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User name that a client logs in with.
    pub user: String,
    /// Password that a client logs in with; whoever logs in after it was renewed needs the new one.
    pub password: Secret,
}

/// As whom the server speaks. Stable, and unlike every other server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Answers `@@server_id` and stands in the packets of the dump; never 0.
    pub server_id: u32,
    /// Answers `@@server_uuid`.
    pub server_uuid: Uuid,
    /// The member's name, for messages.
    pub name: String,
}

/// PEM files of the server's certificate, with what leads up to its CA, and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// Path of the certificate's file.
    pub certificate_file: PathBuf,
    /// Path of the private key's file.
    pub key_file: PathBuf,
}

/// What a binlog server is configured with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The account that may log in.
    pub account: Account,
    /// As whom the server speaks.
    pub identity: ServerIdentity,
    /// The server's side of TLS; `None` offers none.
    pub tls: Option<ServerTls>,
    /// Whether a login without TLS is refused.
    pub require_tls: bool,
    /// The most clients at one time, of those that have logged in.
    pub max_connections: usize,
    /// Bytes read from the log that wait for one client.
    pub queue_bytes: usize,
    /// From the connection to the end of the login.
    pub login_limit: Duration,
    /// Silence of a client between two commands.
    pub idle_limit: Duration,
    /// How long a client may take nothing of what waits for it.
    pub stall_limit: Duration,
    /// How long a replica that is ahead of this log waits for it to catch up.
    pub catch_up_limit: Duration,
}

impl ServerOptions {
    /// The smallest queue: several reads of the log.
    pub const MIN_QUEUE_BYTES: usize = 256 << 10;

    /// With the usual bounds, without TLS.
    pub fn new(account: Account, identity: ServerIdentity) -> Self {
        Self {
            account,
            identity,
            tls: None,
            require_tls: false,
            max_connections: 100,
            queue_bytes: 4 << 20,
            login_limit: Duration::from_secs(10),
            idle_limit: Duration::from_secs(8 * 3600),
            stall_limit: Duration::from_secs(60),
            catch_up_limit: Duration::from_secs(20),
        }
    }

    /// Checks what must be right before anything is served.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.identity.server_id == 0 || self.identity.server_uuid.is_nil() {
            return Err(OptionsError::Identity);
        }
        if self.account.user.is_empty() || self.account.password.reveal().is_empty() {
            return Err(OptionsError::Account);
        }
        if self.require_tls && self.tls.is_none() {
            return Err(OptionsError::NoCertificate);
        }
        if self.queue_bytes < Self::MIN_QUEUE_BYTES || self.max_connections == 0 {
            return Err(OptionsError::Bounds);
        }
        Ok(())
    }
}

/// Options that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// Replicas could not tell the server from others.
    #[error("the server id is 0 or the server UUID is nil: give the server its own")]
    Identity,
    /// Anybody could read every row.
    #[error("the account has no name or no password: give it both")]
    Account,
    /// TLS is required, and there is no certificate to offer it with.
    #[error("TLS is required, but there is no certificate: name its file and its key's")]
    NoCertificate,
    /// A bound is so small that no client could be served.
    #[error(
        "the queue is smaller than {} bytes, or no connection is allowed",
        ServerOptions::MIN_QUEUE_BYTES
    )]
    Bounds,
}

// The server's side of TLS, by rustls.

/// Files that do not give a TLS configuration.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("the {what} cannot be read from {path}: {reason}", path = path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser or of the operating system.
        reason: String,
    },
    /// Certificate and key do not go together, or are of a kind that is not known.
    #[error("certificate and key of the binlog server cannot be used: {0}")]
    Rejected(String),
}

impl TlsError {
    /// The file that cannot be used, where it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Rejected(_) => None,
        }
    }
}

/// The server's side of TLS: its certificate and key, loaded. Clones share them: renewed in one place, they are shown to everybody
/// who connects from then on.
#[derive(Clone)]
pub struct ServerTls(Arc<watch::Sender<TlsAcceptor>>);

impl ServerTls {
    /// Loads the files of certificate and key.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: &ServerCertificate) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(watch::Sender::new(acceptor(files)?))))
    }

    /// Takes another one's place, for all clones.
    pub fn renew(&self, newer: &Self) {
        self.0.send_replace(newer.acceptor());
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.borrow().clone()
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

fn acceptor(files: &ServerCertificate) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(&files.certificate_file)?;
    let key = PrivateKeyDer::from_pem_file(&files.key_file)
        .map_err(|error| file_error("private key", &files.key_file, &error))?;
    let rejected = |error: rustls::Error| TlsError::Rejected(error.to_string());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(rejected)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(rejected)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| file_error("certificate", path, &error))?;
    if found.is_empty() {
        let none = "there is no certificate in it";
        return Err(file_error("certificate", path, &none));
    }
    Ok(found)
}

fn file_error(what: &'static str, path: &Path, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::File {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

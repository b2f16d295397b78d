//! The server's side of TLS, by rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::options::ServerCertificate;

/// Files that do not give a TLS configuration.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("the {what} cannot be read from {path}: {reason}", path = path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Certificate and key do not go together, or are of a kind that is not known.
    #[error("certificate and key of the binlog server cannot be used: {0}")]
    Rejected(String),
}

/// Loads certificate and key.
pub(crate) fn acceptor(files: &ServerCertificate) -> Result<TlsAcceptor, TlsError> {
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

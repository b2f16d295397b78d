//! TLS towards a mysqld, by rustls: which mode, which files, and how a handshake failure is explained.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// How much of TLS is demanded; the names and meanings are those of MySQL's own `--ssl-mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never, even when the server offers it.
    Disabled,
    /// When the server offers it and the handshake succeeds; the certificate is not checked.
    #[default]
    Preferred,
    /// Always; the certificate is not checked.
    Required,
    /// Always; the certificate must come from the CA file.
    VerifyCa,
    /// Always; the certificate must come from the CA file and be that of the host we connect to.
    VerifyIdentity,
}

impl TlsMode {
    /// Whether a connection without TLS is out of the question.
    pub fn is_demanded(self) -> bool {
        matches!(self, Self::Required | Self::VerifyCa | Self::VerifyIdentity)
    }

    /// Whether a CA file is needed.
    pub fn needs_ca(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "disabled",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::VerifyCa => "verify_ca",
            Self::VerifyIdentity => "verify_identity",
        })
    }
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Disabled, Self::Preferred, Self::Required, Self::VerifyCa, Self::VerifyIdentity]
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| {
                format!("`{text}` is not a TLS mode: use disabled, preferred, required, verify_ca or verify_identity")
            })
    }
}

/// A certificate of ours, for accounts that demand one (`REQUIRE X509` and its kin).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM file with the certificate and what leads up to its CA.
    pub certificate_file: PathBuf,
    /// PEM file with its private key.
    pub key_file: PathBuf,
}

/// How to use TLS. The files are read at each connection, so that renewed ones take effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// When TLS is used, and what is checked.
    pub mode: TlsMode,
    /// PEM file with the CA's certificates; needed by the two verifying modes.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key that the client shows; `None` shows none.
    pub client_certificate: Option<ClientCertificate>,
}

impl TlsOptions {
    /// Reads the files as a connection does.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn check(&self) -> Result<(), TlsConfigError> {
        match self.mode {
            TlsMode::Disabled => Ok(()),
            _ => connector(self, "localhost").map(drop),
        }
    }
}

/// Files of ours that do not give a TLS configuration.
#[derive(Debug, Error)]
pub enum TlsConfigError {
    /// A verifying mode without something to verify against.
    #[error(
        "TLS mode `{0}` needs a CA file: name the PEM file of the CA that signed mysqld's certificate (often ca.pem in its datadir)"
    )]
    NoCaFile(TlsMode),
    /// A file cannot be read as PEM.
    #[error("cannot read the {what} from {path}: {reason}")]
    File {
        /// What should be in it.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser or of the operating system.
        reason: String,
    },
    /// rustls does not take them.
    #[error("the TLS configuration is not usable: {0}")]
    Rejected(String),
    /// The host is neither a name nor an address.
    #[error("`{0}` is not a host name for TLS")]
    ServerName(String),
}

impl TlsConfigError {
    /// The file that cannot be used, where it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

// From [`TlsOptions`] to a rustls connector, and from a rustls error to advice.

/// A connector for one connection to `host`, and the name it asks for.
pub(crate) fn connector(
    options: &TlsOptions,
    host: &str,
) -> Result<(TlsConnector, ServerName<'static>), TlsConfigError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(options, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::Rejected(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match &options.client_certificate {
        None => builder.with_no_client_auth(),
        Some(ours) => {
            let chain = certificates("client certificate", &ours.certificate_file)?;
            let key = PrivateKeyDer::from_pem_file(&ours.key_file)
                .map_err(|error| file_error("client key", &ours.key_file, error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsConfigError::Rejected(error.to_string()))?
        }
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| TlsConfigError::ServerName(host.to_owned()))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn verifier(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
    if !options.mode.needs_ca() {
        return Ok(Arc::new(AnyCertificate::new(
            provider.signature_verification_algorithms,
        )));
    }
    let path = options
        .ca_file
        .as_deref()
        .ok_or(TlsConfigError::NoCaFile(options.mode))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("CA certificates", path)? {
        roots
            .add(certificate)
            .map_err(|error| file_error("CA certificates", path, error))?;
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| file_error("CA certificates", path, error))?;
    Ok(match options.mode {
        TlsMode::VerifyIdentity => verifier,
        _ => Arc::new(AnyName::new(verifier)),
    })
}

fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let pem = std::fs::read(path).map_err(|error| file_error(what, path, error))?;
    certificates_in(&pem, what, path)
}

/// The certificates of what a file holds.
pub(crate) fn certificates_in(
    pem: &[u8],
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| file_error(what, path, error))?;
    if found.is_empty() {
        return Err(file_error(what, path, "there is no certificate in it"));
    }
    Ok(found)
}

fn file_error(what: &'static str, path: &Path, reason: impl ToString) -> TlsConfigError {
    TlsConfigError::File {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// What an operator should check after this failure.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    let Some(rustls::Error::InvalidCertificate(why)) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return "Check that mysqld and this member have a TLS version in common, and its error log";
    };
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "The CA file is not that of the CA which signed mysqld's certificate"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "The certificate is for another host: connect by a name in its subjectAltName, or use mode `verify_ca`"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "mysqld's certificate has expired: renew it and run ALTER INSTANCE RELOAD TLS"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "mysqld's certificate is not valid yet: check the clocks of both machines"
        }
        _ => "mysqld's certificate is not acceptable",
    }
}

// The two modes that check less than rustls does by itself: any certificate (`preferred`,
// `required`), and a certificate of the CA whatever its name (`verify_ca`; the certificates that
// mysqld makes for itself carry no host name). Handshake signatures are checked in both.

/// Takes whatever certificate the server shows.
#[derive(Debug)]
pub(crate) struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    pub(crate) fn new(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { algorithms }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Takes a certificate that the CA signed, for whatever host.
#[derive(Debug)]
pub(crate) struct AnyName {
    inner: Arc<WebPkiServerVerifier>,
}

impl AnyName {
    pub(crate) fn new(inner: Arc<WebPkiServerVerifier>) -> Self {
        Self { inner }
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // rustls checks the chain before the name, so a name error means that the chain is good.
        match self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_round_trip() {
        for mode in [
            "disabled",
            "preferred",
            "required",
            "verify_ca",
            "verify_identity",
        ] {
            assert_eq!(
                mode.parse::<TlsMode>().map(|mode| mode.to_string()),
                Ok(mode.to_owned())
            );
        }
        assert!("verify".parse::<TlsMode>().is_err());
    }
}

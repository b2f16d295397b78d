//! TLS connections to a mysqld with rustls: modes, files, and advice after a failed handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use derive_more::Display;
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

/// The required level of TLS. Names and meanings are those of MySQL's `--ssl-mode`.
#[derive(Debug, Display, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS, even if the server offers it.
    #[display("disabled")]
    Disabled,
    /// TLS if the server offers it and the handshake succeeds. The certificate is not checked.
    #[default]
    #[display("preferred")]
    Preferred,
    /// Always TLS. The certificate is not checked.
    #[display("required")]
    Required,
    /// Always TLS. A CA of the CA file must have signed the certificate.
    #[display("verify_ca")]
    VerifyCa,
    /// Always TLS. A CA of the CA file must have signed the certificate, and the certificate must name the server's host.
    #[display("verify_identity")]
    VerifyIdentity,
}

/// The error for a text that is not a TLS mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a TLS mode: use disabled, preferred, required, verify_ca or verify_identity")]
pub struct TlsModeError(String);

impl FromStr for TlsMode {
    type Err = TlsModeError;

    fn from_str(text: &str) -> Result<Self, TlsModeError> {
        use TlsMode::{Disabled, Preferred, Required, VerifyCa, VerifyIdentity};
        let mut all = [Disabled, Preferred, Required, VerifyCa, VerifyIdentity].into_iter();
        let known = all.find(|mode| mode.to_string() == text);
        known.ok_or_else(|| TlsModeError(text.to_owned()))
    }
}

/// The client's certificate, for accounts that demand one (`REQUIRE X509` and similar).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM file with the certificate and the intermediate ones up to its CA.
    pub certificate_file: PathBuf,
    /// PEM file with its private key.
    pub key_file: PathBuf,
}

/// The options of TLS. The files are read for each connection, so renewed files take effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// When TLS is used, and what is checked.
    pub mode: TlsMode,
    /// PEM file with the CA's certificates; required for `verify_ca` and `verify_identity`.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and key; `None` sends none.
    pub client_certificate: Option<ClientCertificate>,
}

impl TlsOptions {
    /// Reads the files in the same way as a connection.
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

/// The error for files that cannot be used for TLS.
#[derive(Debug, Error)]
pub enum TlsConfigError {
    /// The mode verifies certificates, and no CA file is configured.
    #[error(
        "TLS mode `{0}` needs a CA file: name the PEM file of the CA that signed mysqld's certificate (often ca.pem in its datadir)"
    )]
    NoCaFile(TlsMode),
    /// A file cannot be read as PEM.
    #[error("cannot read the {what} from {path}: {reason}")]
    File {
        /// The expected content of the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser or of the operating system.
        reason: String,
    },
    /// rustls rejects the configuration.
    #[error("the TLS configuration is not usable: {0}")]
    Rejected(String),
    /// The host is neither a name nor an address.
    #[error("`{0}` is not a host name for TLS")]
    ServerName(String),
}

impl TlsConfigError {
    /// The file that cannot be used; `None` for other errors.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

// Converts [`TlsOptions`] to a rustls connector, and a rustls error to advice.

/// Returns a connector for one connection to `host`, and the host name to verify.
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
    let algorithms = provider.signature_verification_algorithms;
    if !matches!(options.mode, TlsMode::VerifyCa | TlsMode::VerifyIdentity) {
        let ca = None;
        return Ok(Arc::new(AnyName { algorithms, ca }));
    }
    let path = options.ca_file.as_deref();
    let path = path.ok_or(TlsConfigError::NoCaFile(options.mode))?;
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
        _ => Arc::new(AnyName {
            algorithms,
            ca: Some(verifier),
        }),
    })
}

fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let pem = std::fs::read(path).map_err(|error| file_error(what, path, error))?;
    certificates_in(&pem, what, path)
}

/// Parses the certificates in a file's content.
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

/// Returns what an operator should check after this failure.
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

// The modes that check less than rustls does by default. All modes check handshake signatures.

/// Accepts any certificate (`preferred`, `required`), or any certificate that the CA signed, for any host (`verify_ca`). Certificates that
/// mysqld creates for itself contain no host name.
#[derive(Debug)]
struct AnyName {
    algorithms: WebPkiSupportedAlgorithms,
    /// `None` accepts any certificate.
    ca: Option<Arc<WebPkiServerVerifier>>,
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
        let Some(ca) = &self.ca else {
            return Ok(ServerCertVerified::assertion());
        };
        // rustls checks the chain before the name, so a name error means that the chain is good.
        match ca.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
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

//! From [`TlsOptions`] to a rustls connector, and from a rustls error to advice.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::tls::verifier::{AnyCertificate, AnyName};
use crate::tls::{TlsConfigError, TlsMode, TlsOptions};

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
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| file_error(what, path, error))?;
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

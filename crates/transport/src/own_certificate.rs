//! A member's own certificate: its files, and whether other members would accept it. The verifiers of both connection ends check that before
//! it is used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::callers::{Holder, NamedRoles, Right};

/// The PEM files of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authority that signed the members' certificates.
    pub authority: PathBuf,
    /// The name that other members' certificates must have; by default the host of each one's address.
    pub peer_name: Option<String>,
    /// Operators and readers by name.
    pub roles: NamedRoles,
}

/// An unusable TLS file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be opened or read.
    #[error("{role} `{}` cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file's purpose.
        role: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not PEM, or has no block of the expected kind.
    #[error("{role} `{}` has no {what} block in PEM; check that it is the right file", .path.display())]
    Nothing {
        /// The file's purpose.
        role: &'static str,
        /// Its path.
        path: PathBuf,
        /// The expected kind of PEM block.
        what: &'static str,
    },
    /// It is PEM with invalid contents.
    #[error("{role} `{}` is damaged: {reason}", .path.display())]
    Damaged {
        /// The file's purpose.
        role: &'static str,
        /// Its path.
        path: PathBuf,
        /// The parser's error.
        reason: String,
    },
    /// Certificate and key do not match.
    #[error("the key `{}` does not belong to the certificate `{}`; check both paths", .key.display(), .certificate.display())]
    NotAPair {
        /// Path of the key file.
        key: PathBuf,
        /// Path of the certificate file.
        certificate: PathBuf,
    },
    /// It is readable, but other members reject it.
    #[error("the TLS certificate `{}` {what}: the other members do not talk to a member that shows it; {advice}", .certificate.display())]
    NobodyTalks {
        /// Path of the certificate file.
        certificate: PathBuf,
        /// The cause.
        what: String,
        /// The advice.
        advice: &'static str,
    },
}

impl TlsError {
    /// The file that cannot be used.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::Nothing { path, .. }
            | Self::Damaged { path, .. } => path,
            Self::NotAPair { key, .. } => key,
            Self::NobodyTalks { certificate, .. } => certificate,
        }
    }
}

/// Remaining validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidFor {
    /// Its file.
    pub certificate: PathBuf,
    /// Time until the first certificate in the file expires.
    pub left: Duration,
}

/// A member's own certificate, and the verifiers for others' certificates.
pub(crate) struct OwnCertificate {
    pub(crate) shown: Arc<CertifiedKey>,
    /// Verifies the called end.
    pub(crate) called: Arc<WebPkiServerVerifier>,
    /// Verifies the calling end.
    pub(crate) callers: Arc<dyn ClientCertVerifier>,
    pub(crate) files: TlsFiles,
}

impl OwnCertificate {
    /// How long other members will accept this certificate from a member that they call at `host`.
    ///
    /// # Errors
    /// Why they do not accept it.
    pub(crate) fn check(&self, host: &str, now: SystemTime) -> Result<ValidFor, TlsError> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(now.unwrap_or_default());
        let name = self.files.peer_name.as_deref().unwrap_or(host);
        self.judge(name, now)
            .map_err(|(what, advice)| TlsError::NobodyTalks {
                certificate: self.files.certificate.clone(),
                what,
                advice,
            })?;
        let end = self
            .shown
            .cert
            .iter()
            .filter_map(|der| not_after(der))
            .min();
        let left = end.unwrap_or(u64::MAX).saturating_sub(now.as_secs());
        Ok(ValidFor {
            certificate: self.files.certificate.clone(),
            left: Duration::from_secs(left),
        })
    }

    fn judge(&self, name: &str, now: UnixTime) -> Result<(), (String, &'static str)> {
        let [own, between @ ..] = self.shown.cert.as_slice() else {
            return Ok(());
        };
        // First: a reader's certificate is not valid for a host or a server either, which is the less precise error.
        let holder = Holder::of(own, &self.files.roles);
        let may = holder.may(Right::SpeakAsMember);
        may.map_err(|refusal| (format!("is of the wrong role ({refusal})"), ANOTHER))?;
        let named = ServerName::try_from(name).map_err(|_| {
            let what = format!("cannot carry `{name}`, at which the others call this member");
            (
                what,
                "give the member an address whose host is a name or an IP address",
            )
        })?;
        let called = self
            .called
            .verify_server_cert(own, between, &named, &[], now);
        let calls = || self.callers.verify_client_cert(own, between, now);
        let judged = called.map(drop).and_then(|()| calls().map(drop));
        judged.map_err(|error| self.words(&error, name))
    }

    /// The error's cause and the advice.
    fn words(&self, error: &Error, name: &str) -> (String, &'static str) {
        use CertificateError as Is;
        let Error::InvalidCertificate(error) = error else {
            return (format!("is refused: {error}"), ANOTHER);
        };
        match error {
            Is::ExpiredContext { not_after, .. } => {
                let what = format!("expired on {}", day(*not_after));
                (
                    what,
                    "put a new one there, and look whether this host's clock is right",
                )
            }
            Is::NotValidYetContext { not_before, .. } => {
                let what = format!("is not valid before {}", day(*not_before));
                (
                    what,
                    "put one there that is valid now, and look whether this host's clock is right",
                )
            }
            Is::UnknownIssuer | Is::BadSignature => {
                let authority = self.files.authority.display();
                let what = format!("is not signed by an authority of `{authority}`");
                (
                    what,
                    "check `tls.certificate_file` and `tls.ca_file`; another authority comes into every member's `tls.ca_file` first",
                )
            }
            Is::NotValidForName | Is::NotValidForNameContext { .. } => {
                let what = format!(
                    "is not for `{name}`, which the others look for when they call this member"
                );
                (what, ANOTHER)
            }
            other => (format!("is refused: {other}"), ANOTHER),
        }
    }
}

const ANOTHER: &str = "put this member's own there: `witness tls init` makes one for each member, and `witness tls show` says what is in one";

fn not_after(der: &[u8]) -> Option<u64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    certificate.validity().not_after.timestamp().try_into().ok()
}

fn day(time: UnixTime) -> String {
    let seconds = time.as_secs().try_into().unwrap_or(i64::MAX);
    ASN1Time::from_timestamp(seconds).map_or_else(
        |_| format!("second {seconds} since 1970"),
        |time| time.to_datetime().date().to_string(),
    )
}

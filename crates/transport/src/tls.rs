//! TLS between members. Each member uses one certificate and key for both ends of its connections; one authority has signed all
//! certificates. Each end verifies the other's certificate with that authority. The caller also verifies the name. Files are checked when
//! they are loaded, so that an error names the file; otherwise only handshakes would fail. The verifiers of both ends also check whether
//! other members would accept this member's own certificate.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::callers::{Holder, NamedRoles, Right};

/// The PEM files of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The member's certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// The member's private key.
    pub key: PathBuf,
    /// Certificates of the authority that signed the members' certificates.
    pub authority: PathBuf,
    /// The name that the certificates of other members must have. By default, this is the host in each member's address.
    pub peer_name: Option<String>,
    /// Operators and readers by name.
    pub roles: NamedRoles,
}

/// A TLS file that cannot be used: it cannot be read or parsed, does not match another file, or the other members would reject it.
#[derive(Debug, thiserror::Error)]
#[error("{role} `{}` {what}", .path.display())]
pub struct TlsError {
    role: &'static str,
    path: PathBuf,
    what: String,
}

impl TlsError {
    /// The file that cannot be used.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.path
    }
}

/// How long a certificate is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidFor {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// Time until the first certificate in the file expires.
    pub left: Duration,
}

/// A member's certificates and key, loaded and checked. Clones share them, so all new connections use renewed certificates. Existing
/// connections continue, as in MySQL.
#[derive(Clone)]
pub struct TlsMaterial(Arc<watch::Sender<Arc<Ends>>>);

/// The TLS configurations of both ends of connections.
struct Ends {
    accepting: TlsAcceptor,
    calling: TlsConnector,
    shown: Arc<CertifiedKey>,
    /// Verifies the called end.
    called: Arc<WebPkiServerVerifier>,
    /// Verifies the calling end.
    callers: Arc<dyn ClientCertVerifier>,
    files: TlsFiles,
}

const CERTIFICATE: &str = "the TLS certificate";
const KEY: &str = "the TLS key";
const AUTHORITY: &str = "the TLS authority";

impl TlsMaterial {
    /// Loads and checks the files.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let certificate = read(CERTIFICATE, &files.certificate)?;
        let (key, authority) = (read(KEY, &files.key)?, read(AUTHORITY, &files.authority)?);
        Self::of(files, &certificate, &key, &authority)
    }

    /// Creates the material from the contents of the files.
    pub(crate) fn of(
        files: &TlsFiles,
        certificate: &[u8],
        key: &[u8],
        authority: &[u8],
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (certificate, key) = ((&*files.certificate, certificate), (&*files.key, key));
        let shown = certificate_and_key(certificate, key)?;
        let own = Arc::new(SingleCertAndKey::from(shown.clone()));
        let mut roots = RootCertStore::empty();
        for root in certificates(AUTHORITY, &files.authority, authority)? {
            roots
                .add(root)
                .map_err(damaged(AUTHORITY, &files.authority))?;
        }
        let roots = Arc::new(roots);
        // A caller without a certificate of the authority is rejected.
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(damaged(AUTHORITY, &files.authority))?;
        let called = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(damaged(AUTHORITY, &files.authority))?;
        let mut accepting = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(damaged(AUTHORITY, &files.authority))?
            .with_client_cert_verifier(callers.clone())
            .with_cert_resolver(own.clone());
        let mut calling = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(damaged(AUTHORITY, &files.authority))?
            .with_webpki_verifier(called.clone())
            .with_client_cert_resolver(own);
        // Sessions are not resumed, because the validity of the certificate would not be checked again on either end.
        accepting.session_storage = Arc::new(NoServerSessionStorage {});
        accepting.send_tls13_tickets = 0;
        calling.resumption = Resumption::disabled();
        accepting.alpn_protocols.push(HTTP2.to_vec());
        calling.alpn_protocols.push(HTTP2.to_vec());
        Ok(Self(Arc::new(watch::Sender::new(Arc::new(Ends {
            accepting: Arc::new(accepting).into(),
            calling: Arc::new(calling).into(),
            shown,
            called,
            callers,
            files: files.clone(),
        })))))
    }

    /// Replaces the material of all clones.
    pub fn renew(&self, newer: &Self) {
        self.0.send_replace(newer.now());
    }

    /// Returns a future that resolves at the first renewal after this call.
    pub fn renewed(&self) -> impl Future<Output = ()> + use<> {
        let mut seen = self.0.subscribe();
        async move {
            // This also resolves if no more renewals are possible.
            let _ = seen.changed().await;
        }
    }

    /// Returns how long other members will accept this certificate, if they call this member at `host`, or by the common `peer_name`. Uses
    /// this member's own verifiers.
    ///
    /// # Errors
    /// Why other members do not accept the certificate.
    pub fn check(&self, host: &str, now: SystemTime) -> Result<ValidFor, TlsError> {
        self.now().check(host, now)
    }

    /// Accepts a connection.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<server::TlsStream<S>> {
        self.now().accepting.accept(stream).await
    }

    /// Opens a connection to `host`.
    pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<client::TlsStream<S>> {
        let now = self.now();
        let name = now.files.peer_name.as_deref();
        // An IPv6 address in `host` has brackets, which are removed.
        let name = name.unwrap_or_else(|| host.trim_matches(['[', ']']));
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        now.calling.connect(name, stream).await
    }

    /// Returns the holder of a caller's DER certificate.
    pub(crate) fn holder(&self, certificate: &[u8]) -> Holder {
        Holder::of(certificate, &self.now().files.roles)
    }

    fn now(&self) -> Arc<Ends> {
        self.0.borrow().clone()
    }
}

/// ALPN name of HTTP/2, the protocol within TLS.
const HTTP2: &[u8] = b"h2";

impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsMaterial")
            .field("peer_name", &self.now().files.peer_name)
            .finish_non_exhaustive()
    }
}

fn read(role: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| unusable(role, path, format!("cannot be read: {error}")))
}

fn certificates(
    role: &'static str,
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(damaged(role, path))?;
    if parsed.is_empty() {
        return Err(without_block(role, path, "CERTIFICATE"));
    }
    Ok(parsed)
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Err(pem::Error::NoItemsFound) => Err(without_block(KEY, path, "PRIVATE KEY")),
        parsed => parsed.map_err(damaged(KEY, path)),
    }
}

/// Returns a matching certificate and key. Each argument is a file's path with its contents.
fn certificate_and_key(
    (certificate, certificate_pem): (&Path, &[u8]),
    (key, key_pem): (&Path, &[u8]),
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(CERTIFICATE, certificate, certificate_pem)?;
    let signing = ring::sign::any_supported_type(&private_key(key, key_pem)?);
    let signing = signing.map_err(damaged(KEY, key))?;
    let pair = CertifiedKey::new(chain, signing);
    match pair.keys_match() {
        Ok(()) => Ok(Arc::new(pair)),
        Err(Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            let certificate = certificate.display();
            let what =
                format!("does not belong to the certificate `{certificate}`; check both paths");
            Err(unusable("the key", key, what))
        }
        Err(error) => Err(damaged(CERTIFICATE, certificate)(error)),
    }
}

fn damaged<E: Display>(role: &'static str, path: &Path) -> impl FnOnce(E) -> TlsError {
    move |error| unusable(role, path, format!("is damaged: {error}"))
}

fn without_block(role: &'static str, path: &Path, block: &str) -> TlsError {
    let what = format!("has no {block} block in PEM; check that it is the right file");
    unusable(role, path, what)
}

fn unusable(role: &'static str, path: &Path, what: String) -> TlsError {
    let path = path.to_owned();
    TlsError { role, path, what }
}

/// Returns the TLS configuration of a server whose clients need no certificates.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn server_tls(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let (certificate_pem, key_pem) = (read(CERTIFICATE, certificate)?, read(KEY, key)?);
    server_tls_of((certificate, &certificate_pem), (key, &key_pem))
}

/// Returns the TLS configuration of [`server_tls`], from the contents of the files.
pub(crate) fn server_tls_of(
    certificate: (&Path, &[u8]),
    key: (&Path, &[u8]),
) -> Result<ServerConfig, TlsError> {
    let own = SingleCertAndKey::from(certificate_and_key(certificate, key)?);
    let (certificate, _) = certificate;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(damaged(CERTIFICATE, certificate))?;
    Ok(config
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(own)))
}

impl Ends {
    /// Returns how long other members will accept this certificate, if they call this member at `host`.
    ///
    /// # Errors
    /// Why other members do not accept the certificate.
    fn check(&self, host: &str, now: SystemTime) -> Result<ValidFor, TlsError> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(now.unwrap_or_default());
        let name = self.files.peer_name.as_deref().unwrap_or(host);
        self.judge(name, now).map_err(|(what, advice)| {
            let rejected = "the other members do not talk to a member that shows it";
            let what = format!("{what}: {rejected}; {advice}");
            unusable(CERTIFICATE, &self.files.certificate, what)
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
        // The role is checked first. A reader's certificate is also not valid for a host or a server, but that error would be less precise.
        let holder = Holder::of(own, &self.files.roles);
        let may = holder.may(Right::SpeakAsMember);
        may.map_err(|refusal| (format!("is of the wrong role ({refusal})"), ANOTHER))?;
        let named = ServerName::try_from(name).map_err(|_| {
            let what = format!("cannot carry `{name}`, at which the others call this member");
            (what, NAMEABLE)
        })?;
        let server = &self.called;
        let called = server.verify_server_cert(own, between, &named, &[], now);
        let calls = || self.callers.verify_client_cert(own, between, now);
        let judged = called.map(drop).and_then(|()| calls().map(drop));
        judged.map_err(|error| self.cause(&error, name))
    }

    /// Returns the cause of the error, and advice.
    fn cause(&self, error: &Error, name: &str) -> (String, &'static str) {
        use CertificateError as Is;
        let Error::InvalidCertificate(error) = error else {
            return (format!("is refused: {error}"), ANOTHER);
        };
        match error {
            Is::ExpiredContext { not_after, .. } => {
                (format!("expired on {}", day(*not_after)), EXPIRED)
            }
            Is::NotValidYetContext { not_before, .. } => {
                let what = format!("is not valid before {}", day(*not_before));
                (what, NOT_YET_VALID)
            }
            Is::UnknownIssuer | Is::BadSignature => {
                let authority = self.files.authority.display();
                let what = format!("is not signed by an authority of `{authority}`");
                (what, WRONG_AUTHORITY)
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

const NAMEABLE: &str = "give the member an address with a name or an IP address as its host";
const EXPIRED: &str = "put a new one there, and check this host's clock";
const NOT_YET_VALID: &str = "put one there that is valid now, and check this host's clock";
const WRONG_AUTHORITY: &str = "check `tls.certificate_file` and `tls.ca_file`; another authority comes into every member's `tls.ca_file` first";

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

//! What the transport is configured with: TLS between members, and deadlines and sizes derived from the ring's timers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use consensus::Timers;
use name_lookup::LOOKUP_LIMIT;
use raft_types::{MAX_MESSAGE_BYTES, REPLICATION_WINDOW_BYTES};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::callers::{Holder, NamedRoles};
use crate::own_certificate::{OwnCertificate, ValidFor};

// TLS between members: one certificate and key for both roles, and the authority that signed everybody's. Each side verifies
// the other's certificate against it, the caller also the name. Files are checked when they are loaded, so that a mistake names
// its file instead of showing up later as a failed handshake.

/// The files of one member, all in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// The private key of it.
    pub key: PathBuf,
    /// The certificates of the authority that signed the members' certificates.
    pub authority: PathBuf,
    /// The name that the other members' certificates must carry; by default the host in the address
    /// of each.
    pub peer_name: Option<String>,
    /// Who is an operator or a reader by name.
    pub roles: NamedRoles,
}

/// Certificates and key of a member, read and checked. Clones share them: renewed in one place, they are those of every
/// connection that comes up from then on. What is connected already goes on, as it does in MySQL.
#[derive(Clone)]
pub struct TlsMaterial(Arc<watch::Sender<Arc<Ends>>>);

/// The two ends of connections.
struct Ends {
    accepting: TlsAcceptor,
    calling: TlsConnector,
    own: OwnCertificate,
}

/// What is wrong with one of the files.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file cannot be opened or read.
    #[error("{role} `{}` cannot be read: {source}", .path.display())]
    Unreadable {
        /// What the file is for.
        role: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It is not PEM, or has nothing of the kind in it.
    #[error("{role} `{}` has no {what} block in PEM; check that it is the right file", .path.display())]
    Nothing {
        /// What the file is for.
        role: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The kind of PEM block that it should hold.
        what: &'static str,
    },
    /// The file is PEM, and its content cannot be used.
    #[error("{role} `{}` is damaged: {reason}", .path.display())]
    Damaged {
        /// What the file is for.
        role: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser.
        reason: String,
    },
    /// Certificate and key are not a pair.
    #[error("the key `{}` does not belong to the certificate `{}`; check both paths", .key.display(), .certificate.display())]
    NotAPair {
        /// Path of the key's file.
        key: PathBuf,
        /// Path of the certificate's file.
        certificate: PathBuf,
    },
    /// It can be read, and whoever is shown it hangs up.
    #[error("the TLS certificate `{}` {what}: the other members do not talk to a member that shows it; {advice}", .certificate.display())]
    NobodyTalks {
        /// Path of the certificate's file.
        certificate: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
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

const CERTIFICATE: &str = "the TLS certificate";
const KEY: &str = "the TLS key";
const AUTHORITY: &str = "the TLS authority";

impl TlsMaterial {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let certificate = read(CERTIFICATE, &files.certificate)?;
        let (key, authority) = (read(KEY, &files.key)?, read(AUTHORITY, &files.authority)?);
        Self::of(files, &certificate, &key, &authority)
    }

    /// Of files that hold this.
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
            roots.add(root).map_err(|error| TlsError::Damaged {
                role: AUTHORITY,
                path: files.authority.clone(),
                reason: error.to_string(),
            })?;
        }
        let roots = Arc::new(roots);
        let unusable = |reason: &dyn std::fmt::Display| TlsError::Damaged {
            role: AUTHORITY,
            path: files.authority.clone(),
            reason: reason.to_string(),
        };
        // A caller without a certificate of the authority is turned away.
        let callers =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let callers = callers.map_err(|error| unusable(&error))?;
        let called = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let called = called.map_err(|error| unusable(&error))?;
        let mut accepting = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(callers.clone())
            .with_cert_resolver(own.clone());
        let mut calling = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_webpki_verifier(called.clone())
            .with_client_cert_resolver(own);
        // A session that is taken up again would not be asked whether its certificate is still valid, on neither side.
        accepting.session_storage = Arc::new(NoServerSessionStorage {});
        accepting.send_tls13_tickets = 0;
        calling.resumption = Resumption::disabled();
        accepting.alpn_protocols.push(HTTP2.to_vec());
        calling.alpn_protocols.push(HTTP2.to_vec());
        Ok(Self(Arc::new(watch::Sender::new(Arc::new(Ends {
            accepting: Arc::new(accepting).into(),
            calling: Arc::new(calling).into(),
            own: OwnCertificate {
                shown,
                called,
                callers,
                files: files.clone(),
            },
        })))))
    }

    /// Takes another one's place, for all clones.
    pub fn renew(&self, newer: &Self) {
        self.0.send_replace(newer.now());
    }

    /// Ends when they are renewed after this call.
    pub fn renewed(&self) -> impl Future<Output = ()> + use<> {
        let mut seen = self.0.subscribe();
        async move {
            // Without anybody who could renew them it ends as well.
            let _ = seen.changed().await;
        }
    }

    /// For how long the other members will talk to a member that shows this certificate, and that they call at `host` unless all carry
    /// one `peer_name`. What they judge it by is what it judges theirs by.
    ///
    /// # Errors
    /// Why they do not: [`TlsError::NobodyTalks`].
    pub fn check(&self, host: &str, now: SystemTime) -> Result<ValidFor, TlsError> {
        self.now().own.check(host, now)
    }

    /// The accepting end of a connection.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<server::TlsStream<S>> {
        self.now().accepting.accept(stream).await
    }

    /// The calling end of a connection to `host`.
    pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<client::TlsStream<S>> {
        let now = self.now();
        let name = now.own.files.peer_name.as_deref();
        // An IPv6 address stands in brackets there.
        let name = name.unwrap_or_else(|| host.trim_matches(['[', ']']));
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        now.calling.connect(name, stream).await
    }

    /// Whom a caller's certificate is of, in DER.
    pub(crate) fn holder(&self, certificate: &[u8]) -> Holder {
        Holder::of(certificate, &self.now().own.files.roles)
    }

    fn now(&self) -> Arc<Ends> {
        self.0.borrow().clone()
    }
}

/// What is spoken inside of TLS, as its handshake names it.
const HTTP2: &[u8] = b"h2";

impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsMaterial")
            .field("peer_name", &self.now().own.files.peer_name)
            .finish_non_exhaustive()
    }
}

fn read(role: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        role,
        path: path.to_owned(),
        source,
    })
}

fn certificates(
    role: &'static str,
    path: &Path,
    mut pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let parsed: Result<Vec<_>, _> = rustls_pemfile::certs(&mut pem).collect();
    let parsed = parsed.map_err(|error| TlsError::Damaged {
        role,
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    if parsed.is_empty() {
        return Err(TlsError::Nothing {
            role,
            path: path.to_owned(),
            what: "CERTIFICATE",
        });
    }
    Ok(parsed)
}

fn private_key(path: &Path, mut pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let parsed = rustls_pemfile::private_key(&mut pem);
    let parsed = parsed.map_err(|error| TlsError::Damaged {
        role: KEY,
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    parsed.ok_or_else(|| TlsError::Nothing {
        role: KEY,
        path: path.to_owned(),
        what: "PRIVATE KEY",
    })
}

/// A certificate and its key, which are a pair; of each the file and what it holds.
fn certificate_and_key(
    (certificate, certificate_pem): (&Path, &[u8]),
    (key, key_pem): (&Path, &[u8]),
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(CERTIFICATE, certificate, certificate_pem)?;
    let signing = ring::sign::any_supported_type(&private_key(key, key_pem)?);
    let signing = signing.map_err(|error| TlsError::Damaged {
        role: KEY,
        path: key.to_owned(),
        reason: error.to_string(),
    })?;
    let pair = CertifiedKey::new(chain, signing);
    match pair.keys_match() {
        Ok(()) => Ok(Arc::new(pair)),
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::NotAPair {
                key: key.to_owned(),
                certificate: certificate.to_owned(),
            })
        }
        Err(error) => Err(damaged(certificate, &error)),
    }
}

fn damaged(certificate: &Path, error: &rustls::Error) -> TlsError {
    TlsError::Damaged {
        role: CERTIFICATE,
        path: certificate.to_owned(),
        reason: error.to_string(),
    }
}

/// What an HTTP server shows to whoever connects to it; no certificate is asked of those.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn https_server(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let (certificate_pem, key_pem) = (read(CERTIFICATE, certificate)?, read(KEY, key)?);
    https_server_of((certificate, &certificate_pem), (key, &key_pem))
}

/// The same of files and what they hold.
pub(crate) fn https_server_of(
    certificate: (&Path, &[u8]),
    key: (&Path, &[u8]),
) -> Result<ServerConfig, TlsError> {
    let own = SingleCertAndKey::from(certificate_and_key(certificate, key)?);
    let (certificate, _) = certificate;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| damaged(certificate, &error))?;
    let mut config = config
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(own));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

// The transport's deadlines and sizes, derived from the ring's timers in one place.

/// What the transport waits for, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportConfig {
    /// How long a connection may take to come up, once the addresses of a name are known.
    pub connect_deadline: Duration,
    /// How long an operator's call may wait for those before, where none were ever found.
    pub lookup_limit: Duration,
    /// How long a call that the engine gives no deadline may take, opening a stream among them.
    pub call_deadline: Duration,
    /// How often the called end of a connection is asked whether it is there, while an answer of it is awaited. A connection that
    /// carries nothing is not asked: the greetings on it find out whether it still works.
    pub keepalive: Duration,
    /// How often the calling end is asked. It has the stall deadline for its answer, which may wait behind entries. Nobody waits for
    /// it: what a dead one left behind is let go some time.
    pub caller_keepalive: Duration,
    /// How long it may take to say so before the connection is given up.
    pub keepalive_deadline: Duration,
    /// How long nothing of what was sent over a long way may be acknowledged by the other end's system before the connection is
    /// given up. It is not asked whether it is there: behind megabytes that are under way the question would arrive too late, and
    /// more so where packets get lost.
    pub far_deadline: Duration,
    /// How long entries may be under way without anything moving, beside the time in which a slow disk (2 MiB a second)
    /// writes them: a member that writes a large transaction is silent for that long. A dead one is found by the keepalive, and over a
    /// long way by `far_deadline`.
    pub stall_deadline: Duration,
}

impl TransportConfig {
    /// The deadlines that go with a ring's timers.
    pub fn for_timers(timers: &Timers) -> Self {
        let second = Duration::from_secs(1);
        Self {
            connect_deadline: timers.lease.max(second / 2),
            lookup_limit: LOOKUP_LIMIT,
            call_deadline: timers.lease.max(second),
            keepalive: timers.heartbeat.max(second / 4),
            caller_keepalive: (timers.heartbeat * 20).max(second * 5),
            keepalive_deadline: timers.longest_election().max(second),
            far_deadline: (timers.longest_election() * 4).max(second * 10),
            stall_deadline: Duration::from_secs(30),
        }
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self::for_timers(&Timers::default())
    }
}

/// How much of a stream's entries HTTP/2 lets into the receiver before they are taken: memory is bounded by it, and so is what one
/// connection carries in a round trip.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The same for all streams of a connection: one leader's, and the end of another's.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// A large frame costs fewer of them; heartbeats never share its connection.
pub(crate) const FRAME_BYTES: u32 = 1 << 18;

const _: () = assert!(MAX_MESSAGE_BYTES <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(STREAM_WINDOW_BYTES as usize <= REPLICATION_WINDOW_BYTES);

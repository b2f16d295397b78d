//! Transport configuration: TLS between members, and deadlines and sizes derived from the ring's timers.

use std::path::Path;
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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::callers::Holder;
use crate::own_certificate::{OwnCertificate, TlsError, TlsFiles, ValidFor};

// TLS between members: one certificate and key for both roles, and the authority that signed all certificates. Each end verifies the
// other's certificate against it, the caller also the name. Files are checked when loaded, so that an error names its file instead of a
// failed handshake.

/// A member's certificates and key, loaded and checked. Clones share them: after a renewal, all new connections use the new ones. Existing
/// connections continue, as in MySQL.
#[derive(Clone)]
pub struct TlsMaterial(Arc<watch::Sender<Arc<Ends>>>);

/// Configurations of both connection ends.
struct Ends {
    accepting: TlsAcceptor,
    calling: TlsConnector,
    own: OwnCertificate,
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

    /// From the files' contents.
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
        // A caller without a certificate of the authority is rejected.
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
        // A resumed session would skip the check of the certificate's validity, on both ends.
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

    /// Replaces the material of all clones.
    pub fn renew(&self, newer: &Self) {
        self.0.send_replace(newer.now());
    }

    /// Resolves at the first renewal after this call.
    pub fn renewed(&self) -> impl Future<Output = ()> + use<> {
        let mut seen = self.0.subscribe();
        async move {
            // Also resolves when renewal is no longer possible.
            let _ = seen.changed().await;
        }
    }

    /// How long other members will accept this certificate from a member that they call at `host`, or by the common `peer_name`. Uses this
    /// member's own verifiers.
    ///
    /// # Errors
    /// Why they do not accept it: [`TlsError::NobodyTalks`].
    pub fn check(&self, host: &str, now: SystemTime) -> Result<ValidFor, TlsError> {
        self.now().own.check(host, now)
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
        let name = now.own.files.peer_name.as_deref();
        // An IPv6 address has brackets there.
        let name = name.unwrap_or_else(|| host.trim_matches(['[', ']']));
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        now.calling.connect(name, stream).await
    }

    /// The holder of a caller's DER certificate.
    pub(crate) fn holder(&self, certificate: &[u8]) -> Holder {
        Holder::of(certificate, &self.now().own.files.roles)
    }

    fn now(&self) -> Arc<Ends> {
        self.0.borrow().clone()
    }
}

/// ALPN name of the protocol within TLS.
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

/// A matching certificate and key; each file with its contents.
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

/// TLS configuration of a server for clients without certificates.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn server_tls(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let (certificate_pem, key_pem) = (read(CERTIFICATE, certificate)?, read(KEY, key)?);
    server_tls_of((certificate, &certificate_pem), (key, &key_pem))
}

/// The same from the files' contents.
pub(crate) fn server_tls_of(
    certificate: (&Path, &[u8]),
    key: (&Path, &[u8]),
) -> Result<ServerConfig, TlsError> {
    let own = SingleCertAndKey::from(certificate_and_key(certificate, key)?);
    let (certificate, _) = certificate;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| damaged(certificate, &error))?;
    Ok(config
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(own)))
}

// The transport's deadlines and sizes, derived from the ring's timers in one place.

/// Deadlines of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportConfig {
    /// Time to establish a connection after the lookup of its name.
    pub connect_deadline: Duration,
    /// Limit for the name lookup of an operator's call, if no addresses are known yet.
    pub lookup_limit: Duration,
    /// Deadline of calls without one of the engine's, including opening a stream.
    pub call_deadline: Duration,
    /// Interval of keepalive pings from a connection's called end while an answer is due. An idle connection is not pinged: its greetings
    /// detect a failure.
    pub keepalive: Duration,
    /// Ping interval of the calling end. Its deadline is the stall deadline, because the answer may wait for entries. It only ensures that
    /// dead connections are closed eventually.
    pub caller_keepalive: Duration,
    /// Time to answer a ping before the connection is closed.
    pub keepalive_deadline: Duration,
    /// Time without acknowledgements from the other end's system before a long-distance connection is closed. It is not pinged: after
    /// megabytes in flight a ping would arrive too late, especially with packet loss.
    pub far_deadline: Duration,
    /// Time for entries in flight without progress, in addition to a slow disk's time to write them (2 MiB a second): a member sends
    /// nothing while it writes a large transaction. The keepalive detects a dead member, and `far_deadline` one in another region.
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

/// Unread bytes of a stream's entries at the receiver (HTTP/2 window). It bounds the memory, and the throughput of one connection per round
/// trip.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The same for all streams of a connection: one leader's, and the end of another's.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// Larger frames need fewer of them; heartbeats never share this connection.
pub(crate) const FRAME_BYTES: u32 = 1 << 18;

const _: () = assert!(MAX_MESSAGE_BYTES <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(STREAM_WINDOW_BYTES as usize <= REPLICATION_WINDOW_BYTES);

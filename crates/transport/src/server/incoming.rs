//! Accepts connections. Each connection takes one of the port's limited places. With TLS, the caller must present a valid certificate
//! within a deadline. Silent callers do not delay others, and use a limited number of connections. This module also authorizes calls by the
//! caller's certificate.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use raft_types::lock;
use rustls::pki_types::CertificateDer;
use sockets::{ConnectionLimit, Place};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};

use crate::callers::{Holder, Right};
use crate::client::ByteStream;
use crate::local_member::{ConnectionId, LocalMember};
use crate::tls::TlsMaterial;

/// Maximum number of connections. Each member opens a few, so a ring of thirty members needs about two hundred.
const MOST_CONNECTIONS: usize = 512;

/// The answer to a call.
pub(super) type Reply<T> = Result<Response<T>, Status>;

/// A connected caller, with its address and its place.
pub(super) struct Caller(ByteStream, SocketAddr, Place);

/// Returns the callers of a listening socket.
pub(super) fn at_the_port(listener: TcpListener) -> BoxStream<'static, Caller> {
    let callers = stream::unfold((listener, limit()), |(listener, limit)| async move {
        let (stream, from, place) = limit.accept(&listener).await;
        let stream: ByteStream = Box::new(stream);
        Some((Caller(stream, from, place), (listener, limit)))
    });
    callers.boxed()
}

/// The listening end of streams that replace sockets: its address, and the incoming streams with their senders' addresses.
pub struct Listening {
    /// The address to which others connect.
    pub address: SocketAddr,
    /// The incoming streams. Ends when no more streams can arrive.
    pub callers: BoxStream<'static, (ByteStream, SocketAddr)>,
}

/// Returns the callers of streams that replace sockets.
pub(super) fn at_the_place(listening: Listening) -> BoxStream<'static, Caller> {
    let limit = limit();
    let callers = listening.callers.filter_map(move |(stream, from)| {
        let place = limit.take(from.ip());
        std::future::ready(place.map(|place| Caller(stream, from, place)))
    });
    callers.boxed()
}

fn limit() -> ConnectionLimit {
    ConnectionLimit::new("the port for members", MOST_CONNECTIONS)
}

/// Returns the connections of the callers. With TLS, only callers with a certificate of the authority are included. A handshake takes at
/// most `limit`, and does not delay other callers.
pub(super) fn connections(
    callers: impl Stream<Item = Caller>,
    local: Arc<LocalMember>,
    tls: Option<TlsMaterial>,
    limit: Duration,
) -> impl Stream<Item = io::Result<Connection>> {
    let accept = move |caller| accept(caller, local.clone(), tls.clone(), limit);
    // The number of places limits the concurrent handshakes.
    let connections = callers.map(accept).buffer_unordered(usize::MAX);
    connections.filter_map(|connection| std::future::ready(connection.map(Ok)))
}

async fn accept(
    caller: Caller,
    local: Arc<LocalMember>,
    tls: Option<TlsMaterial>,
    limit: Duration,
) -> Option<Connection> {
    let Some(tls) = tls else {
        return Some(Connection::new(caller, Arc::default(), local));
    };
    let Caller(stream, from, place) = caller;
    let secured = tokio::select! {
        secured = tokio::time::timeout(limit, tls.accept(stream)) => {
            secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        () = place.lost() => Err(io::Error::other("others needed its place")),
    };
    match secured {
        Ok(secured) => {
            let certificates = secured.get_ref().1.peer_certificates();
            let certificates = certificates.unwrap_or_default().into();
            let caller = Caller(Box::new(secured), from, place);
            Some(Connection::new(caller, certificates, local))
        }
        Err(error) => {
            tracing::debug!(caller = %from, %error, "a caller was turned away by the TLS handshake");
            None
        }
    }
}

/// An accepted connection, until it is closed.
pub(super) struct Connection {
    stream: ByteStream,
    local: Arc<LocalMember>,
    over: CalledOver,
    /// Resolves when another connection takes this connection's place; `None` after the connection keeps its place.
    lost: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Connection {
    fn new(
        Caller(stream, address, place): Caller,
        certificates: Arc<[CertificateDer<'static>]>,
        local: Arc<LocalMember>,
    ) -> Self {
        let lost = Some(Box::pin(place.lost()));
        Self {
            stream,
            over: CalledOver {
                connection: local.connections.opens(),
                address,
                certificates,
                place: Arc::new(place),
            },
            local,
            lost,
        }
    }

    /// Returns true if this connection must be closed, because another one has taken its place.
    fn is_lost(&mut self, context: &mut Context<'_>) -> bool {
        if self.over.place.is_kept() {
            self.lost = None;
        }
        let lost = self.lost.as_mut();
        lost.is_some_and(|lost| lost.as_mut().poll(context).is_ready())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let local = &self.local;
        local.connections.closes(self.over.connection, |caller| {
            if let Some(inbound) = local.inbound.get() {
                inbound.hung_up(caller);
            }
        });
    }
}

/// The properties of a connection that each call on it can read.
#[derive(Debug, Clone)]
pub(super) struct CalledOver {
    pub(super) connection: ConnectionId,
    pub(super) address: SocketAddr,
    /// The chain of certificates, the caller's own one first; empty without TLS.
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
    /// The connection's place. A member's connection keeps it after the first call.
    pub(super) place: Arc<Place>,
}

impl Connected for Connection {
    type ConnectInfo = CalledOver;

    fn connect_info(&self) -> CalledOver {
        self.over.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_lost(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

// Authorization. Most refused calls are not logged, because a member with a wrong certificate calls many times per second.

/// Authorizes calls. With TLS, the certificate decides; without TLS, every call is allowed.
#[derive(Clone)]
pub(super) struct Callers {
    pub(super) tls: Option<TlsMaterial>,
    pub(super) refused: Arc<Refused>,
}

impl Callers {
    /// Returns the holder of the caller's certificate; `None` without TLS.
    fn holder<T>(&self, request: &Request<T>) -> Option<Holder> {
        let first = called_over(request).and_then(|over| over.certificates.first());
        let certificate = first.map_or(&[][..], |certificate| certificate.as_ref());
        Some(self.tls.as_ref()?.holder(certificate))
    }

    pub(super) fn certificate_name<T>(&self, request: &Request<T>) -> Option<String> {
        self.holder(request).map(|holder| holder.name)
    }

    pub(super) fn allow<T>(&self, request: &Request<T>, right: Right) -> Result<(), Status> {
        let Some(holder) = self.holder(request) else {
            return Ok(());
        };
        let over = called_over(request);
        holder.may(right).map_err(|refusal| {
            let caller = over.map(|over| over.address);
            let refusal = refusal.to_string();
            let host = caller.map(|caller| caller.ip());
            if self.refused.is_news(host, &refusal, Instant::now()) {
                tracing::warn!(target: "audit", ?caller, refusal, "a call is refused");
            }
            Status::permission_denied(refusal)
        })
    }
}

/// Returns the properties of a call's connection.
pub(super) fn called_over<T>(request: &Request<T>) -> Option<&CalledOver> {
    request.extensions().get()
}

/// Minimum interval between log lines for the same refusal of one caller.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The refusals that were logged recently, with their times.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<BTreeMap<(Option<IpAddr>, String), Instant>>);

impl Refused {
    /// Returns true if this refusal should be logged: not again within [`LOG_INTERVAL`].
    fn is_news(&self, host: Option<IpAddr>, refusal: &str, now: Instant) -> bool {
        let mut logged = lock(&self.0);
        logged.retain(|_, then| now.saturating_duration_since(*then) < LOG_INTERVAL);
        let refusal = (host, refusal.to_owned());
        let is_news = !logged.contains_key(&refusal);
        if is_news {
            logged.insert(refusal, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn repeated_refusals_are_logged_at_intervals() {
        let begin = Instant::now();
        let refused = Refused::default();
        let host = |last| Some(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let is_news = |milliseconds, host, words| {
            refused.is_news(host, words, begin + Duration::from_millis(milliseconds))
        };
        assert!(is_news(0, host(1), "a reader's"));
        assert!(!is_news(50, host(1), "a reader's"));
        assert!(is_news(50, host(2), "a reader's"), "another caller");
        assert!(is_news(100, host(1), "an operator's"), "another message");
        assert!(!is_news(9_999, host(1), "a reader's"));
        assert!(is_news(10_000, host(1), "a reader's"));
        assert!(!is_news(19_999, host(1), "a reader's"));
    }
}

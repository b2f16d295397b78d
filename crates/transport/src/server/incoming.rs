//! Accepts connections: each takes one of the port's limited places, and with TLS must present a valid certificate within a deadline.
//! Silent callers do not delay others, and cost a bounded number of connections.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use rustls::pki_types::CertificateDer;
use sockets::{ConnectionLimit, Place};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use crate::config::TlsMaterial;
use crate::connections::ConnectionId;
use crate::local_member::LocalMember;
use crate::streams::{ByteStream, Listening};

/// Each member opens a handful, so that a ring of thirty needs some two hundred.
const MOST_CONNECTIONS: usize = 512;

/// A connected caller.
pub(super) struct Caller {
    stream: ByteStream,
    from: SocketAddr,
    place: Place,
}

/// Callers of a system port.
pub(super) fn at_the_port(listener: TcpListener) -> BoxStream<'static, Caller> {
    let callers = stream::unfold((listener, limit()), |(listener, limit)| async move {
        let (stream, from, place) = limit.accept(&listener).await;
        let caller = Caller {
            stream: Box::new(stream),
            from,
            place,
        };
        Some((caller, (listener, limit)))
    });
    callers.boxed()
}

/// Callers that open a stream.
pub(super) fn at_the_place(listening: Listening) -> BoxStream<'static, Caller> {
    let limit = limit();
    let callers = listening.callers.filter_map(move |(stream, from)| {
        let place = limit.take(from.ip());
        std::future::ready(place.map(|place| Caller {
            stream,
            from,
            place,
        }))
    });
    callers.boxed()
}

fn limit() -> ConnectionLimit {
    ConnectionLimit::new("the port for members", MOST_CONNECTIONS)
}

/// Connections without TLS.
pub(super) fn plain(
    callers: impl Stream<Item = Caller>,
    local: Arc<LocalMember>,
) -> impl Stream<Item = io::Result<Connection<ByteStream>>> {
    callers.map(move |caller| {
        let Caller {
            stream,
            from,
            place,
        } = caller;
        Ok(Connection::new(stream, from, place, local.clone()))
    })
}

/// Connections with a certificate of the authority. A handshake takes at most `limit`, and does not delay others.
pub(super) fn secured(
    callers: impl Stream<Item = Caller>,
    local: Arc<LocalMember>,
    tls: TlsMaterial,
    limit: Duration,
) -> impl Stream<Item = io::Result<Connection<TlsStream<ByteStream>>>> {
    let handshake = move |caller| secure(caller, local.clone(), tls.clone(), limit);
    // Bounded by the number of places.
    let handshakes = callers.map(handshake).buffer_unordered(usize::MAX);
    handshakes.filter_map(|secured| std::future::ready(secured.map(Ok)))
}

async fn secure(
    caller: Caller,
    local: Arc<LocalMember>,
    tls: TlsMaterial,
    limit: Duration,
) -> Option<Connection<TlsStream<ByteStream>>> {
    let Caller {
        stream,
        from,
        place,
    } = caller;
    let secured = tokio::select! {
        secured = tokio::time::timeout(limit, tls.accept(stream)) => {
            secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        () = place.lost() => Err(io::Error::other("others needed its place")),
    };
    match secured {
        Ok(secured) => Some(Connection::new(secured, from, place, local)),
        Err(error) => {
            tracing::debug!(caller = %from, %error, "a caller was turned away by the TLS handshake");
            None
        }
    }
}

/// A connection until it is closed.
pub(super) struct Connection<S> {
    stream: S,
    from: SocketAddr,
    id: ConnectionId,
    local: Arc<LocalMember>,
    place: Arc<Place>,
    /// Resolves when another connection takes its place; `None` once it keeps its place.
    lost: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<S> Connection<S> {
    fn new(stream: S, from: SocketAddr, place: Place, local: Arc<LocalMember>) -> Self {
        let id = local.connections.opens();
        let lost = Some(Box::pin(place.lost()));
        Self {
            stream,
            from,
            id,
            local,
            place: Arc::new(place),
            lost,
        }
    }

    /// Whether it must close to free its place.
    fn is_lost(&mut self, context: &mut Context<'_>) -> bool {
        if self.place.is_kept() {
            self.lost = None;
        }
        let lost = self.lost.as_mut();
        lost.is_some_and(|lost| lost.as_mut().poll(context).is_ready())
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let local = &self.local;
        local.connections.closes(self.id, |caller| {
            if let Some(inbound) = local.inbound() {
                inbound.hung_up(caller);
            }
        });
    }
}

/// Connection properties available to each call.
#[derive(Debug, Clone)]
pub(super) struct CalledOver {
    pub(super) connection: ConnectionId,
    pub(super) address: SocketAddr,
    /// The caller's certificate first; empty without TLS.
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
    /// A member's connection keeps its place after its first call.
    pub(super) place: Arc<Place>,
}

/// A stream that exposes properties of its other end.
pub(super) trait OtherEnd {
    fn certificates(&self) -> Arc<[CertificateDer<'static>]>;
}

impl OtherEnd for ByteStream {
    fn certificates(&self) -> Arc<[CertificateDer<'static>]> {
        Arc::default()
    }
}

impl OtherEnd for TlsStream<ByteStream> {
    fn certificates(&self) -> Arc<[CertificateDer<'static>]> {
        self.get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .into()
    }
}

impl<S: OtherEnd> Connected for Connection<S> {
    type ConnectInfo = CalledOver;

    fn connect_info(&self) -> CalledOver {
        CalledOver {
            connection: self.id,
            address: self.from,
            certificates: self.stream.certificates(),
            place: self.place.clone(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
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

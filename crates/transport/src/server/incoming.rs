//! Accepts connections: each takes one of the port's limited places, and with TLS must present a valid certificate within a deadline.
//! Silent callers do not delay others, and cost a bounded number of connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use connection_limit::{ConnectionLimit, Place};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tokio_rustls::server::TlsStream;

use crate::config::TlsMaterial;
use crate::local_member::LocalMember;
use crate::server::connections::Connection;
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

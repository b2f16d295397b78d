//! Takes connections in: each has a place among those that the port may have, and with TLS a caller is let in by its certificate,
//! within a deadline. Whoever opens connections and says nothing holds nobody else up, and costs a bounded number of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use connection_limit::{ConnectionLimit, Place};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use crate::config::TlsMaterial;
use crate::local_member::LocalMember;
use crate::server::connections::Connection;

/// Each member calls over a handful, so that a ring of thirty needs some two hundred.
const MOST_CONNECTIONS: usize = 512;

/// The connections of whoever calls.
pub(super) fn plain(
    listener: TcpListener,
    local: Arc<LocalMember>,
) -> BoxStream<'static, io::Result<Connection<TcpStream>>> {
    let callers = callers(listener);
    callers
        .map(move |(stream, place)| Ok(Connection::new(stream, place, local.clone())))
        .boxed()
}

/// The connections of callers that have a certificate of the authority. A handshake takes `limit` at most, and holds no other one up.
pub(super) fn secured(
    listener: TcpListener,
    local: Arc<LocalMember>,
    tls: TlsMaterial,
    limit: Duration,
) -> BoxStream<'static, io::Result<Connection<TlsStream<TcpStream>>>> {
    let handshake = move |(stream, place)| secure(stream, place, tls.clone(), limit);
    // Their number is that of the places.
    let handshakes = callers(listener)
        .map(handshake)
        .buffer_unordered(usize::MAX);
    let secured = handshakes.filter_map(std::future::ready);
    secured
        .map(move |(stream, place)| Ok(Connection::new(stream, place, local.clone())))
        .boxed()
}

/// Everybody who connects.
fn callers(listener: TcpListener) -> impl Stream<Item = (TcpStream, Place)> {
    let limit = ConnectionLimit::new("the port for members", MOST_CONNECTIONS);
    stream::unfold((listener, limit), |(listener, limit)| async move {
        let (stream, _, place) = limit.accept(&listener).await;
        Some(((stream, place), (listener, limit)))
    })
}

async fn secure(
    stream: TcpStream,
    place: Place,
    tls: TlsMaterial,
    limit: Duration,
) -> Option<(TlsStream<TcpStream>, Place)> {
    let caller = stream.peer_addr();
    let secured = tokio::select! {
        secured = tokio::time::timeout(limit, tls.accept(stream)) => {
            secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        () = place.lost() => Err(io::Error::other("others needed its place")),
    };
    match secured {
        Ok(secured) => Some((secured, place)),
        Err(error) => {
            tracing::debug!(?caller, %error, "a caller was turned away by the TLS handshake");
            None
        }
    }
}

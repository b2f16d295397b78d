//! Accepts and serves HTTP and HTTPS connections. The number of connections, the time of a handshake and the time for the head of
//! a request are limited. So a client that is slow, silent or uses another protocol does not block other clients.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sockets::ConnectionLimit;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::http::access::Access;

const MOST_CONNECTIONS: usize = 256;
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for the head of a request, including the idle time before it.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Size of the buffer for the head of a request, and for read-ahead of a body.
const BUFFER_BYTES: usize = 64 << 10;
/// The first byte of a TLS handshake.
const HANDSHAKE_RECORD: u8 = 22;

/// Serves these pages until `stop` is cancelled. Then it answers the requests in progress, and returns.
pub async fn serve(listener: TcpListener, access: Access, pages: Router, stop: CancellationToken) {
    let limit = ConnectionLimit::new("the HTTP port", MOST_CONNECTIONS);
    let mut connections = JoinSet::new();
    loop {
        let (stream, caller, place) = tokio::select! {
            accepted = limit.accept(&listener) => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        let (tls, pages, stop) = (access.tls(), pages.clone(), stop.clone());
        connections.spawn(async move {
            let serving = async {
                match tls {
                    None => answer(stream, pages, stop).await,
                    Some(tls) => {
                        let stream = timeout(HANDSHAKE_LIMIT, encrypt(tls, stream)).await??;
                        answer(stream, pages, stop).await
                    }
                }
            };
            let served = tokio::select! {
                served = serving => served,
                () = place.lost() => Err(Error::other("others needed its place")),
            };
            if let Err(error) = served {
                tracing::debug!(%caller, %error, "a connection to the HTTP port failed");
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

/// Serves the requests on one connection until the connection closes, or `stop` is cancelled.
pub(super) async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pages: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(BUFFER_BYTES);
    let pages = TowerToHyperService::new(pages);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), pages));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(Error::other)
}

async fn encrypt(tls: TlsAcceptor, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
        return Err(turn_away(stream).await?);
    }
    tls.accept(stream).await
}

/// Answers a client that uses plain HTTP on a TLS port.
async fn turn_away(mut stream: TcpStream) -> std::io::Result<Error> {
    const REASON: &str = "{\"ok\":false,\"reason\":\"this port speaks HTTPS; ask https://\"}";
    // If the request were left unread, the close would reset the connection before the client has read the answer.
    let mut request = [0; 8192];
    let _some = stream.read(&mut request).await?;
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{REASON}",
        REASON.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(Error::new(ErrorKind::InvalidData, "it is not encrypted"))
}

//! Takes connections in, plain or encrypted. A handshake goes on beside all others and within a limit, so that whoever is slow, or
//! speaks something else, is in nobody's way.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::http::access::Access;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Further connections wait until one of these has ended.
const MOST_HANDSHAKES: usize = 256;
/// The first byte of whoever begins a handshake.
const HANDSHAKE_RECORD: u8 = 22;

type Connection = Either<TcpStream, TlsStream<TcpStream>>;

pub(super) struct HttpListener {
    tcp: TcpListener,
    access: Access,
    handshakes: JoinSet<std::io::Result<(Connection, SocketAddr)>>,
}

impl HttpListener {
    pub(super) fn new(tcp: TcpListener, access: Access) -> Self {
        Self {
            tcp,
            access,
            handshakes: JoinSet::new(),
        }
    }
}

impl Listener for HttpListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let room = self.handshakes.len() < MOST_HANDSHAKES;
            tokio::select! {
                (stream, address) = Listener::accept(&mut self.tcp), if room => {
                    let Some(tls) = self.access.tls() else {
                        return (Either::Left(stream), address);
                    };
                    self.handshakes.spawn(handshake(tls, stream, address));
                }
                Some(ended) = self.handshakes.join_next() => match ended.map_err(Error::other) {
                    Ok(Ok(connection)) => return connection,
                    Ok(Err(error)) | Err(error) => {
                        tracing::debug!(%error, "a connection to the HTTP port came to nothing");
                    }
                },
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) -> std::io::Result<(Connection, SocketAddr)> {
    let encrypted = timeout(HANDSHAKE_LIMIT, encrypt(tls, stream)).await??;
    Ok((Either::Right(encrypted), address))
}

async fn encrypt(tls: TlsAcceptor, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
        return Err(turn_away(stream).await?);
    }
    tls.accept(stream).await
}

/// Tells somebody who speaks plain HTTP.
async fn turn_away(mut stream: TcpStream) -> std::io::Result<Error> {
    const REASON: &str = "{\"ok\":false,\"reason\":\"this port speaks HTTPS; ask https://\"}";
    // What is left unread would reset the connection before the answer is read.
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

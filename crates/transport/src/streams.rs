//! The streams under connections between members: the system's TCP, unless the caller provides others, as for a ring within one process.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A boxed stream.
pub type ByteStream = Box<dyn Duplex>;

/// Opens streams to other members instead of the system's sockets.
pub trait Streams: Send + Sync + 'static {
    /// Opens a stream to the member at `address`, written as in its record. May never return; the caller has a deadline. If nothing sent
    /// arrives for `given_up_after`, the stream fails; `None`: no such limit.
    ///
    /// # Errors
    /// As a socket's `connect`: `ConnectionRefused` where nothing listens.
    fn connect(
        &self,
        address: &str,
        given_up_after: Option<Duration>,
    ) -> BoxFuture<'static, io::Result<ByteStream>>;
}

/// The listening end: an address, and incoming streams with their origins.
pub struct Listening {
    /// Where others connect to.
    pub address: SocketAddr,
    /// Incoming streams, until no more can come.
    pub callers: BoxStream<'static, (ByteStream, SocketAddr)>,
}

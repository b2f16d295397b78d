//! What the connections between members run over: the system's TCP, unless the caller brings streams of its own, as for a ring
//! within one process.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// Any of them.
pub type ByteStream = Box<dyn Duplex>;

/// Opens streams to other members in the place of the system's sockets.
pub trait Streams: Send + Sync + 'static {
    /// Opens a stream to the member at `address`, which is written as in its record. May take for ever; the caller has a deadline.
    /// Where nothing of what was sent arrives for `given_up_after`, the stream fails; `None`: it does not, however long that lasts.
    ///
    /// # Errors
    /// As a socket's `connect`: `ConnectionRefused` where nothing listens.
    fn connect(
        &self,
        address: &str,
        given_up_after: Option<Duration>,
    ) -> BoxFuture<'static, io::Result<ByteStream>>;
}

/// The listening end: a place in the network, and the streams that others open to it, each with where it comes from.
pub struct Listening {
    /// Where others connect to.
    pub address: SocketAddr,
    /// Those who connect, until nobody can any more.
    pub callers: BoxStream<'static, (ByteStream, SocketAddr)>,
}

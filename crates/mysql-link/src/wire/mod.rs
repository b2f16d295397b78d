//! The code that the client and the server side share: packets, and the streams that carry them.

mod packets;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

pub use crate::wire::packets::{
    MAX_CHUNK, Outgoing, Packet, PacketDecoder, PacketReader, PacketWriter, WireError,
    encode_packet, put_integer, put_string,
};

// The transports: TCP, TCP with TLS, unix socket, memory.

/// The connection that carries the packets: TCP, TLS over TCP, a unix socket, or memory.
#[derive(Debug)]
pub enum ByteStream {
    /// TCP without TLS.
    Tcp(TcpStream),
    /// TCP with TLS, as client or server.
    Tls(Box<TlsStream<TcpStream>>),
    /// A unix socket, which is never encrypted.
    Unix(UnixStream),
    /// A stream in memory to a server in this process, for simulations.
    Memory(DuplexStream),
}

impl ByteStream {
    /// True if the stream is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// True if the stream does not use the network.
    pub fn is_local_socket(&self) -> bool {
        matches!(self, Self::Unix(_) | Self::Memory(_))
    }

    /// Splits the stream into two halves that can be used at the same time.
    pub fn into_split(self) -> (ByteReader, ByteWriter) {
        tokio::io::split(self)
    }
}

/// The reading half of a [`ByteStream`].
pub type ByteReader = ReadHalf<ByteStream>;
/// The writing half of a [`ByteStream`].
pub type ByteWriter = WriteHalf<ByteStream>;

/// Both directions of a stream.
trait Transport: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

impl ByteStream {
    fn transport(&mut self) -> Pin<&mut dyn Transport> {
        let stream: &mut dyn Transport = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream,
            Self::Unix(stream) => stream,
            Self::Memory(stream) => stream,
        };
        Pin::new(stream)
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().transport().poll_read(cx, buf)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().transport().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().transport().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().transport().poll_shutdown(cx)
    }
}

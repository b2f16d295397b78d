//! What both directions of the protocol share: packets, and the streams that carry them.

mod lenenc;
mod packets;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio_rustls::TlsStream;

pub use crate::wire::lenenc::{FieldReader, put_integer, put_string};
pub use crate::wire::packets::{
    MAX_CHUNK, Outgoing, Packet, PacketDecoder, PacketReader, PacketWriter, WireError,
    encode_packet,
};

// The transports: TCP, TCP with TLS, unix socket, memory. One enum, no dynamic dispatch on the hot path.

/// The connection under the packets: TCP, TLS over TCP, a unix socket, or memory.
#[derive(Debug)]
pub enum ByteStream {
    /// TCP without TLS.
    Tcp(TcpStream),
    /// TCP with TLS, either side of it.
    Tls(Box<TlsStream<TcpStream>>),
    /// A unix socket, which is never encrypted.
    Unix(UnixStream),
    /// To a server in this process, as simulations have one.
    Memory(DuplexStream),
}

impl ByteStream {
    /// Whether the stream is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether the stream never leaves the machine through a network.
    pub fn is_local_socket(&self) -> bool {
        matches!(self, Self::Unix(_) | Self::Memory(_))
    }

    /// Two halves that can be used at the same time.
    pub fn into_split(self) -> (ByteReader, ByteWriter) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (ByteReader::Tcp(reader), ByteWriter::Tcp(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                (ByteReader::Tls(reader), ByteWriter::Tls(writer))
            }
            Self::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                (ByteReader::Unix(reader), ByteWriter::Unix(writer))
            }
            Self::Memory(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (ByteReader::Memory(reader), ByteWriter::Memory(writer))
            }
        }
    }
}

/// The reading half of a [`ByteStream`].
#[derive(Debug)]
pub enum ByteReader {
    /// TCP without TLS.
    Tcp(tcp::OwnedReadHalf),
    /// TLS over TCP.
    Tls(ReadHalf<TlsStream<TcpStream>>),
    /// A unix socket.
    Unix(unix::OwnedReadHalf),
    /// Memory.
    Memory(ReadHalf<DuplexStream>),
}

/// The writing half of a [`ByteStream`].
#[derive(Debug)]
pub enum ByteWriter {
    /// TCP without TLS.
    Tcp(tcp::OwnedWriteHalf),
    /// TLS over TCP.
    Tls(WriteHalf<TlsStream<TcpStream>>),
    /// A unix socket.
    Unix(unix::OwnedWriteHalf),
    /// Memory.
    Memory(WriteHalf<DuplexStream>),
}

macro_rules! delegate_read {
    ($name:ident) => {
        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
                    Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
                    Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
                    Self::Memory(stream) => Pin::new(stream).poll_read(cx, buf),
                }
            }
        }
    };
}

macro_rules! delegate_write {
    ($name:ident) => {
        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
                    Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
                    Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
                    Self::Memory(stream) => Pin::new(stream).poll_write(cx, buf),
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
                    Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
                    Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
                    Self::Memory(stream) => Pin::new(stream).poll_flush(cx),
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
                    Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
                    Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
                    Self::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
                }
            }
        }
    };
}

delegate_read!(ByteStream);
delegate_read!(ByteReader);
delegate_write!(ByteStream);
delegate_write!(ByteWriter);

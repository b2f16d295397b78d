//! Packets over an asynchronous byte stream. Reading is safe to cancel: what was read stays in the
//! decoder. Writing is not: a cancelled write leaves half a packet behind, so whoever cancels one
//! gives the connection up.

use std::io;

use bytes::BytesMut;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::ProtocolError;
use crate::wire::packet_decoder::{Packet, PacketDecoder, encode_packet};

/// How much room a read gets. Large, so that a burst of events costs few system calls.
const READ_ROOM: usize = 256 << 10;
/// Below this much free room the buffer is renewed; above it the room that is left is used up first.
const LEAST_ROOM: usize = 8 << 10;

/// Why no packet came.
#[derive(Debug, Error)]
pub enum WireError {
    /// The stream ended or failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not packets.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// The reading half.
#[derive(Debug)]
pub struct PacketReader<R> {
    stream: R,
    decoder: PacketDecoder,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    /// Reads packets of at most `max_packet` bytes.
    pub fn new(stream: R, max_packet: usize) -> Self {
        Self {
            stream,
            decoder: PacketDecoder::new(max_packet),
        }
    }

    /// Changes the limit, for packets from now on.
    pub fn set_max_packet(&mut self, max_packet: usize) {
        self.decoder.set_max_packet(max_packet);
    }

    /// The next packet if it has been read already.
    ///
    /// # Errors
    /// When the bytes are not packets.
    pub fn try_read(&mut self) -> Result<Option<Packet>, WireError> {
        self.decoder.next_packet().map_err(WireError::Protocol)
    }

    /// The next packet. Cancelling loses nothing.
    ///
    /// # Errors
    /// When the stream fails, ends (`UnexpectedEof`), or its bytes are not packets.
    pub async fn read(&mut self) -> Result<Packet, WireError> {
        loop {
            if let Some(packet) = self.try_read()? {
                return Ok(packet);
            }
            self.read_more().await?;
        }
    }

    /// Reads at least one more byte. Cancelling loses nothing.
    ///
    /// # Errors
    /// When the stream fails or ends.
    pub async fn read_more(&mut self) -> Result<(), WireError> {
        let missing = self.decoder.missing();
        let buffer = self.decoder.buffer_mut();
        make_room(buffer, missing);
        match self.stream.read_buf(buffer).await {
            Ok(0) => Err(WireError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(WireError::Io(error)),
        }
    }

    /// The stream, for questions about it.
    pub fn stream(&self) -> &R {
        &self.stream
    }

    /// The stream, for writing to one that is not split.
    pub fn stream_mut(&mut self) -> &mut R {
        &mut self.stream
    }

    /// Gives the stream back, together with whether bytes were left that nobody asked for.
    pub fn into_inner(self) -> (R, bool) {
        let clean = self.decoder.is_empty();
        (self.stream, clean)
    }
}

fn make_room(buffer: &mut BytesMut, missing: usize) {
    let room = buffer.capacity() - buffer.len();
    if room < missing.max(LEAST_ROOM) {
        buffer.reserve(missing.max(READ_ROOM));
    }
}

/// The writing half.
#[derive(Debug)]
pub struct PacketWriter<W> {
    stream: W,
    scratch: Vec<u8>,
}

/// Scratch space above this is given back after the packet.
const KEPT_SCRATCH: usize = 64 << 10;

impl<W: AsyncWrite + Unpin> PacketWriter<W> {
    /// Writes packets to a stream.
    pub fn new(stream: W) -> Self {
        Self {
            stream,
            scratch: Vec::new(),
        }
    }

    /// Writes one packet in one go and flushes it; returns the number that the answer will have.
    /// Not safe to cancel.
    ///
    /// # Errors
    /// When the stream fails.
    pub async fn write(&mut self, sequence: u8, payload: &[u8]) -> io::Result<u8> {
        self.scratch.clear();
        let next = encode_packet(sequence, payload, &mut self.scratch);
        self.stream.write_all(&self.scratch).await?;
        self.stream.flush().await?;
        if self.scratch.capacity() > KEPT_SCRATCH {
            self.scratch = Vec::new();
        }
        Ok(next)
    }

    /// Writes bytes that are a packet already, header and all, and flushes them. Not safe to cancel.
    ///
    /// # Errors
    /// When the stream fails.
    pub(crate) async fn write_encoded(&mut self, packet: &[u8]) -> io::Result<()> {
        self.stream.write_all(packet).await?;
        self.stream.flush().await
    }

    /// Gives the stream back.
    pub fn into_inner(self) -> W {
        self.stream
    }
}

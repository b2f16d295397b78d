//! Packets over an asynchronous byte stream. Reading is safe to cancel: what was read stays in the
//! decoder. Writing is not: a cancelled write leaves half a packet behind, so whoever cancels one
//! gives the connection up.

use std::io;

use bytes::BytesMut;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::ProtocolError;
use crate::wire::packet_decoder::{MAX_CHUNK, Packet, PacketDecoder, encode_packet};

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

    /// Writes one packet whose payload of `length` bytes is made while it is sent, so that a large one is never in memory as
    /// a whole; returns the number that the answer will have. Not safe to cancel.
    ///
    /// # Errors
    /// When the stream fails, or the pieces are not `length` bytes together.
    pub async fn write_pieces(
        &mut self,
        length: usize,
        pieces: impl Iterator<Item = Vec<u8>>,
    ) -> io::Result<u8> {
        let mut sequence = 0_u8;
        // Of the packet, and of the chunk at hand. One that is full is followed by another, if only by an empty one.
        let mut left = length;
        let mut room = left.min(MAX_CHUNK);
        self.scratch.clear();
        self.begin_chunk(room, sequence);
        for piece in pieces {
            let mut piece = piece.as_slice();
            while !piece.is_empty() {
                if room == 0 && left > 0 {
                    room = left.min(MAX_CHUNK);
                    sequence = sequence.wrapping_add(1);
                    self.begin_chunk(room, sequence);
                }
                if room == 0 {
                    return Err(io::Error::other("a packet's pieces are too long"));
                }
                let (now, later) = piece.split_at(piece.len().min(room));
                self.scratch.extend_from_slice(now);
                (room, left, piece) = (room - now.len(), left - now.len(), later);
                if self.scratch.len() >= KEPT_SCRATCH {
                    self.stream.write_all(&self.scratch).await?;
                    self.scratch.clear();
                }
            }
        }
        if left > 0 {
            return Err(io::Error::other("a packet's pieces are too short"));
        }
        if length > 0 && length.is_multiple_of(MAX_CHUNK) {
            sequence = sequence.wrapping_add(1);
            self.begin_chunk(0, sequence);
        }
        self.stream.write_all(&self.scratch).await?;
        self.stream.flush().await?;
        self.scratch = Vec::new();
        Ok(sequence.wrapping_add(1))
    }

    fn begin_chunk(&mut self, length: usize, sequence: u8) {
        let [low, middle, high, _] = (length as u32).to_le_bytes();
        self.scratch
            .extend_from_slice(&[low, middle, high, sequence]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_packet_in_pieces_is_the_packet_as_a_whole() {
        for length in [0, 1, MAX_CHUNK - 1, MAX_CHUNK, MAX_CHUNK + 1, 2 * MAX_CHUNK] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut expected = Vec::new();
            let next = encode_packet(0, &payload, &mut expected);
            for size in [1_000_003, MAX_CHUNK] {
                let mut writer = PacketWriter::new(Vec::new());
                let pieces = payload.chunks(size).map(<[u8]>::to_vec);
                assert_eq!(writer.write_pieces(length, pieces).await.unwrap(), next);
                assert!(writer.into_inner() == expected, "{length} by {size}");
            }
        }
    }

    #[tokio::test]
    async fn pieces_of_another_length_are_no_packet() {
        for length in [4, 6] {
            let mut writer = PacketWriter::new(Vec::new());
            let pieces = [vec![1, 2], vec![3, 4, 5]].into_iter();
            assert!(writer.write_pieces(length, pieces).await.is_err());
        }
    }
}

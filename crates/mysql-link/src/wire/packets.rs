//! Encodes and decodes packets on a byte stream. A packet is one or more chunks: a header of four bytes (length, sequence number) and up to
//! 16 MiB - 1 of payload. A chunk of exactly that length is followed by another chunk.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use mysql_common::io::BufMutExt;
use spilling_bytes::{SpillFolder, SpillingBytes};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::ProtocolError;

/// The largest payload of one chunk.
pub const MAX_CHUNK: usize = 0x00ff_ffff;

const CHUNK_HEADER: usize = 4;

/// A packet, joined from its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The sequence number of its first chunk.
    pub first_sequence: u8,
    /// The sequence number of its last chunk; the answer has the next number.
    pub last_sequence: u8,
    /// The payload. If the packet is a single chunk, the payload shares the read buffer.
    pub payload: Bytes,
}

/// Joins chunks to packets. Stores at most one packet in addition to its buffer.
///
/// ```text
///  joined (chunks of an unfinished packet)  |  buffer: [header|payload][header|pay…
/// ```
#[derive(Debug, Default)]
pub struct PacketDecoder {
    buffer: BytesMut,
    unfinished: Option<Unfinished>,
    /// The folder for large packets of several chunks.
    spill: SpillFolder,
    max_packet: usize,
}

/// A packet before its last chunk has arrived.
#[derive(Debug)]
struct Unfinished {
    joined: SpillingBytes,
    /// The sequence number of the first chunk.
    first: u8,
    next: u8,
}

impl PacketDecoder {
    /// Creates a decoder that refuses payloads of more than `max_packet` bytes.
    pub fn new(max_packet: usize) -> Self {
        Self {
            max_packet,
            ..Self::default()
        }
    }

    /// The buffer to which the caller appends what it has read.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// True if neither bytes nor a part of a packet are left.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.unfinished.is_none()
    }

    /// Returns how many more bytes the current chunk needs: at least 1, at most a whole chunk.
    pub fn missing(&self) -> usize {
        let needed = match self.chunk_length() {
            Some(length) => CHUNK_HEADER + length,
            None => CHUNK_HEADER,
        };
        needed.saturating_sub(self.buffer.len()).max(1)
    }

    /// Returns the next complete packet, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// When the packet is larger than allowed, or its chunks are not numbered consecutively. The decoder is unusable afterwards.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, ProtocolError> {
        while let Some(length) = self.chunk_length() {
            let joined = |unfinished: &Unfinished| unfinished.joined.len();
            let size = self.unfinished.as_ref().map_or(0, joined) + length;
            if size > self.max_packet {
                return Err(ProtocolError::TooLarge {
                    size: size as u64,
                    limit: self.max_packet as u64,
                });
            }
            if self.buffer.len() < CHUNK_HEADER + length {
                return Ok(None);
            }
            let sequence = self.buffer[3];
            if let Some(Unfinished { next, .. }) = self.unfinished
                && next != sequence
            {
                return Err(ProtocolError::Sequence {
                    expected: next,
                    found: sequence,
                });
            }
            self.buffer.advance(CHUNK_HEADER);
            let chunk = self.buffer.split_to(length);
            if length == MAX_CHUNK {
                // Another chunk follows, so the packet becomes larger than this.
                let begin = || Unfinished {
                    joined: SpillingBytes::begin(&self.spill, 2 * MAX_CHUNK),
                    first: sequence,
                    next: sequence,
                };
                let unfinished = self.unfinished.get_or_insert_with(begin);
                unfinished.joined.push(&chunk);
                unfinished.next = sequence.wrapping_add(1);
                continue;
            }
            let (first, payload) = match self.unfinished.take() {
                Some(mut unfinished) => {
                    unfinished.joined.push(&chunk);
                    let joined = unfinished.joined.finish()?;
                    (unfinished.first, joined.bytes)
                }
                None => (sequence, chunk.freeze()),
            };
            return Ok(Some(Packet {
                first_sequence: first,
                last_sequence: sequence,
                payload,
            }));
        }
        Ok(None)
    }

    fn chunk_length(&self) -> Option<usize> {
        let header = self.buffer.get(..CHUNK_HEADER)?;
        Some(usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16)
    }
}

/// Appends a packet's chunks to `out` and returns the sequence number after the last chunk.
pub fn encode_packet(mut sequence: u8, mut payload: &[u8], out: &mut Vec<u8>) -> u8 {
    loop {
        let (chunk, rest) = payload.split_at(payload.len().min(MAX_CHUNK));
        put_header(chunk.len(), &mut sequence, out);
        out.extend_from_slice(chunk);
        if chunk.len() < MAX_CHUNK {
            return sequence;
        }
        payload = rest;
    }
}

/// Appends the header of a chunk of this length, and increments the sequence number.
fn put_header(length: usize, sequence: &mut u8, out: &mut Vec<u8>) {
    let [low, middle, high, _] = (length as u32).to_le_bytes();
    out.extend_from_slice(&[low, middle, high, *sequence]);
    *sequence = sequence.wrapping_add(1);
}

/// Encoded packets that wait to be written, in order and with sequence numbers.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// The bytes of the packets so far.
    pub bytes: Vec<u8>,
    /// The sequence number of the next packet.
    pub sequence: u8,
}

impl Outgoing {
    /// Creates an empty list of packets that answer the packet with this sequence number.
    pub fn answer_to(sequence: u8) -> Self {
        Self {
            bytes: Vec::new(),
            sequence: sequence.wrapping_add(1),
        }
    }

    /// Appends a packet with the next sequence number.
    pub fn push(&mut self, payload: &[u8]) {
        self.sequence = encode_packet(self.sequence, payload, &mut self.bytes);
    }
}

/// Appends a length-encoded integer.
pub fn put_integer(out: &mut Vec<u8>, value: u64) {
    out.put_lenenc_int(value);
}

/// Appends a length-encoded string.
pub fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.put_lenenc_str(text);
}

// Packets over an asynchronous byte stream. Reading is safe to cancel: received bytes stay in the decoder. Writing is not safe to cancel:
// half a packet may have been sent, so the connection is unusable afterwards.

/// The free space for a read, in bytes. Large, so that a burst of events needs few system calls.
const READ_ROOM: usize = 256 << 10;
/// The buffer is replaced when its free space is smaller than this; until then the free space is used.
const LEAST_ROOM: usize = 8 << 10;

/// Why reading a packet failed.
#[derive(Debug, Error)]
pub enum WireError {
    /// The stream ended or failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not packets.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Reads whole packets from a stream.
#[derive(Debug)]
pub struct PacketReader<R> {
    pub(crate) stream: R,
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

    /// Changes the limit for later packets, and stores packets of several chunks in files of `folder`.
    pub fn set_limit(&mut self, max_packet: usize, folder: SpillFolder) {
        self.decoder.max_packet = max_packet;
        self.decoder.spill = folder;
    }

    /// Returns the next packet if it is already buffered.
    ///
    /// # Errors
    /// When the bytes are not packets.
    pub fn try_read(&mut self) -> Result<Option<Packet>, WireError> {
        self.decoder.next_packet().map_err(WireError::Protocol)
    }

    /// Reads the next packet. Cancelling loses nothing.
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

    /// Drops the buffered bytes, reads more and drops these too. Returns how many bytes were read. No packet can be read afterwards.
    ///
    /// # Errors
    /// When the stream fails or ends.
    pub async fn discard(&mut self) -> Result<usize, WireError> {
        self.decoder.buffer_mut().clear();
        self.read_more().await?;
        Ok(self.decoder.buffer_mut().len())
    }

    /// Returns the stream, and true if no unread bytes were left.
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

/// Writes packets to a stream, in several chunks if needed.
#[derive(Debug)]
pub struct PacketWriter<W> {
    stream: W,
    scratch: Vec<u8>,
}

/// A scratch buffer larger than this is freed after the packet.
const KEPT_SCRATCH: usize = 64 << 10;

impl<W: AsyncWrite + Unpin> PacketWriter<W> {
    /// Creates a writer for this stream.
    pub fn new(stream: W) -> Self {
        Self {
            stream,
            scratch: Vec::new(),
        }
    }

    /// Writes one packet as a whole and flushes the stream. Returns the sequence number of the answer. Not safe to cancel.
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

    /// Writes one packet with a payload of `length` bytes that is created while it is sent, so that a large payload is never in memory as a
    /// whole. Returns the sequence number of the answer. Not safe to cancel.
    ///
    /// # Errors
    /// When the stream fails, or the pieces do not have `length` bytes in total.
    pub async fn write_pieces(
        &mut self,
        length: usize,
        pieces: impl Iterator<Item = Vec<u8>>,
    ) -> io::Result<u8> {
        let (mut sequence, mut left) = (0_u8, length);
        // Bytes left in the current chunk. A full chunk is followed by another chunk, which may be empty.
        let mut room = 0;
        self.scratch.clear();
        for piece in pieces {
            let mut piece = piece.as_slice();
            if piece.len() > left {
                return Err(io::Error::other("a packet's pieces are too long"));
            }
            while !piece.is_empty() {
                if room == 0 {
                    room = left.min(MAX_CHUNK);
                    put_header(room, &mut sequence, &mut self.scratch);
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
        if length.is_multiple_of(MAX_CHUNK) {
            put_header(0, &mut sequence, &mut self.scratch);
        }
        self.stream.write_all(&self.scratch).await?;
        self.stream.flush().await?;
        self.scratch = Vec::new();
        Ok(sequence)
    }

    /// Returns the stream.
    pub fn into_inner(self) -> W {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode_in_pieces(
        bytes: &[u8],
        piece: usize,
        max_packet: usize,
    ) -> Result<Vec<Packet>, ProtocolError> {
        let mut decoder = PacketDecoder::new(max_packet);
        let mut packets = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.buffer_mut().extend_from_slice(piece);
            while let Some(packet) = decoder.next_packet()? {
                packets.push(packet);
            }
        }
        assert!(decoder.is_empty());
        Ok(packets)
    }

    #[test]
    fn packets_around_the_chunk_size_survive() {
        for length in [
            0,
            1,
            MAX_CHUNK - 1,
            MAX_CHUNK,
            MAX_CHUNK + 1,
            2 * MAX_CHUNK,
            2 * MAX_CHUNK + 7,
        ] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut bytes = Vec::new();
            let next = encode_packet(254, &payload, &mut bytes);
            let packets = decode_in_pieces(&bytes, 1 << 20, 3 * MAX_CHUNK).unwrap();
            assert_eq!(packets.len(), 1, "{length}");
            assert_eq!(packets[0].payload, payload);
            assert_eq!(packets[0].first_sequence, 254);
            assert_eq!(packets[0].last_sequence.wrapping_add(1), next);
        }
    }

    #[test]
    fn a_packet_over_the_limit_is_refused_before_it_is_read() {
        let mut decoder = PacketDecoder::new(1000);
        decoder.buffer_mut().extend_from_slice(&[0xe9, 0x03, 0, 0]);
        assert_eq!(
            decoder.next_packet(),
            Err(ProtocolError::TooLarge {
                size: 1001,
                limit: 1000
            })
        );
    }

    #[test]
    fn chunks_out_of_order_are_refused() {
        let mut bytes = Vec::new();
        encode_packet(0, &vec![0; MAX_CHUNK + 1], &mut bytes);
        let second_header = 4 + MAX_CHUNK;
        bytes[second_header + 3] = 7;
        let refused = decode_in_pieces(&bytes, bytes.len(), 2 * MAX_CHUNK);
        assert_eq!(
            refused,
            Err(ProtocolError::Sequence {
                expected: 1,
                found: 7
            })
        );
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_packets(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            piece in 1_usize..50,
        ) {
            let mut bytes = Vec::new();
            let mut sequence = 0;
            for payload in &payloads {
                sequence = encode_packet(sequence, payload, &mut bytes);
            }
            let packets = decode_in_pieces(&bytes, piece, 64).unwrap();
            let found: Vec<&[u8]> = packets.iter().map(|packet| packet.payload.as_ref()).collect();
            prop_assert_eq!(found, payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_it_panic_or_grow(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = PacketDecoder::new(100);
            decoder.buffer_mut().extend_from_slice(&bytes);
            while let Ok(Some(packet)) = decoder.next_packet() {
                prop_assert!(packet.payload.len() <= 100);
            }
            prop_assert!(decoder.missing() <= 4 + MAX_CHUNK);
        }
    }
}

#[cfg(test)]
mod packet_io_tests {
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

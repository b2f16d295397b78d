//! Bytes into packets, pure. A packet is one or more chunks: four bytes of header (length, number)
//! and up to 16 MiB - 1 of payload; a chunk of exactly that length is followed by another one.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::ProtocolError;

/// The largest payload of one chunk.
pub const MAX_CHUNK: usize = 0x00ff_ffff;

const CHUNK_HEADER: usize = 4;

/// One whole packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The number of its first chunk.
    pub first_sequence: u8,
    /// The number of its last chunk: the answer's number is one higher.
    pub last_sequence: u8,
    /// Its payload. Of a packet that fits into one chunk it shares the read buffer.
    pub payload: Bytes,
}

/// Joins chunks. Holds at most one packet beyond what is in its buffer.
///
/// ```text
///  joined (chunks of an unfinished packet)  |  buffer: [header|payload][header|pay…
/// ```
#[derive(Debug)]
pub struct PacketDecoder {
    buffer: BytesMut,
    joined: BytesMut,
    /// First and next number of the packet in `joined`.
    unfinished: Option<(u8, u8)>,
    max_packet: usize,
}

impl PacketDecoder {
    /// A decoder that refuses packets whose payload is larger than `max_packet` bytes.
    pub fn new(max_packet: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            joined: BytesMut::new(),
            unfinished: None,
            max_packet,
        }
    }

    /// Changes the limit, for packets from now on.
    pub fn set_max_packet(&mut self, max_packet: usize) {
        self.max_packet = max_packet;
    }

    /// Where read bytes go.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Whether nothing is left: neither bytes nor a part of a packet.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.unfinished.is_none()
    }

    /// How many more bytes the chunk at hand needs; at least 1. Never more than a whole chunk.
    pub fn missing(&self) -> usize {
        let needed = match self.chunk_length() {
            Some(length) => CHUNK_HEADER + length,
            None => CHUNK_HEADER,
        };
        needed.saturating_sub(self.buffer.len()).max(1)
    }

    /// The next whole packet, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the packet is larger than allowed, or its chunks are not numbered one after the other.
    /// The decoder is of no use afterwards.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, ProtocolError> {
        while let Some(length) = self.chunk_length() {
            let size = self.joined.len() + length;
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
            let first = match self.unfinished {
                Some((_, next)) if next != sequence => {
                    return Err(ProtocolError::Sequence {
                        expected: next,
                        found: sequence,
                    });
                }
                Some((first, _)) => first,
                None => sequence,
            };
            self.buffer.advance(CHUNK_HEADER);
            let chunk = self.buffer.split_to(length);
            if length == MAX_CHUNK {
                self.joined.extend_from_slice(&chunk);
                self.unfinished = Some((first, sequence.wrapping_add(1)));
                continue;
            }
            let payload = if self.unfinished.take().is_some() {
                self.joined.extend_from_slice(&chunk);
                std::mem::take(&mut self.joined).freeze()
            } else {
                chunk.freeze()
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

/// Appends a packet's chunks to `out` and returns the number after its last one.
pub fn encode_packet(mut sequence: u8, mut payload: &[u8], out: &mut Vec<u8>) -> u8 {
    loop {
        let (chunk, rest) = payload.split_at(payload.len().min(MAX_CHUNK));
        let length = (chunk.len() as u32).to_le_bytes();
        out.extend_from_slice(&[length[0], length[1], length[2], sequence]);
        out.extend_from_slice(chunk);
        sequence = sequence.wrapping_add(1);
        if chunk.len() < MAX_CHUNK {
            return sequence;
        }
        payload = rest;
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

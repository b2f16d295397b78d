//! The packets of an answer.

use bytes::Bytes;

use crate::error::ProtocolError;
use crate::wire::{ByteReader, PacketReader, WireError};

/// The packets of one answer: numbered one after the other, and bounded in their sum.
pub(super) struct AnswerPackets<'a> {
    pub(super) reader: &'a mut PacketReader<ByteReader>,
    pub(super) next: u8,
    pub(super) bytes: usize,
    pub(super) max_bytes: usize,
}

impl AnswerPackets<'_> {
    pub(super) async fn next(&mut self) -> Result<Bytes, WireError> {
        let packet = self.reader.read().await?;
        if packet.first_sequence != self.next {
            return Err(WireError::Protocol(ProtocolError::Sequence {
                expected: self.next,
                found: packet.first_sequence,
            }));
        }
        self.next = packet.last_sequence.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(packet.payload.len());
        if self.bytes > self.max_bytes {
            return Err(WireError::Protocol(ProtocolError::TooLarge {
                size: self.bytes as u64,
                limit: self.max_bytes as u64,
            }));
        }
        Ok(packet.payload)
    }
}

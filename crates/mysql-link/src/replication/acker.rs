//! The semi-sync ACK: what asks for it in front of an event, the packet that is the reply, and its sender.

use std::time::Duration;

use binlog_format::framing::SourcePosition;
use mysql_common::packets::SemiSyncAckPacket;
use mysql_common::proto::MySerialize;

use crate::client::{Endpoint, wire_error};
use crate::error::{LinkError, Step};
use crate::wire::{ByteWriter, PacketWriter, WireError};

const MAGIC: u8 = 0xef;
const ACK_WANTED: u8 = 0x01;

/// What stands in front of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// The two bytes of semi-sync; whether a reply is asked for.
    SemiSync { ack_wanted: bool },
    /// Nothing: the dump is not a semi-sync one.
    None,
}

impl Prefix {
    /// Bytes in front of each event of a semi-sync dump.
    pub(crate) const SEMI_SYNC_LEN: usize = 2;

    /// Looks at the first event of a stream. It is always a made-up rotate event, whose timestamp is
    /// zero, so its first byte cannot be taken for the magic number.
    pub(crate) fn of(event: &[u8]) -> Self {
        match event {
            [MAGIC, flags, ..] if flags & !ACK_WANTED == 0 => Self::SemiSync {
                ack_wanted: flags & ACK_WANTED != 0,
            },
            _ => Self::None,
        }
    }
}

/// The reply that acknowledges everything up to a position.
fn ack_packet(position: &SourcePosition) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + position.file.len());
    SemiSyncAckPacket::new(position.offset, &position.file[..]).serialize(&mut bytes);
    bytes
}

/// The half of a dump that sends semi-sync acknowledgements.
#[derive(Debug)]
pub struct Acker {
    endpoint: Endpoint,
    writer: PacketWriter<ByteWriter>,
    limit: Duration,
    broken: bool,
}

impl Acker {
    pub(crate) fn new(
        endpoint: Endpoint,
        writer: PacketWriter<ByteWriter>,
        limit: Duration,
    ) -> Self {
        Self {
            endpoint,
            writer,
            limit,
            broken: false,
        }
    }

    /// Acknowledges everything up to a position: commits that wait for it or for an earlier one go
    /// on. When it returns, the operating system has the packet; nothing is buffered here. A dropped
    /// call leaves the acker unusable, since half a packet may have been sent.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn ack(&mut self, position: &SourcePosition) -> Result<(), LinkError> {
        if std::mem::replace(&mut self.broken, true) {
            return Err(LinkError::GivenUp {
                endpoint: self.endpoint.clone(),
            });
        }
        // Each reply is a conversation of its own and has number 0.
        match tokio::time::timeout(self.limit, self.writer.write(0, &ack_packet(position))).await {
            Ok(Ok(_)) => {
                self.broken = false;
                Ok(())
            }
            Ok(Err(error)) => Err(wire_error(&self.endpoint, Step::Ack, WireError::Io(error))),
            Err(_) => Err(LinkError::Timeout {
                endpoint: self.endpoint.clone(),
                step: Step::Ack,
                limit: self.limit,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn prefixes() {
        assert_eq!(
            Prefix::of(&[0xef, 0, 9, 9]),
            Prefix::SemiSync { ack_wanted: false }
        );
        assert_eq!(
            Prefix::of(&[0xef, 1, 9, 9]),
            Prefix::SemiSync { ack_wanted: true }
        );
        assert_eq!(Prefix::of(&[0xef, 2, 9, 9]), Prefix::None);
        assert_eq!(Prefix::of(&[0, 0, 0, 0, 4]), Prefix::None);
        assert_eq!(Prefix::of(&[]), Prefix::None);
    }

    #[test]
    fn the_reply_has_magic_offset_and_file() {
        let packet = ack_packet(&SourcePosition {
            file: Bytes::from_static(b"binlog.000003"),
            offset: 0x0102_0304_0506,
        });
        assert_eq!(packet[..9], [0xef, 6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(&packet[9..], b"binlog.000003");
    }
}

//! The replication stream. Two halves read events and send ACKs at the same time.
//!
//! The sequence numbers of a dump's packets are not checked: mysqld restarts its count after each event that requests an ACK. The numbers
//! of the chunks within one packet are checked.

use std::time::Duration;

use binlog_format::event::{MAX_EVENT_BYTES, RawEvent};
use binlog_format::framing::SourcePosition;
use bytes::Bytes;
use mysql_common::packets::SemiSyncAckPacket;
use mysql_common::proto::MySerialize;

use crate::client::{Connection, Endpoint, wire_error};
use crate::error::{LinkError, ProtocolError, ServerError, Step};
use crate::replication::{
    DumpError, DumpOptions, DumpRefusal, check, dump_command, register_command, session_statement,
};
use crate::wire::{ByteReader, ByteWriter, PacketReader, PacketWriter, WireError};

const EVENT: u8 = 0x00;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
/// A read of fewer bytes than this has emptied the socket. The next read then waits, so that a discarded dump does not wake its reader for
/// each commit.
const LITTLE: usize = 64 << 10;
/// The pause after a read of fewer than [`LITTLE`] bytes.
const DISCARD_EVERY: Duration = Duration::from_millis(20);
/// The time limit for the first event: the source first searches for the right file.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The time limit for passing one ACK to the operating system.
const ACK_LIMIT: Duration = Duration::from_secs(5);
/// The largest packet: an event, its status byte and its semi-sync header.
const MAX_PACKET: usize = MAX_EVENT_BYTES as usize + 1 + SEMI_SYNC_HEADER;

/// One event as the source sent it, checksum included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpEvent {
    /// The event. It shares the read buffer's memory, so copy the parts that are kept.
    pub event: RawEvent,
    /// True if a commit on the source waits for an ACK of this event's end position.
    pub ack_wanted: bool,
}

/// A running dump: receives events and sends ACKs.
#[derive(Debug)]
pub struct ReplicationStream {
    reader: EventReader,
    acker: Acker,
}

impl ReplicationStream {
    /// Registers as a replica if `options.register` is set, and requests all transactions that `options.have` lacks. Returns after the
    /// source has sent the first event, so refusals are returned here.
    ///
    /// # Errors
    /// When the source refuses. With `options.semi_sync`, also when it is no semi-sync source.
    pub async fn start(
        mut connection: Connection,
        options: &DumpOptions,
    ) -> Result<Self, DumpError> {
        check(options)?;
        connection.execute(session_statement(options)).await?;
        if options.register {
            connection.command(&register_command(options)).await?;
        }
        connection.send_only(&dump_command(options)?).await?;
        let (endpoint, mut packets, writer) = connection.into_parts();
        packets.set_limit(MAX_PACKET, options.spill.clone());
        let mut reader = EventReader {
            endpoint: endpoint.clone(),
            packets,
            semi_sync: false,
            first: None,
            silence_limit: options.silence_limit,
        };
        let first = reader.receive(START_LIMIT).await?;
        reader.semi_sync = ack_wanted(&first).is_some();
        if options.semi_sync && !reader.semi_sync {
            return Err(DumpError::NotSemiSync(endpoint));
        }
        reader.first = Some(first);
        let acker = Acker {
            endpoint,
            writer,
            broken: false,
        };
        Ok(Self { reader, acker })
    }

    /// Separates the reading half from the acknowledging half, for two tasks.
    pub fn split(self) -> (EventReader, Acker) {
        (self.reader, self.acker)
    }

    /// Returns the next event; see [`EventReader::next`].
    ///
    /// # Errors
    /// As [`EventReader::next`].
    pub async fn next(&mut self) -> Result<DumpEvent, DumpError> {
        self.reader.next().await
    }

    /// Acknowledges everything up to a position; see [`Acker::ack`].
    ///
    /// # Errors
    /// As [`Acker::ack`].
    pub async fn ack(&mut self, position: &SourcePosition) -> Result<(), LinkError> {
        self.acker.ack(position).await
    }
}

/// The half of a dump that reads events.
#[derive(Debug)]
pub struct EventReader {
    endpoint: Endpoint,
    packets: PacketReader<ByteReader>,
    semi_sync: bool,
    first: Option<Bytes>,
    silence_limit: Duration,
}

impl EventReader {
    /// Returns the next event; immediately while events are buffered. Cancelling loses nothing.
    ///
    /// # Errors
    /// When the dump ends, or the source is silent for too long or sends an invalid event. No event can be read after an error.
    pub async fn next(&mut self) -> Result<DumpEvent, DumpError> {
        let body = self.receive(self.silence_limit).await?;
        self.event(body)
    }

    /// Returns the next event if it is already buffered.
    ///
    /// # Errors
    /// As [`EventReader::next`].
    pub fn try_next(&mut self) -> Result<Option<DumpEvent>, DumpError> {
        let body = self.received()?;
        body.map(|body| self.event(body)).transpose()
    }

    /// Reads and drops all events, so that the source is never blocked. Returns when the connection breaks or is silent for too long.
    pub async fn discard(mut self) -> DumpError {
        loop {
            match tokio::time::timeout(self.silence_limit, self.packets.discard()).await {
                Ok(Ok(bytes)) if bytes < LITTLE => tokio::time::sleep(DISCARD_EVERY).await,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return self.broken(error),
                Err(_) => return DumpError::Silent(self.endpoint, self.silence_limit),
            }
        }
    }

    /// Returns the next packet without its status byte.
    async fn receive(&mut self, limit: Duration) -> Result<Bytes, DumpError> {
        loop {
            if let Some(body) = self.received()? {
                return Ok(body);
            }
            // Any received byte restarts the limit: a large event may take longer than the limit.
            match tokio::time::timeout(limit, self.packets.read_more()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.broken(error)),
                Err(_) => return Err(DumpError::Silent(self.endpoint.clone(), limit)),
            }
        }
    }

    /// Returns the next packet without its status byte, if it is already buffered.
    fn received(&mut self) -> Result<Option<Bytes>, DumpError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let packet = self
            .packets
            .try_read()
            .map_err(|error| self.broken(error))?;
        packet.map(|packet| self.body(packet.payload)).transpose()
    }

    fn body(&self, mut payload: Bytes) -> Result<Bytes, DumpError> {
        match payload.first() {
            Some(&EVENT) => Ok(payload.split_off(1)),
            Some(&END) => Err(DumpError::Ended(self.endpoint.clone())),
            Some(&ERROR) => {
                let error = ServerError::parse(&payload)
                    .map_err(|error| self.broken(WireError::Protocol(error)))?;
                Err(DumpError::Refused {
                    endpoint: self.endpoint.clone(),
                    refusal: DumpRefusal::of(&error),
                    error,
                })
            }
            _ => Err(self.malformed("a packet of an unknown kind")),
        }
    }

    fn event(&self, mut body: Bytes) -> Result<DumpEvent, DumpError> {
        let mut wanted = false;
        if self.semi_sync {
            let header = ack_wanted(&body);
            wanted =
                header.ok_or_else(|| self.malformed("an event without its semi-sync header"))?;
            body = body.split_off(SEMI_SYNC_HEADER);
        }
        let event = RawEvent::new(body)
            .map_err(|error| DumpError::BadEvent(self.endpoint.clone(), error))?;
        Ok(DumpEvent {
            event,
            ack_wanted: wanted,
        })
    }

    fn malformed(&self, reason: &str) -> DumpError {
        let error = ProtocolError::malformed("the replication stream", reason);
        self.broken(WireError::Protocol(error))
    }

    fn broken(&self, error: WireError) -> DumpError {
        DumpError::Link(wire_error(&self.endpoint, Step::ReplicationStream, error))
    }
}

// The semi-sync ACK: its request before an event, and the packet of the reply.

const MAGIC: u8 = 0xef;
const ACK_WANTED: u8 = 0x01;
/// The length of the header before each event of a semi-sync dump, in bytes.
pub(crate) const SEMI_SYNC_HEADER: usize = 2;

/// Returns whether the semi-sync header before an event requests an ACK; `None` without a header. The first event of a stream is an
/// artificial rotate event with timestamp 0, so its first byte differs from the magic number.
pub(crate) fn ack_wanted(event: &[u8]) -> Option<bool> {
    match event {
        [MAGIC, flags, ..] if flags & !ACK_WANTED == 0 => Some(flags & ACK_WANTED != 0),
        _ => None,
    }
}

/// Returns the reply that acknowledges everything up to a position.
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
    broken: bool,
}

impl Acker {
    /// Acknowledges everything up to a position. Commits that wait for this or an earlier position continue. On return, the operating
    /// system has the packet; nothing is buffered in this process. If the call is cancelled, the acker is unusable, because half a packet
    /// may have been sent.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn ack(&mut self, position: &SourcePosition) -> Result<(), LinkError> {
        if std::mem::replace(&mut self.broken, true) {
            return Err(LinkError::GivenUp(self.endpoint.clone()));
        }
        // Each reply is a separate exchange with sequence number 0.
        let packet = ack_packet(position);
        match tokio::time::timeout(ACK_LIMIT, self.writer.write(0, &packet)).await {
            Ok(Ok(_)) => {
                self.broken = false;
                Ok(())
            }
            Ok(Err(error)) => Err(wire_error(&self.endpoint, Step::Ack, WireError::Io(error))),
            Err(_) => Err(LinkError::Timeout {
                endpoint: self.endpoint.clone(),
                step: Step::Ack,
                limit: ACK_LIMIT,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semi_sync_headers_are_recognised() {
        assert_eq!(ack_wanted(&[0xef, 0, 9, 9]), Some(false));
        assert_eq!(ack_wanted(&[0xef, 1, 9, 9]), Some(true));
        for other in [&[0xef, 2, 9, 9][..], &[0, 0, 0, 0, 4], &[]] {
            assert_eq!(ack_wanted(other), None);
        }
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

//! The replication stream: events in, ACKs out, by two halves that can be used at the same time.
//!
//! Packets of a dump are not checked for their numbers: after an event whose ACK it asks for, mysqld
//! starts counting anew. Within a packet of several chunks they are.

use std::time::Duration;

use binlog_format::event::RawEvent;
use binlog_format::framing::SourcePosition;
use bytes::Bytes;

use crate::client::Endpoint;
use crate::client::{Connection, wire_error};
use crate::error::{LinkError, ProtocolError, ServerError, Step};
use crate::replication::acker::{Acker, Prefix};
use crate::replication::{DumpError, DumpOptions, DumpRefusal, request};
use crate::wire::{ByteReader, PacketReader, WireError};

const EVENT: u8 = 0x00;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
/// A read of fewer bytes than this has emptied the socket: the next one may wait, so that a dump that is discarded does not wake
/// its reader for each commit.
const LITTLE: usize = 64 << 10;
/// From such a read to the next one.
const DISCARD_EVERY: Duration = Duration::from_millis(20);
/// Room for what stands in front of an event in its packet.
const EVENT_PREFIX: usize = 1 + Prefix::SEMI_SYNC_LEN;

/// One event as the source sent it, checksum included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpEvent {
    /// The event. It shares the read buffer's memory: take what you keep.
    pub event: RawEvent,
    /// Whether a commit on the source waits for the ACK of this event's end position.
    pub ack_wanted: bool,
}

/// A dump under way: events come in, and acknowledgements go out.
#[derive(Debug)]
pub struct ReplicationStream {
    reader: EventReader,
    acker: Acker,
}

impl ReplicationStream {
    /// Registers as a replica, unless it is not to, and asks for everything that `options.have` lacks. Returns when the
    /// source has sent the first event, so that refusals are found here.
    ///
    /// # Errors
    /// When the source refuses, or is no semi-sync source although that was asked for.
    pub async fn start(
        mut connection: Connection,
        options: &DumpOptions,
    ) -> Result<Self, DumpError> {
        request::check(options)?;
        connection
            .execute(&request::session_statement(options))
            .await?;
        if options.register {
            connection
                .command(&request::register_command(options))
                .await?;
        }
        connection
            .send_only(&request::dump_command(options)?)
            .await?;
        let (endpoint, mut packets, writer) = connection.into_parts();
        packets.set_max_packet(options.max_event_bytes.saturating_add(EVENT_PREFIX));
        packets.set_spill(options.spill.clone());
        let mut reader = EventReader {
            endpoint: endpoint.clone(),
            packets,
            semi_sync: false,
            first: None,
            silence_limit: options.silence_limit,
        };
        let first = reader.receive(options.start_limit).await?;
        reader.semi_sync = matches!(Prefix::of(&first), Prefix::SemiSync { .. });
        if options.semi_sync && !reader.semi_sync {
            return Err(DumpError::NotSemiSync { endpoint });
        }
        reader.first = Some(first);
        let acker = Acker::new(endpoint, writer, options.ack_limit);
        Ok(Self { reader, acker })
    }

    /// Separates reading from acknowledging, so that two tasks can do them.
    pub fn split(self) -> (EventReader, Acker) {
        (self.reader, self.acker)
    }

    /// As [`EventReader::next`].
    ///
    /// # Errors
    /// As [`EventReader::next`].
    pub async fn next(&mut self) -> Result<DumpEvent, DumpError> {
        self.reader.next().await
    }

    /// As [`Acker::ack`].
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
    /// The next event. Cancelling loses nothing. Returns at once while events are buffered.
    ///
    /// # Errors
    /// When the dump ends, the source is silent for too long, or sends what is no event. The stream is over then.
    pub async fn next(&mut self) -> Result<DumpEvent, DumpError> {
        let body = match self.first.take() {
            Some(first) => first,
            None => self.receive(self.silence_limit).await?,
        };
        self.event(body)
    }

    /// The next event if it has been read from the network already.
    ///
    /// # Errors
    /// As [`EventReader::next`].
    pub fn try_next(&mut self) -> Result<Option<DumpEvent>, DumpError> {
        if let Some(first) = self.first.take() {
            return self.event(first).map(Some);
        }
        match self.packets.try_read() {
            Ok(None) => Ok(None),
            Ok(Some(packet)) => {
                let body = self.body(packet.payload)?;
                self.event(body).map(Some)
            }
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Reads and drops all that comes, so that the source is never blocked, until the connection breaks or is silent for too long.
    pub async fn discard(mut self) -> DumpError {
        loop {
            match tokio::time::timeout(self.silence_limit, self.packets.discard()).await {
                Ok(Ok(bytes)) if bytes < LITTLE => tokio::time::sleep(DISCARD_EVERY).await,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return self.broken(error),
                Err(_) => {
                    return DumpError::Silent {
                        endpoint: self.endpoint.clone(),
                        limit: self.silence_limit,
                    };
                }
            }
        }
    }

    /// What follows the status byte of the next packet.
    async fn receive(&mut self, limit: Duration) -> Result<Bytes, DumpError> {
        loop {
            match self.packets.try_read() {
                Ok(Some(packet)) => return self.body(packet.payload),
                Ok(None) => {}
                Err(error) => return Err(self.broken(error)),
            }
            // Any byte is a sign of life: a large event may take longer than the limit.
            match tokio::time::timeout(limit, self.packets.read_more()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.broken(error)),
                Err(_) => {
                    return Err(DumpError::Silent {
                        endpoint: self.endpoint.clone(),
                        limit,
                    });
                }
            }
        }
    }

    fn body(&self, mut payload: Bytes) -> Result<Bytes, DumpError> {
        match payload.first() {
            Some(&EVENT) => Ok(payload.split_off(1)),
            Some(&END) => Err(DumpError::Ended {
                endpoint: self.endpoint.clone(),
            }),
            Some(&ERROR) => {
                let error = ServerError::parse(&payload)
                    .map_err(|error| self.broken(WireError::Protocol(error)))?;
                Err(DumpError::Refused {
                    endpoint: self.endpoint.clone(),
                    refusal: DumpRefusal::of(&error),
                    error,
                })
            }
            _ => {
                let error = ProtocolError::malformed(
                    "the replication stream",
                    "a packet of an unknown kind",
                );
                Err(self.broken(WireError::Protocol(error)))
            }
        }
    }

    fn event(&self, mut body: Bytes) -> Result<DumpEvent, DumpError> {
        let mut ack_wanted = false;
        if self.semi_sync {
            let Prefix::SemiSync { ack_wanted: wanted } = Prefix::of(&body) else {
                let error = ProtocolError::malformed(
                    "the replication stream",
                    "an event without its semi-sync header",
                );
                return Err(self.broken(WireError::Protocol(error)));
            };
            ack_wanted = wanted;
            body = body.split_off(Prefix::SEMI_SYNC_LEN);
        }
        let event = RawEvent::new(body).map_err(|error| DumpError::BadEvent {
            endpoint: self.endpoint.clone(),
            error,
        })?;
        Ok(DumpEvent { event, ack_wanted })
    }

    fn broken(&self, error: WireError) -> DumpError {
        DumpError::Link(wire_error(&self.endpoint, Step::ReplicationStream, error))
    }
}

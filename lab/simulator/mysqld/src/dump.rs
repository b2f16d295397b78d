//! Implements `COM_BINLOG_DUMP_GTID`: sends the transactions that the replica lacks, and receives the replica's ACKs.

use std::collections::BTreeMap;
use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType, RawEvent};
use binlog_format::events::{GtidEvent, Heartbeat, Rotate};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use mysql_common::io::ParseBuf;
use mysql_common::packets::SemiSyncAckPacket;
use mysql_link::wire::{PacketReader, encode_packet};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::answers::{SqlError, code, eof_packet};
use crate::binlog::{Position, file_name, file_number};
use crate::connection::{Connection, Seat, send};
use crate::server::{Running, Server};
use crate::sessions::{Dump, SessionId};
use crate::variables::REPLICA_COUNT;

/// Offset of the first event in a file.
const FIRST_EVENT: u64 = 4;
/// The first byte before each event of a semi-sync dump. The second byte requests an ACK.
const SEMI_SYNC_MAGIC: u8 = 0xef;

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    /// Runs a dump. A dump is the last command of its connection.
    pub(crate) async fn dump(mut self, request: &Bytes, sequence: u8) -> Option<()> {
        let id = self.seat.id;
        let begun = match server_id_of(request).zip(have_of(request)) {
            Some((server_id, have)) => self
                .seat
                .server
                .act(|state| Sending::begin(state, id, server_id, have, sequence)),
            None => Err(SqlError::new(
                code::MALFORMED_PACKET,
                "Malformed communication packet",
            )),
        };
        let sending = match begun {
            Ok(sending) => sending,
            Err(error) => {
                let mut bytes = Vec::new();
                encode_packet(sequence, &error.packet(), &mut bytes);
                return send(&mut self.writer, &bytes).await;
            }
        };
        let Self {
            seat,
            mut reader,
            mut writer,
            ..
        } = self;
        tokio::select! {
            biased;
            () = take_acks(&seat, &mut reader) => None,
            () = send_events(&seat, sending, &mut writer) => None,
        }
    }
}

/// Reads the replica's ACKs until the connection ends.
async fn take_acks<S: AsyncRead>(seat: &Seat, reader: &mut PacketReader<ReadHalf<S>>) {
    while let Ok(packet) = reader.read().await {
        // While the process is paused, it does not read the ACK.
        let taken = seat.server.until(|state| {
            if state.paused {
                return None;
            }
            let lost = seat.is_lost(state);
            if !lost {
                state.acknowledge(seat.id, &packet.payload);
            }
            Some(lost)
        });
        if taken.await {
            // `send_events` ends the connection.
            return std::future::pending().await;
        }
    }
}

async fn send_events<S: AsyncWrite>(seat: &Seat, mut sending: Sending, writer: &mut WriteHalf<S>) {
    loop {
        let heartbeat = sending.heartbeat;
        // Waits for events to send, or for the end of the session with an optional last packet.
        let next = seat.server.until(|state| {
            if state.paused {
                return None;
            }
            if seat.is_lost(state) {
                return Some(Err(farewell(state, seat)));
            }
            sending.next(state).map(Ok)
        });
        let next = match heartbeat {
            None => next.await,
            Some(period) => match tokio::time::timeout(period, next).await {
                Ok(next) => next,
                Err(_) => Ok(seat.server.act(|state| match state.paused {
                    true => Vec::new(),
                    false => sending.sign_of_life(state),
                })),
            },
        };
        let bytes = match next {
            Ok(bytes) => bytes,
            Err(last) => {
                let mut bytes = Vec::new();
                if let Some(payload) = last {
                    encode_packet(sending.sequence, &payload, &mut bytes);
                }
                send(writer, &bytes).await;
                return;
            }
        };
        if send(writer, &bytes).await.is_none() {
            return;
        }
    }
}

fn farewell(server: &mut Server, seat: &Seat) -> Option<Vec<u8>> {
    if server.starts != seat.start {
        return None;
    }
    let session = server.parting.get(&seat.id)?;
    if session.was_replaced() {
        let message = "A replica with the same server_uuid/server_id as this replica has connected to the source";
        return Some(SqlError::new(code::FATAL_READING_BINLOG, message).packet());
    }
    // The server was stopped gracefully.
    session.dump.is_some().then(eof_packet)
}

/// Returns the server id in a request. It follows two bytes of flags.
fn server_id_of(request: &Bytes) -> Option<u32> {
    let id = request.get(2..6)?.try_into().ok()?;
    Some(u32::from_le_bytes(id))
}

/// Returns the GTIDs in a request. `None`: the request is malformed.
fn have_of(request: &Bytes) -> Option<GtidSet> {
    // Before the file's name: flags, server id, and the name's length.
    let name = request.get(6..10)?.try_into().ok()?;
    let behind_name = 10 + usize::try_from(u32::from_le_bytes(name)).ok()?;
    // After the file's name: a position, and the length of the set.
    let length = behind_name + 8;
    let set = request.get(length + 4..)?;
    let length = request.get(length..length + 4)?.try_into().ok()?;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    GtidSet::decode(set.get(..length)?).ok()
}

/// The progress of a dump.
#[derive(Debug)]
struct Sending {
    at: Position,
    have: GtidSet,
    /// True while the events belong to a transaction that the replica has.
    skips: bool,
    /// True if events were skipped since the last sent event.
    skipped: bool,
    /// True before the first packet of a file, a rotate event.
    announces: bool,
    semi_sync: bool,
    checksum: bool,
    heartbeat: Option<Duration>,
    sequence: u8,
}

impl Sending {
    fn begin(
        server: &mut Server,
        id: SessionId,
        server_id: u32,
        have: GtidSet,
        sequence: u8,
    ) -> Result<Self, SqlError> {
        let source = server.options.server_uuid;
        let Some(running) = &mut server.running else {
            return Err(SqlError::lost());
        };
        let session = running.sessions.get(&id);
        let variables = session.map_or_else(BTreeMap::new, |session| session.variables.clone());
        let uuid = variables.get("replica_uuid");
        let uuid = uuid.or(variables.get("slave_uuid")).cloned();
        let is_one = |name: &str| variables.get(name).is_some_and(|value| value == "1");
        let plugin = running.variables.semi_sync_source;
        let semi_sync =
            plugin && (is_one("rpl_semi_sync_replica") || is_one("rpl_semi_sync_slave"));
        for (other, session) in &mut running.sessions {
            if let Some(dump) = &mut session.dump
                && *other != id
                && dump.uuid == uuid
            {
                dump.replaced = true;
                session.gone = true;
            }
        }
        let fatal = |message: &str| SqlError::new(code::FATAL_READING_BINLOG, message);
        let mut known = running.executed.clone();
        known.extend(running.commits.owned().map(|(gtid, _)| gtid));
        let mut of_ours = GtidSet::new();
        for (of, tag, interval) in have.intervals() {
            if of.0 == source {
                of_ours.add_interval(of, tag, interval);
            }
        }
        if !known.contains_set(&of_ours) {
            return Err(fatal(
                "Replica has more GTIDs than the source has, using the source's SERVER_UUID. This may indicate that the end of \
                 the binary log was truncated or that the last binary log file was lost",
            ));
        }
        if !have.contains_set(&running.binlog.purged()) {
            return Err(fatal(
                "Cannot replicate because the source purged required binary logs. Replicate the missing transactions from \
                 elsewhere, or provision a new replica from backup",
            ));
        }
        let files = &running.binlog.files;
        let mut from_the_end = files.iter().rev();
        let first = from_the_end.find(|file| have.contains_set(&file.previous));
        let file = first.or(files.first()).map_or(1, |file| file.number);
        if let Some(session) = running.sessions.get_mut(&id) {
            session.dump = Some(Dump {
                server_id,
                uuid,
                semi_sync,
                replaced: false,
            });
        }
        let period = variables.get("source_heartbeat_period");
        let nanoseconds = period.and_then(|period| period.parse().ok()).unwrap_or(0);
        let checksum = variables.get("source_binlog_checksum");
        server.changed();
        Ok(Self {
            at: Position {
                file,
                offset: FIRST_EVENT,
            },
            have,
            skips: false,
            skipped: false,
            announces: true,
            semi_sync,
            checksum: checksum.is_some_and(|name| name != "NONE"),
            heartbeat: (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds)),
            sequence,
        })
    }

    /// Returns the packets that can be sent now. `None`: there are none.
    fn next(&mut self, server: &Server) -> Option<Vec<u8>> {
        let running = server.running.as_ref()?;
        let mut out = Vec::new();
        loop {
            if std::mem::take(&mut self.announces) {
                let name = file_name(self.at.file);
                let rotate = running.binlog.made_up(&Rotate::to(&name), 0, self.checksum);
                self.packet(&rotate, false, &mut out);
            }
            let end = running.binlog.size(self.at.file);
            if end > self.at.offset {
                let read = running.binlog.read(self.at.file, self.at.offset, end);
                // If the file cannot be read, the stream stalls until the replica's timeout.
                self.events(running, read.unwrap_or_default(), &mut out);
            }
            if self.at.file >= running.binlog.end.file {
                break;
            }
            self.at = Position {
                file: self.at.file + 1,
                offset: FIRST_EVENT,
            };
            self.announces = true;
        }
        if std::mem::take(&mut self.skipped) {
            out.extend(self.sign_of_life(server));
        }
        (!out.is_empty()).then_some(out)
    }

    fn events(&mut self, running: &Running, mut bytes: Bytes, out: &mut Vec<u8>) {
        while let Ok(Some(event)) = RawEvent::split_from(&mut bytes) {
            self.at.offset += event.bytes().len() as u64;
            match event.event_type() {
                EventType::Gtid | EventType::GtidTagged => {
                    let verified = event.verified(ChecksumAlgorithm::Crc32);
                    let gtid = verified.and_then(GtidEvent::decode);
                    self.skips = gtid.is_ok_and(|event| self.have.contains(&event.gtid));
                }
                EventType::Rotate | EventType::Stop | EventType::FormatDescription => {
                    self.skips = false
                }
                _ => {}
            }
            if self.skips {
                self.skipped = true;
                continue;
            }
            self.skipped = false;
            let wants_ack = self.semi_sync
                && running.variables.is_on("rpl_semi_sync_source_enabled")
                && running.commits.wants_ack(self.at);
            if event.event_type() == EventType::FormatDescription {
                let mut described = event.bytes().to_vec();
                // The dump clears the in-use flag. The checksum does not cover this flag.
                if let Some(flags) = described.get_mut(17) {
                    *flags &= !(EventFlags::BINLOG_IN_USE.0 as u8);
                }
                self.packet(&described, false, out);
            } else {
                self.packet(event.bytes(), wants_ack, out);
            }
        }
    }

    fn sign_of_life(&mut self, server: &Server) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(running) = &server.running {
            let heartbeat = Heartbeat {
                version_2: false,
                file: file_name(self.at.file).into_bytes().into(),
                position: self.at.offset,
            };
            let event = running
                .binlog
                .made_up(&heartbeat, self.at.offset, self.checksum);
            self.packet(&event, false, &mut out);
        }
        out
    }

    fn packet(&mut self, event: &[u8], wants_ack: bool, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(event.len() + 3);
        payload.push(0);
        if self.semi_sync {
            payload.extend_from_slice(&[SEMI_SYNC_MAGIC, u8::from(wants_ack)]);
        }
        payload.extend_from_slice(event);
        self.sequence = encode_packet(self.sequence, &payload, out);
        if wants_ack {
            self.sequence = 0;
        }
    }
}

impl Server {
    /// Processes a replica's ACK: releases the commits up to its position. Ignores an invalid ACK.
    fn acknowledge(&mut self, id: SessionId, reply: &[u8]) -> Option<()> {
        let reply = ParseBuf(reply).parse::<SemiSyncAckPacket<'_>>(()).ok()?;
        let name = String::from_utf8_lossy(reply.filename_raw());
        let running = self.running.as_mut()?;
        let dump = running.sessions.get(&id)?.dump.as_ref();
        let server_id = dump.filter(|dump| dump.semi_sync)?.server_id;
        let position = Position {
            file: file_number(&name)?,
            offset: reply.position(),
        };
        if position <= running.binlog.end {
            let needed = running.variables.number(REPLICA_COUNT);
            running.commits.acknowledge(server_id, position, needed);
            self.changed();
        }
        Some(())
    }
}

//! An entry on its way into a file: checked once, before anything of it is written, so that a file
//! never holds what no reader could read.

use binlog_format::DecodeError;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{FormatDescription, GtidEvent};
use binlog_format::gtid::Gtid;
use bytes::Bytes;
use raft_types::{AppEntry, Entry, EntryPayload, OpId, PayloadChecksumError, Rotate};

use crate::format::file_header::LoggedMembership;
use crate::format::marker::{MAX_MARKER_EVENT_BYTES, Marker, MarkerKind};

/// What an entry takes in memory beside its payload, roughly.
const ENTRY_OVERHEAD_BYTES: u64 = 192;

/// An entry that no binlog file can hold. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    /// The payload is not whole events.
    #[error("entry {op_id} is not a valid transaction: {source}")]
    Payload {
        /// The entry that was to be written.
        op_id: OpId,
        /// Why its events cannot be read.
        source: DecodeError,
    },
    /// The payload is not the one that was sealed at ingest.
    #[error("entry {op_id}: {source}; it was damaged on its way")]
    Damaged {
        /// The entry that was to be written.
        op_id: OpId,
        /// The checksum that was sealed and the one that was found.
        source: PayloadChecksumError,
    },
    /// The payload is whole events, but not canonical ones.
    #[error("entry {op_id} is not in canonical form: {what}")]
    NotCanonical {
        /// The entry that was to be written.
        op_id: OpId,
        /// The rule of the canonical form that it breaks.
        what: &'static str,
    },
    /// The membership or format description does not fit into a marker.
    #[error(
        "entry {op_id} has {bytes} bytes beside its events, more than the {MAX_MARKER_EVENT_BYTES} that a marker holds"
    )]
    TooLarge {
        /// The entry that was to be written.
        op_id: OpId,
        /// Bytes that the marker would have to hold.
        bytes: usize,
    },
    /// The entry does not follow the one before it.
    #[error("entry {op_id} does not follow {last}, the last one in the log")]
    NotNext {
        /// The entry that was to be written.
        op_id: OpId,
        /// The last entry of the log.
        last: OpId,
    },
}

/// An entry that can be written.
#[derive(Debug, Clone)]
pub(crate) struct PreparedEntry {
    pub(crate) op_id: OpId,
    /// Of a large payload that is not checked yet without the number of its events.
    marker: Marker,
    checked: bool,
    /// Timestamp and server id of the marker's event.
    pub(crate) origin: (u32, u32),
    /// Bytes that follow the marker's fixed part; empty for a transaction.
    pub(crate) in_marker: Bytes,
    pub(crate) content: PreparedContent,
    /// Bytes that the entry takes in memory, roughly.
    pub(crate) memory: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum PreparedContent {
    Blank,
    Membership(LoggedMembership),
    Transaction { events: Bytes, first: FirstEvent },
    Rotate(Rotate),
}

impl PreparedEntry {
    /// The entry's marker, with its events checked: of a large payload that is done here, by the writer, which may wait for
    /// the disk where the payload is in a file.
    ///
    /// # Errors
    /// As [`prepare`]; nothing of the entry is written then.
    pub(crate) fn checked_marker(&self) -> Result<Marker, InvalidEntry> {
        match &self.content {
            PreparedContent::Transaction { events, .. } if !self.checked => {
                let event_count = check_events(self.op_id, events, self.marker.payload_crc32c)?;
                Ok(Marker {
                    event_count,
                    ..self.marker
                })
            }
            _ => Ok(self.marker),
        }
    }

    pub(crate) fn gtid(&self) -> Option<Gtid> {
        match self.content {
            PreparedContent::Transaction { first, .. } => first.gtid,
            _ => None,
        }
    }
}

/// What a rotate entry's marker holds: u32 timestamp, then the next file's format description.
pub(crate) struct RotateBody;

impl RotateBody {
    fn encode(rotate: &Rotate) -> Bytes {
        let mut body = rotate.timestamp.to_le_bytes().to_vec();
        body.extend_from_slice(&rotate.format_description);
        body.into()
    }

    /// Reads the payload of a rotate entry's marker; `None` when it is none.
    pub(crate) fn decode(payload: &Bytes) -> Option<Rotate> {
        let timestamp = payload.first_chunk::<4>()?;
        let format_description = payload.slice(4..);
        check_format_description(&format_description).ok()?;
        Some(Rotate {
            format_description,
            timestamp: u32::from_le_bytes(*timestamp),
        })
    }
}

/// Checks an entry and works out everything that does not depend on where it will stand.
///
/// # Errors
/// [`InvalidEntry`]; an entry that fails here would be unreadable.
pub(crate) fn prepare(entry: &Entry) -> Result<PreparedEntry, InvalidEntry> {
    let op_id = OpId::from(entry.log_id);
    let (kind, origin, in_marker, content) = match &entry.payload {
        EntryPayload::Blank => (
            MarkerKind::Blank,
            (0, 0),
            Bytes::new(),
            PreparedContent::Blank,
        ),
        EntryPayload::Membership(payload) => (
            MarkerKind::Membership,
            (0, 0),
            payload.json().clone(),
            PreparedContent::Membership(LoggedMembership::new(op_id, payload)),
        ),
        EntryPayload::Normal(AppEntry::Rotate(rotate)) => {
            let server_id = check_format_description(&rotate.format_description)
                .map_err(|what| InvalidEntry::NotCanonical { op_id, what })?;
            let body = RotateBody::encode(rotate);
            (
                MarkerKind::Rotate,
                (rotate.timestamp, server_id),
                body,
                PreparedContent::Rotate(rotate.clone()),
            )
        }
        EntryPayload::Normal(AppEntry::Transaction(payload)) => {
            return prepare_transaction(op_id, payload.bytes(), payload.crc32c());
        }
    };
    if in_marker.len() > MAX_MARKER_EVENT_BYTES / 2 {
        return Err(InvalidEntry::TooLarge {
            op_id,
            bytes: in_marker.len(),
        });
    }
    let marker = Marker::holding(kind, Some(op_id), &in_marker);
    let memory = in_marker.len() as u64 + ENTRY_OVERHEAD_BYTES;
    Ok(PreparedEntry {
        op_id,
        marker,
        checked: true,
        origin,
        in_marker,
        content,
        memory,
    })
}

/// From this size on the events of a payload are checked by the writer's thread: to read a gigabyte takes the engine's loop, in
/// which entries are prepared, away from heartbeats, and for seconds where it is in a file and the pages were dropped.
const CHECKED_BY_WRITER_FROM: usize = 4 << 20;

fn prepare_transaction(
    op_id: OpId,
    events: &Bytes,
    crc32c: u32,
) -> Result<PreparedEntry, InvalidEntry> {
    let checked = events.len() < CHECKED_BY_WRITER_FROM;
    let event_count = if checked {
        check_events(op_id, events, crc32c)?
    } else {
        0
    };
    let invalid = |source| InvalidEntry::Payload { op_id, source };
    let mut rest: &[u8] = events;
    let Some(first) = EventRef::split_from(&mut rest).map_err(invalid)? else {
        return Err(InvalidEntry::NotCanonical {
            op_id,
            what: "a transaction without events",
        });
    };
    let origin = (first.header().timestamp, first.header().server_id);
    let first = FirstEvent::read(first).map_err(invalid)?;
    let marker = Marker {
        kind: MarkerKind::Transaction,
        op_id: Some(op_id),
        payload_len: events.len() as u64,
        payload_crc32c: crc32c,
        event_count,
    };
    Ok(PreparedEntry {
        op_id,
        marker,
        checked,
        origin,
        in_marker: Bytes::new(),
        memory: events.len() as u64 + ENTRY_OVERHEAD_BYTES,
        content: PreparedContent::Transaction {
            events: events.clone(),
            first,
        },
    })
}

/// Checks that the events are whole, canonical, and those that were sealed; how many they are.
fn check_events(op_id: OpId, events: &Bytes, crc32c: u32) -> Result<u32, InvalidEntry> {
    // What was damaged in memory must not get into a file, which could then not be opened again.
    let found = crc32c::crc32c(events);
    if found != crc32c {
        let source = PayloadChecksumError {
            expected: crc32c,
            found,
        };
        return Err(InvalidEntry::Damaged { op_id, source });
    }
    let mut rest: &[u8] = events;
    let mut event_count = 0_u32;
    let invalid = |source| InvalidEntry::Payload { op_id, source };
    while let Some(event) = EventRef::split_from(&mut rest).map_err(invalid)? {
        let header = event.header();
        if header.log_pos != 0 {
            return Err(InvalidEntry::NotCanonical {
                op_id,
                what: "an event has an end position",
            });
        }
        event_count += 1;
    }
    Ok(event_count)
}

/// What the first event of a transaction says of it; nothing where it is another one than it should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FirstEvent {
    pub(crate) gtid: Option<Gtid>,
    /// Its number in the binlog file of the server that wrote it; 0: without one.
    pub(crate) sequence_number: i64,
}

impl FirstEvent {
    pub(crate) fn read(event: EventRef<'_>) -> Result<Self, DecodeError> {
        match event.header().event_type {
            EventType::Gtid | EventType::GtidTagged => {
                let event = GtidEvent::decode(event)?;
                Ok(Self {
                    gtid: Some(event.gtid),
                    sequence_number: event.clock.sequence_number,
                })
            }
            _ => Ok(Self::default()),
        }
    }
}

/// Checks that the bytes are one canonical format description; its server id.
fn check_format_description(event: &[u8]) -> Result<u32, &'static str> {
    let event =
        EventRef::new(event).map_err(|_| "the format description is not one whole event")?;
    let description =
        FormatDescription::decode(event).map_err(|_| "the format description cannot be read")?;
    if description.checksum != ChecksumAlgorithm::Crc32 {
        return Err("the format description does not announce CRC32");
    }
    if event.header().log_pos != 0 || description.created != 0 {
        return Err("the format description has an end position or a creation time");
    }
    Ok(event.header().server_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft_types::LogId;
    use raft_types::TransactionPayload;

    fn entry(payload: EntryPayload) -> Entry {
        Entry {
            log_id: LogId::from(OpId::new(1, 5)),
            payload,
        }
    }

    fn rotate(format_description: Vec<u8>) -> Entry {
        let rotate = Rotate {
            format_description: format_description.into(),
            timestamp: 7,
        };
        entry(EntryPayload::Normal(AppEntry::Rotate(rotate)))
    }

    fn transaction(bytes: Vec<u8>) -> Entry {
        let payload = TransactionPayload::seal(bytes.into());
        entry(EntryPayload::Normal(AppEntry::Transaction(payload)))
    }

    #[test]
    fn rotate_body_round_trips() {
        let prepared = prepare(&rotate(FormatDescription::built_in_event())).unwrap();
        let rotate = RotateBody::decode(&prepared.in_marker).unwrap();
        assert_eq!(rotate.timestamp, 7);
        assert_eq!(
            rotate.format_description,
            FormatDescription::built_in_event()
        );
        assert!(RotateBody::decode(&Bytes::from_static(b"abc")).is_none());
    }

    #[test]
    fn what_no_reader_could_read_is_refused() {
        assert!(matches!(
            prepare(&transaction(vec![])),
            Err(InvalidEntry::NotCanonical { .. })
        ));
        assert!(matches!(
            prepare(&transaction(vec![1; 30])),
            Err(InvalidEntry::Payload { .. })
        ));
        assert!(matches!(
            prepare(&rotate(vec![0; 19])),
            Err(InvalidEntry::NotCanonical { .. })
        ));
        let mut damaged = transaction(FormatDescription::built_in_event());
        if let EntryPayload::Normal(AppEntry::Transaction(payload)) = &mut damaged.payload {
            let json =
                serde_json::json!({ "bytes": payload.bytes(), "crc32c": payload.crc32c() ^ 1 });
            *payload = serde_json::from_value(json).unwrap();
        }
        assert!(matches!(
            prepare(&damaged),
            Err(InvalidEntry::Damaged { .. })
        ));
        let mut stamped = FormatDescription::built_in_event();
        stamped[13] = 1;
        assert!(matches!(
            prepare(&transaction(stamped.clone())),
            Err(InvalidEntry::NotCanonical { .. })
        ));
        assert!(matches!(
            prepare(&rotate(stamped)),
            Err(InvalidEntry::NotCanonical { .. })
        ));
    }
}

//! Prepares entries for a log file. The whole entry is checked before any byte of it is written, so that a file never contains an
//! unreadable entry.

use binlog_format::DecodeError;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{FormatDescription, GtidEvent};
use binlog_format::gtid::Gtid;
use bytes::Bytes;
use raft_types::{AppEntry, Entry, EntryPayload, OpId, PayloadChecksumError, Rotate};

use crate::format::file_header::LoggedMembership;
use crate::format::marker::{MAX_MARKER_EVENT_BYTES, Marker, MarkerKind};

/// Approximate memory of an entry in addition to its payload.
const ENTRY_OVERHEAD_BYTES: u64 = 192;

/// An entry that no binlog file can hold. None of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    /// The payload does not consist of whole events.
    #[error("entry {0} is not a valid transaction: {1}")]
    Payload(OpId, DecodeError),
    /// The payload's CRC32C differs from that computed when the payload was created.
    #[error("entry {0}: {1}; it was damaged on its way")]
    Damaged(OpId, PayloadChecksumError),
    /// The payload's events are whole but not canonical.
    #[error("entry {0} is not in canonical form: {1}")]
    NotCanonical(OpId, &'static str),
    /// The membership or format description does not fit into a marker.
    #[error(
        "entry {0} has {1} bytes in addition to its events, more than the {MAX_MARKER_EVENT_BYTES} that a marker holds"
    )]
    TooLarge(OpId, usize),
    /// The entry does not follow the previous one.
    #[error("entry {op_id} does not follow {last}, the last one in the log")]
    NotNext {
        /// The rejected entry.
        op_id: OpId,
        /// The last entry of the log.
        last: OpId,
    },
}

/// An entry that can be written.
#[derive(Debug, Clone)]
pub(crate) struct PreparedEntry {
    pub(crate) op_id: OpId,
    /// For a large payload that is not checked yet, the event count is missing.
    marker: Marker,
    checked: bool,
    /// Timestamp and server id of the marker's event.
    pub(crate) origin: (u32, u32),
    /// Bytes after the marker's fixed part; empty for a transaction.
    pub(crate) in_marker: Bytes,
    /// A transaction's events.
    pub(crate) events: Bytes,
    pub(crate) content: Content,
    /// Approximate memory of the entry in bytes.
    pub(crate) memory: u64,
}

/// The content of an entry, except for a transaction's events.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Blank,
    Membership(LoggedMembership),
    /// A transaction, with its first event if that was read.
    Transaction(FirstEvent),
    Rotate(Rotate),
}

impl Content {
    pub(crate) fn gtid(&self) -> Option<Gtid> {
        match self {
            Self::Transaction(first) => first.gtid,
            _ => None,
        }
    }
}

impl PreparedEntry {
    /// Checks the events of a large payload, and returns the entry's marker. The writer calls this, because it may wait for the disk: the
    /// payload may be in a file.
    ///
    /// # Errors
    /// As [`prepare`]; nothing of the entry is written if it fails.
    pub(crate) fn checked_marker(&self) -> Result<Marker, InvalidEntry> {
        let mut marker = self.marker;
        if !self.checked {
            marker.event_count = check_events(self.op_id, &self.events, marker.payload_crc32c)?;
        }
        Ok(marker)
    }
}

/// Decodes the payload of a rotate entry's marker; `None` if invalid.
pub(crate) fn decode_rotate(payload: &Bytes) -> Option<Rotate> {
    let timestamp = payload.first_chunk::<4>()?;
    let format_description = payload.slice(4..);
    check_format_description(&format_description).ok()?;
    Some(Rotate {
        format_description,
        timestamp: u32::from_le_bytes(*timestamp),
    })
}

/// Checks an entry and computes everything that does not depend on its position.
///
/// # Errors
/// [`InvalidEntry`]; an entry that fails here would be unreadable.
pub(crate) fn prepare(entry: &Entry) -> Result<PreparedEntry, InvalidEntry> {
    let op_id = OpId::from(entry.log_id);
    let (kind, origin, in_marker, content) = match &entry.payload {
        EntryPayload::Blank => (MarkerKind::Blank, (0, 0), Bytes::new(), Content::Blank),
        EntryPayload::Membership(payload) => (
            MarkerKind::Membership,
            (0, 0),
            payload.json().clone(),
            Content::Membership(LoggedMembership::new(op_id, payload)),
        ),
        EntryPayload::Normal(AppEntry::Rotate(rotate)) => {
            let server_id = check_format_description(&rotate.format_description)
                .map_err(|what| InvalidEntry::NotCanonical(op_id, what))?;
            // u32 timestamp, then the next file's format description.
            let mut body = rotate.timestamp.to_le_bytes().to_vec();
            body.extend_from_slice(&rotate.format_description);
            (
                MarkerKind::Rotate,
                (rotate.timestamp, server_id),
                body.into(),
                Content::Rotate(rotate.clone()),
            )
        }
        EntryPayload::Normal(AppEntry::Transaction(payload)) => {
            return prepare_transaction(op_id, payload.bytes(), payload.crc32c());
        }
    };
    if in_marker.len() > MAX_MARKER_EVENT_BYTES / 2 {
        return Err(InvalidEntry::TooLarge(op_id, in_marker.len()));
    }
    let marker = Marker::holding(kind, Some(op_id), &in_marker);
    let memory = in_marker.len() as u64 + ENTRY_OVERHEAD_BYTES;
    Ok(PreparedEntry {
        op_id,
        marker,
        checked: true,
        origin,
        in_marker,
        events: Bytes::new(),
        content,
        memory,
    })
}

/// From this size in bytes on, the writer's thread checks a payload's events. Entries are prepared in the engine's loop, where reading a
/// gigabyte would delay heartbeats, by seconds if the payload is in an uncached file.
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
    let invalid = |source| InvalidEntry::Payload(op_id, source);
    let mut rest: &[u8] = events;
    let Some(first) = EventRef::split_from(&mut rest).map_err(invalid)? else {
        return Err(InvalidEntry::NotCanonical(
            op_id,
            "a transaction without events",
        ));
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
        events: events.clone(),
        content: Content::Transaction(first),
    })
}

/// Checks that the events are whole and canonical and have this CRC32C; returns their number.
fn check_events(op_id: OpId, events: &Bytes, crc32c: u32) -> Result<u32, InvalidEntry> {
    // A payload damaged in memory must not be written: the file could then not be opened again.
    let found = crc32c::crc32c(events);
    if found != crc32c {
        let source = PayloadChecksumError {
            expected: crc32c,
            found,
        };
        return Err(InvalidEntry::Damaged(op_id, source));
    }
    let mut rest: &[u8] = events;
    let mut event_count = 0_u32;
    let invalid = |source| InvalidEntry::Payload(op_id, source);
    while let Some(event) = EventRef::split_from(&mut rest).map_err(invalid)? {
        let header = event.header();
        if header.log_pos != 0 {
            return Err(InvalidEntry::NotCanonical(
                op_id,
                "an event has an end position",
            ));
        }
        event_count += 1;
    }
    Ok(event_count)
}

/// Data of a transaction's first event; empty if the event has another type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FirstEvent {
    pub(crate) gtid: Option<Gtid>,
    /// The GTID event's sequence number, which the server that wrote it counts per binlog file; 0 without one.
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

/// Checks that the bytes are one canonical format description; returns its server id.
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
        let rotate = decode_rotate(&prepared.in_marker).unwrap();
        assert_eq!(rotate.timestamp, 7);
        assert_eq!(
            rotate.format_description,
            FormatDescription::built_in_event()
        );
        assert!(decode_rotate(&Bytes::from_static(b"abc")).is_none());
    }

    #[test]
    fn unreadable_entries_are_refused() {
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

//! Typed views of the events in use. Each view decodes from an event without a checksum, and encodes to the canonical form. Events without
//! a view stay bytes.

mod file_events;
mod gtid_event;
mod query;
mod rows;
mod transaction;

use crate::decode::DecodeError;
use crate::event::{EventFlags, EventHeader, EventRef, HEADER_LEN};
use crate::event_type::EventType;
pub use crate::events::file_events::{
    FormatDescription, Heartbeat, Ignorable, PreviousGtids, Rotate,
};
pub use crate::events::gtid_event::{CommitTimestamp, GtidEvent, LogicalClock, ServerVersion};
pub use crate::events::query::{
    AutoIncrement, CharacterSets, IntVar, IntVarKind, Invoker, Query, Rand, SessionContext,
    SessionOptions, StatementKind, UserVar, UserVarType, UserVarValue, refusal_of_statement,
    shown_statement, without_secrets,
};
pub use crate::events::rows::{Rows, RowsChange, RowsQuery, TableId, TableMap, is_rows};
pub use crate::events::transaction::{Compression, TransactionPayload, XaPrepare, Xid};

// Encoding of typed views as canonical events.

/// The fields of an event's header that do not depend on its body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventOrigin {
    /// Seconds since 1970; 0 in artificial events.
    pub timestamp: u32,
    /// The originating server.
    pub server_id: u32,
    /// Flags of the event's header.
    pub flags: EventFlags,
}

impl From<&EventHeader> for EventOrigin {
    fn from(header: &EventHeader) -> Self {
        Self {
            timestamp: header.timestamp,
            server_id: header.server_id,
            flags: header.flags,
        }
    }
}

/// A typed view that can be encoded.
pub trait EncodeEvent {
    /// The type in the header of these events. If there are two forms, the type of one of them.
    const TYPE: EventType;

    /// The type in the header.
    fn event_type(&self) -> EventType {
        Self::TYPE
    }

    /// Appends the event's body.
    fn encode_body(&self, out: &mut Vec<u8>);

    /// Appends the whole event in canonical form.
    fn encode_into(&self, origin: EventOrigin, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        self.encode_body(out);
        let header = EventHeader {
            timestamp: origin.timestamp,
            event_type: self.event_type(),
            server_id: origin.server_id,
            // A body consists of slices of at most MAX_EVENT_BYTES. If the event is still too large, reading it fails.
            event_size: u32::try_from(out.len() - start).unwrap_or(u32::MAX),
            log_pos: 0,
            flags: origin.flags,
        };
        if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
            place.copy_from_slice(&header.encode());
        }
    }

    /// The whole event in canonical form.
    fn encode(&self, origin: EventOrigin) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(origin, &mut out);
        out
    }
}

// An event as one line of text: the last column of SHOW BINLOG EVENTS.

/// The text for an event without its checksum. Empty for unsupported types, and for an event that cannot be decoded; other code reports
/// that.
#[must_use]
pub fn summary(event: EventRef<'_>) -> String {
    text_of(event).unwrap_or_default()
}

fn text_of(event: EventRef<'_>) -> Result<String, DecodeError> {
    let flags = event.header().flags;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match event.event_type() {
        EventType::FormatDescription => {
            let description = FormatDescription::decode(event)?;
            let version = text(&description.server_version);
            format!("Server ver: {version}, Binlog ver: 4")
        }
        EventType::PreviousGtids => PreviousGtids::decode(event)?.gtids.to_string(),
        EventType::Rotate => {
            let rotate = Rotate::decode(event)?;
            format!("{};pos={}", text(&rotate.next_file), rotate.position)
        }
        EventType::Gtid | EventType::GtidTagged => {
            let gtid = GtidEvent::decode(event)?.gtid;
            format!("SET @@SESSION.GTID_NEXT= '{gtid}'")
        }
        EventType::Query => {
            let query = Query::decode(event)?;
            // CREATE DATABASE names a schema that does not exist before, so readers must not switch to it.
            let bare = query.schema.is_empty() || flags.contains(EventFlags::SUPPRESS_USE);
            let statement = text(&query.statement);
            match bare {
                true => statement,
                false => format!("use `{}`; {statement}", text(&query.schema)),
            }
        }
        EventType::Xid => format!("COMMIT /* xid={} */", Xid::decode(event)?.xid),
        EventType::RowsQuery => text(&RowsQuery::decode(event)?.statement),
        EventType::TableMap => {
            let map = TableMap::decode(event)?;
            let (schema, table) = (text(&map.schema), text(&map.table));
            format!("table_id: {} ({schema}.{table})", map.table_id.0)
        }
        _ => String::new(),
    })
}

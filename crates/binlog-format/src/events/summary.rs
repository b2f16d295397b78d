//! What an event says in one line, for people: the last column of SHOW BINLOG EVENTS.

use crate::decode_error::DecodeError;
use crate::event::{EventFlags, EventRef};
use crate::event_type::EventType;

use super::{FormatDescription, GtidEvent, PreviousGtids, Query, Rotate, RowsQuery, TableMap, Xid};

/// The line for an event without its checksum; empty for types that are not looked into, and for an event that cannot be
/// read, which is judged elsewhere.
#[must_use]
pub fn summary(event: EventRef<'_>) -> String {
    said(event).unwrap_or_default()
}

fn said(event: EventRef<'_>) -> Result<String, DecodeError> {
    let flags = event.header().flags;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match event.event_type() {
        EventType::FormatDescription => {
            let description = FormatDescription::decode(event)?;
            format!(
                "Server ver: {}, Binlog ver: 4",
                text(&description.server_version)
            )
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
            // CREATE DATABASE names a schema that a reader must not change to before.
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
            format!(
                "table_id: {} ({}.{})",
                map.table_id.0,
                text(&map.schema),
                text(&map.table)
            )
        }
        _ => String::new(),
    })
}

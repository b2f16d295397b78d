//! Everything in this crate that reads bytes, on the same bytes.

use std::path::Path;

use binlog_format::canonical::{
    CanonicalEvents, canonicalise, stamp, stamp_payload, stamped_len, unstamp, verify_event_crc,
};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventRef, EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{
    FormatDescription, GtidEvent, Heartbeat, Ignorable, PreviousGtids, Query, Rotate, Rows,
    RowsQuery, TableMap, TransactionPayload, XaPrepare, Xid,
};
use binlog_format::framing::TransactionFramer;
use binlog_format::gtid::{Gtid, GtidSet, Tag};
use bytes::Bytes;

/// What a transaction may have in these tests.
pub(crate) const MAX_TRANSACTION_BYTES: u64 = 64 << 10;
/// What a compressed payload may become in these tests.
pub(crate) const MAX_UNCOMPRESSED_BYTES: u64 = 64 << 10;

/// Hands `bytes` to every reader, as events, as a stream, as an event's body, as a set and as text.
pub(crate) fn read_as_everything(bytes: &[u8]) {
    let _ = verify_event_crc(bytes);
    let _ = unstamp(bytes);
    let _ = stamped_len(bytes);
    let _ = stamp(bytes, u64::MAX, &mut Vec::new());
    let _ = stamp_payload(bytes, 4, &mut Vec::new());
    let _ = GtidSet::decode(bytes);
    let _ = Tag::new(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = text.parse::<GtidSet>();
    let _ = text.parse::<Gtid>();
    for checksum in [ChecksumAlgorithm::None, ChecksumAlgorithm::Crc32] {
        read_as_stream(bytes, checksum);
    }
    for code in 0..=u8::MAX {
        let event = event_of(code, bytes);
        read_through_views(EventRef::new(&event).expect("the header is right"));
    }
}

/// Hands the events in `bytes` to the framer, as far as they are events.
pub(crate) fn read_as_stream(bytes: &[u8], checksum: ChecksumAlgorithm) {
    let mut framer = TransactionFramer::new(checksum, MAX_TRANSACTION_BYTES);
    for event in CanonicalEvents::new(Bytes::copy_from_slice(bytes)).filter_map(Result::ok) {
        let _ = canonicalise(&event, checksum);
        if framer.push(&event).is_err() {
            framer.reset(checksum);
        }
        read_through_views(event.canonical());
    }
}

/// Hands one event to all typed views, whatever its type.
pub(crate) fn read_through_views(event: EventRef<'_>) {
    let _ = FormatDescription::decode(event);
    let _ = FormatDescription::canonical_event(event);
    let _ = GtidEvent::decode(event);
    let _ = Heartbeat::decode(event);
    let _ = Ignorable::decode(event);
    let _ = PreviousGtids::decode(event);
    let _ = Query::decode(event);
    let _ = Rotate::decode(event);
    let _ = Rows::decode(event);
    let _ = RowsQuery::decode(event);
    let _ = TableMap::decode(event);
    let _ = XaPrepare::decode(event);
    let _ = Xid::decode(event);
    if let Ok(payload) = TransactionPayload::decode(event)
        && let Ok(events) = payload.events(MAX_UNCOMPRESSED_BYTES)
    {
        for inner in events.filter_map(Result::ok) {
            // A payload within a payload is not looked into, here as anywhere.
            let _ = (
                Rows::decode(inner.canonical()),
                TableMap::decode(inner.canonical()),
            );
        }
    }
}

/// An event of this type with this body and no checksum.
pub(crate) fn event_of(code: u8, body: &[u8]) -> Vec<u8> {
    let mut event = vec![0; HEADER_LEN];
    event[4] = code;
    event[9..13].copy_from_slice(&((HEADER_LEN + body.len()) as u32).to_le_bytes());
    event.extend_from_slice(body);
    event
}

/// The canonical events of all golden files.
pub(crate) fn golden_events() -> Vec<RawEvent> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut events = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("testdata")
        .map(|entry| entry.expect("entry").path())
        .collect();
    names.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "binlog")
    });
    names.sort();
    for path in names {
        let checksum = if path.ends_with("no_checksum.binlog") {
            ChecksumAlgorithm::None
        } else {
            ChecksumAlgorithm::Crc32
        };
        let content = Bytes::from(std::fs::read(&path).expect("golden file")).slice(4..);
        for event in CanonicalEvents::new(content).map(|event| event.expect("whole event")) {
            let own = match event.event_type() {
                EventType::FormatDescription => ChecksumAlgorithm::Crc32,
                _ => checksum,
            };
            let canonical = canonicalise(&event, own).expect("golden event");
            events.push(RawEvent::new(canonical).expect("canonical event"));
        }
    }
    events
}

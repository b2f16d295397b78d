//! Passes the same bytes to all parsers of this crate, for tests and for fuzzing. The product does not call this.

use bytes::Bytes;

use crate::canonical::{CanonicalEvents, canonicalise, stamp, stamp_payload, stamped_len, unstamp};
use crate::checksum::ChecksumAlgorithm;
use crate::event::{EventRef, HEADER_LEN};
use crate::events::{
    FormatDescription, GtidEvent, Heartbeat, Ignorable, IntVar, PreviousGtids, Query, Rand, Rotate,
    Rows, RowsQuery, SessionContext, TableMap, TransactionPayload, UserVar, XaPrepare, Xid,
};
use crate::framing::TransactionFramer;
use crate::gtid::{Gtid, GtidSet, Tag};
use crate::row_image::{Columns, RowReader, TableMetadata};

/// Limit for a transaction in these tests.
pub const MAX_TRANSACTION_BYTES: u64 = 64 << 10;
/// Limit for an uncompressed payload in these tests.
pub const MAX_UNCOMPRESSED_BYTES: u64 = 64 << 10;

/// Passes `bytes` to every parser: as events, as a stream, as an event's body, as a GTID set and as text.
pub fn read_as_everything(bytes: &[u8]) {
    let _ = EventRef::new(bytes).and_then(|event| event.verified(ChecksumAlgorithm::Crc32));
    let _ = unstamp(bytes);
    let _ = stamped_len(bytes);
    let _ = stamp(bytes, u64::MAX, &mut Vec::new());
    let _ = stamp_payload(bytes, 4, &mut Vec::new());
    let _ = GtidSet::decode(bytes);
    let _ = Tag::new(bytes);
    let _ = SessionContext::decode(bytes);
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

/// Passes the events in `bytes` to the framer.
pub fn read_as_stream(bytes: &[u8], checksum: ChecksumAlgorithm) {
    let mut framer = TransactionFramer::new(checksum, MAX_TRANSACTION_BYTES);
    for event in CanonicalEvents::new(Bytes::copy_from_slice(bytes)).filter_map(Result::ok) {
        let _ = canonicalise(&event, checksum);
        if framer.push(&event).is_err() {
            framer.reset(checksum);
        }
        read_through_views(event.canonical());
    }
}

/// Passes one event to all typed views, whatever its type.
pub fn read_through_views(event: EventRef<'_>) {
    let _ = FormatDescription::decode(event);
    let _ = FormatDescription::canonical_event(event);
    let _ = GtidEvent::decode(event);
    let _ = Heartbeat::decode(event);
    let _ = Ignorable::decode(event);
    let _ = PreviousGtids::decode(event);
    let _ =
        Query::decode(event).map(|query| SessionContext::decode(&query.status_variables).map(drop));
    let _ = Rotate::decode(event);
    let _ = (
        IntVar::decode(event),
        Rand::decode(event),
        UserVar::decode(event),
    );
    read_rows(event);
    let _ = RowsQuery::decode(event);
    if let Ok(map) = TableMap::decode(event)
        && let Ok(columns) = Columns::of(&map)
    {
        let _ = TableMetadata::decode(&map, &columns);
    }
    let _ = XaPrepare::decode(event);
    let _ = Xid::decode(event);
    if let Ok(payload) = TransactionPayload::decode(event)
        && let Ok(events) = payload.events(MAX_UNCOMPRESSED_BYTES)
    {
        for inner in events.filter_map(Result::ok) {
            // The product does not unpack a payload within a payload, so this test does not either.
            let _ = (
                Rows::decode(inner.canonical()),
                TableMap::decode(inner.canonical()),
            );
        }
    }
}

/// Reads an event's rows with the event's number of columns. All columns have one type; each type is tried in turn.
fn read_rows(event: EventRef<'_>) {
    let Ok(rows) = Rows::decode(event) else {
        return;
    };
    let Ok(count) = usize::try_from(rows.column_count) else {
        return;
    };
    for first_type in [1, 15, 245] {
        let mut map = TableMap::default();
        for at in 0..count.min(Columns::MAX + 1) {
            let (type_byte, metadata) = SOME_TYPES[(at + first_type) % SOME_TYPES.len()];
            map.column_types.to_mut().push(type_byte);
            map.metadata.to_mut().extend_from_slice(metadata);
        }
        if count > Columns::MAX {
            assert!(Columns::of(&map).is_err());
            return;
        }
        let columns = Columns::of(&map).expect("known types");
        let mut reader = RowReader::new(&rows, &columns).expect("as many columns");
        let (mut end, mut ended) = (0, false);
        while let Ok(Some(row)) = reader.next_row() {
            assert!(!ended, "a row after an empty one");
            assert_eq!(row.range.start, end);
            end = row.range.end;
            ended = row.range.is_empty();
        }
        assert!(end <= rows.images.len());
        assert_eq!(reader.next_row(), Ok(None));
    }
}

/// Column types with their metadata.
const SOME_TYPES: [(u8, &[u8]); 8] = [
    (1, &[]),
    (15, &[40, 0]),
    (245, &[4]),
    (246, &[65, 30]),
    (254, &[254, 255]),
    (252, &[2]),
    (19, &[6]),
    (8, &[]),
];

/// An event with this type and body, without a checksum.
pub fn event_of(code: u8, body: &[u8]) -> Vec<u8> {
    let mut event = vec![0; HEADER_LEN];
    event[4] = code;
    event[9..13].copy_from_slice(&((HEADER_LEN + body.len()) as u32).to_le_bytes());
    event.extend_from_slice(body);
    event
}

//! Every event with a typed view that supports encoding is re-encoded byte for byte.

use std::collections::BTreeMap;

use binlog_format::DecodeError;
use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::{EventRef, EventType, RawEvent};
use binlog_format::events::{
    Compression, EncodeEvent, EventOrigin, FormatDescription, GtidEvent, Heartbeat, Ignorable,
    PreviousGtids, Query, Rotate, Rows, RowsQuery, TableMap, TransactionPayload, XaPrepare, Xid,
};
use bytes::Bytes;

use super::dump_streams::stream;
use super::files::{golden_file, golden_files};

const LIMIT: u64 = 1 << 20;

/// Decodes the event to its typed view and encodes it again; `None` if there is no view.
fn through_its_view(event: EventRef<'_>) -> Result<Option<Vec<u8>>, DecodeError> {
    let origin = EventOrigin::from(event.header());
    Ok(Some(match event.event_type() {
        EventType::FormatDescription => FormatDescription::decode(event)?.encode(origin),
        EventType::PreviousGtids => PreviousGtids::decode(event)?.encode(origin),
        EventType::Rotate => Rotate::decode(event)?.encode(origin),
        EventType::Ignorable => Ignorable::decode(event)?.encode(origin),
        EventType::Gtid | EventType::GtidTagged => GtidEvent::decode(event)?.encode(origin),
        EventType::Query => Query::decode(event)?.encode(origin),
        EventType::Xid => Xid::decode(event)?.encode(origin),
        EventType::XaPrepare => XaPrepare::decode(event)?.encode(origin),
        EventType::TableMap => TableMap::decode(event)?.encode(origin),
        EventType::TransactionPayload => TransactionPayload::decode(event)?.encode(origin),
        EventType::Heartbeat | EventType::HeartbeatV2 => Heartbeat::decode(event)?.encode(origin),
        EventType::WriteRows
        | EventType::UpdateRows
        | EventType::DeleteRows
        | EventType::PartialUpdateRows => Rows::decode(event)?.encode(origin),
        _ => return Ok(None),
    }))
}

/// All events of all files and streams in canonical form, including those in compressed payloads.
fn all_canonical_events() -> Vec<Bytes> {
    let mut events: Vec<Bytes> = golden_files()
        .iter()
        .flat_map(|file| file.canonical())
        .collect();
    events.extend(stream("crc32").canonical());
    events.extend(stream("none").canonical());
    let inner = events.iter().filter_map(|event| {
        let event = EventRef::new(event).unwrap();
        TransactionPayload::decode(event)
            .ok()
            .map(|payload| payload.events(LIMIT).unwrap())
    });
    let inner: Vec<Bytes> = inner
        .flat_map(|events| events.map(|event| event.unwrap().into_bytes()))
        .collect();
    events.extend(inner);
    events
}

#[test]
fn decoding_and_encoding_is_identity_on_every_golden_event() {
    let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
    for bytes in all_canonical_events() {
        let event = EventRef::new(&bytes).unwrap();
        let again = through_its_view(event)
            .unwrap_or_else(|error| panic!("{}: {error}", event.event_type()));
        if let Some(again) = again {
            // Events in a compressed payload still have the server's end position.
            let mut expected = bytes.to_vec();
            expected[13..17].fill(0);
            assert_eq!(again, expected, "{}", event.event_type());
            *seen.entry(event.event_type().code()).or_default() += 1;
        }
    }
    // QUERY, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP, HEARTBEAT, rows, GTID, PREVIOUS_GTIDS,
    // XA_PREPARE, PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_V2, GTID_TAGGED.
    let codes: Vec<u8> = seen.into_keys().collect();
    assert_eq!(
        codes,
        [2, 4, 15, 16, 19, 27, 30, 31, 32, 33, 35, 38, 39, 40, 41, 42]
    );
}

fn events_of(name: &str, event_type: EventType) -> Vec<RawEvent> {
    let events = golden_file(name)
        .canonical()
        .into_iter()
        .map(|event| RawEvent::new(event).unwrap());
    events
        .filter(|event| event.event_type() == event_type)
        .collect()
}

#[test]
fn gtid_events_name_the_servers_version() {
    for (name, event_type) in [("rows", EventType::Gtid), ("tagged", EventType::GtidTagged)] {
        for event in events_of(name, event_type) {
            let gtid = GtidEvent::decode(event.canonical()).unwrap();
            assert_eq!(gtid.immediate_version.unwrap().to_string(), "9.7.4");
            assert_eq!((gtid.original_version, gtid.original_commit), (None, None));
            assert!(gtid.transaction_length.unwrap() > 100);
            assert!(gtid.clock.sequence_number > gtid.clock.last_committed);
            // The time is between 2020 and 2100.
            let seconds = gtid.immediate_commit.unwrap().0 / 1_000_000;
            assert!(
                (1_577_836_800..4_102_444_800).contains(&seconds),
                "{seconds}"
            );
        }
    }
}

#[test]
fn statements_are_read_with_their_schema() {
    let events = events_of("ddl", EventType::Query);
    let first = Query::decode(events[0].canonical()).unwrap();
    assert_eq!(first.schema.as_ref(), b"shop");
    assert!(
        first
            .statement
            .starts_with(b"CREATE TABLE made (id INT PRIMARY KEY")
    );
    assert_eq!(first.error_code, 0);
}

#[test]
fn table_maps_and_rows_belong_together() {
    let events: Vec<RawEvent> = golden_file("rows")
        .canonical()
        .into_iter()
        .map(|event| RawEvent::new(event).unwrap())
        .collect();
    let mut tables = BTreeMap::new();
    let mut rows_events = 0;
    for event in &events {
        if let Ok(map) = TableMap::decode(event.canonical()) {
            assert_eq!(map.schema.as_ref(), b"shop");
            tables.insert(map.table_id, map);
        } else if let Ok(rows) = Rows::decode(event.canonical()) {
            let table = &tables[&rows.table_id];
            assert_eq!(rows.column_count, table.column_types.len() as u64);
            assert_eq!(rows.columns_after.is_empty(), !rows.change.has_two_images());
            assert!(!rows.images.is_empty());
            rows_events += 1;
        }
    }
    assert!(rows_events > 10);
    let partitioned = events
        .iter()
        .filter_map(|event| Rows::decode(event.canonical()).ok());
    assert!(
        partitioned
            .filter(|rows| rows
                .extra_data
                .as_ref()
                .is_some_and(|extra| !extra.is_empty()))
            .count()
            > 3
    );
}

#[test]
fn xa_ids_are_read() {
    let events = events_of("xa", EventType::XaPrepare);
    let ids: Vec<_> = events
        .iter()
        .map(|event| XaPrepare::decode(event.canonical()).unwrap())
        .map(|prepare| {
            (
                prepare.global_id.into_owned(),
                prepare.branch.into_owned(),
                prepare.format_id,
                prepare.one_phase,
            )
        })
        .collect();
    assert_eq!(
        ids,
        [
            (b"global".to_vec(), b"branch".to_vec(), 42, false),
            (b"undone".to_vec(), b"".to_vec(), 1, false),
            (b"single".to_vec(), b"".to_vec(), 1, true),
        ]
    );
}

#[test]
fn the_text_of_a_statement_is_whole_even_when_its_length_byte_is_not() {
    let events = events_of("rows_query", EventType::RowsQuery);
    let texts: Vec<_> = events
        .iter()
        .map(|event| RowsQuery::decode(event.canonical()).unwrap().statement)
        .collect();
    assert_eq!(
        texts[0].as_ref(),
        b"INSERT INTO item VALUES (700, 'with its text', 1)"
    );
    assert!(texts[1].len() > 255 && texts[1].ends_with(b"1)"));
}

#[test]
fn compressed_transactions_are_read_within_a_limit() {
    let events = events_of("compressed", EventType::TransactionPayload);
    assert_eq!(events.len(), 3);
    for event in events {
        let payload = TransactionPayload::decode(event.canonical()).unwrap();
        assert_eq!(payload.compression, Compression::Zstd);
        let size = payload.uncompressed_size.unwrap();
        let inner = payload.decompress(size).unwrap();
        assert_eq!(inner.len() as u64, size);
        let types: Vec<EventType> = CanonicalEvents::new(inner)
            .map(|event| event.unwrap().event_type())
            .collect();
        assert_eq!(
            (types.first(), types.last()),
            (Some(&EventType::Query), Some(&EventType::Xid))
        );
        assert!(matches!(
            payload.decompress(size - 1),
            Err(DecodeError::TooLarge { .. })
        ));
    }
}

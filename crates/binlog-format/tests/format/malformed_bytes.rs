//! Invalid bytes are refused, each with a specific reason.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

use binlog_format::DecodeError;
use binlog_format::event::{EventFlags, EventHeader, EventRef, EventType, HEADER_LEN};
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, GtidEvent, Heartbeat, LogicalClock, Query, Rows,
    TableMap, TransactionPayload, XaPrepare, Xid,
};
use binlog_format::gtid::{Gtid, GtidSet, GtidSetFormat};

fn event(event_type: EventType, body: &[u8]) -> Vec<u8> {
    let header = EventHeader {
        timestamp: 0,
        event_type,
        server_id: 1,
        event_size: (HEADER_LEN + body.len()) as u32,
        log_pos: 0,
        flags: EventFlags::NONE,
    };
    [&header.encode()[..], body].concat()
}

/// The reason for which a decoder refuses the bytes.
fn reason<T: std::fmt::Debug>(result: Result<T, DecodeError>) -> String {
    result.unwrap_err().to_string()
}

fn set_bytes(head: u64, rest: &[u64]) -> Vec<u8> {
    let mut bytes = head.to_le_bytes().to_vec();
    bytes.extend([9; 16]);
    bytes.extend(rest.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

#[test]
fn gtid_sets_with_disorderly_intervals() {
    let good = set_bytes(1, &[2, 1, 3, 4, 9]);
    let set = GtidSet::decode(&good).unwrap();
    assert_eq!(
        set.to_string(),
        "09090909-0909-0909-0909-090909090909:1-2:4-8"
    );
    assert_eq!(set.encode(GtidSetFormat::Classic), good);
    for intervals in [
        [2, 4, 9, 1, 3],
        [2, 1, 3, 3, 9],
        [2, 1, 5, 3, 9],
        [2, 1, 1, 4, 9],
        [2, 0, 3, 4, 9],
        [2, u64::MAX, 3, 4, 9],
        [2, 1, 3, 9, 4],
    ] {
        let refusal = reason(GtidSet::decode(&set_bytes(1, &intervals)));
        assert!(refusal.contains("not in order"), "{intervals:?}: {refusal}");
    }
    // The end of an interval may be at most one more than the largest number of a GTID.
    let last = i64::MAX as u64;
    assert!(GtidSet::decode(&set_bytes(1, &[1, 5, last])).is_ok());
    assert!(GtidSet::decode(&set_bytes(1, &[1, 5, last + 1])).is_err());
}

#[test]
fn truncated_longer_and_foreign_gtid_sets_are_refused() {
    let good = set_bytes(1, &[1, 1, 3]);
    for len in 0..good.len() {
        assert!(
            matches!(
                GtidSet::decode(&good[..len]),
                Err(DecodeError::Truncated { .. })
            ),
            "{len}"
        );
    }
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(
        GtidSet::decode(&longer),
        Err(DecodeError::TrailingBytes { count: 1, .. })
    ));
    for format in [2, 3, 255] {
        let refusal = reason(GtidSet::decode(&set_bytes(format << 56 | 1, &[1, 1, 3])));
        assert!(refusal.contains("unknown format"), "{refusal}");
    }
}

#[test]
fn tags_of_binary_sets_follow_the_rules_of_texts() {
    let tagged = "09090909-0909-0909-0909-090909090909:good:1"
        .parse::<GtidSet>()
        .unwrap();
    let bytes = tagged.encode(GtidSetFormat::Automatic);
    let at = bytes
        .windows(4)
        .position(|window| window == b"good")
        .unwrap();
    for (letter, allowed) in [
        (b'x', true),
        (b'_', true),
        (b'1', false),
        (b'-', false),
        (0xff, false),
    ] {
        let mut changed = bytes.clone();
        changed[at] = letter;
        assert_eq!(GtidSet::decode(&changed).is_ok(), allowed, "{letter}");
    }
}

fn tagged_event(last_non_ignorable_field: u8, later_fields: &[u8]) -> Vec<u8> {
    let event = GtidEvent {
        tagged: true,
        flags: 0,
        gtid: "09090909-0909-0909-0909-090909090909:t:1"
            .parse::<Gtid>()
            .unwrap(),
        clock: LogicalClock::default(),
        immediate_commit: None,
        original_commit: None,
        transaction_length: None,
        immediate_version: None,
        original_version: None,
        commit_group_ticket: None,
    };
    let mut bytes = event.encode(EventOrigin::default());
    let body = HEADER_LEN;
    // A number below 64 is encoded in one byte, as twice its value.
    bytes[body + 1] += 2 * later_fields.len() as u8;
    bytes[body + 2] = 2 * last_non_ignorable_field;
    bytes[9] += later_fields.len() as u8;
    bytes.extend_from_slice(later_fields);
    bytes
}

#[test]
fn tagged_gtid_events_of_later_versions_are_read_unless_they_forbid_it() {
    let read = |bytes: &[u8]| {
        GtidEvent::decode(EventRef::new(bytes).unwrap()).map(|event| event.gtid.to_string())
    };
    let gtid = "09090909-0909-0909-0909-090909090909:t:1";
    assert_eq!(read(&tagged_event(0, &[])).unwrap(), gtid);
    // Field 12 (encoded as 24) is unknown. It is skipped, unless readers must support it.
    assert_eq!(read(&tagged_event(11, &[24, 7, 7])).unwrap(), gtid);
    assert!(reason(read(&tagged_event(12, &[24, 7, 7]))).contains("readers must know"));
    // Field 3 (encoded as 6) appears again, after the later fields.
    assert!(reason(read(&tagged_event(0, &[6, 0]))).contains("not in its order"));
    let mut longer = tagged_event(0, &[]);
    longer.push(24);
    longer[9] += 1;
    assert!(reason(read(&longer)).contains("not the size"));
}

#[test]
fn fields_out_of_range() {
    let read = |event_type, body: &[u8]| {
        let bytes = event(event_type, body);
        let view = EventRef::new(&bytes).unwrap();
        match event_type {
            EventType::Xid => Xid::decode(view).map(|_| ()),
            EventType::XaPrepare => XaPrepare::decode(view).map(|_| ()),
            EventType::Gtid => GtidEvent::decode(view).map(|_| ()),
            EventType::FormatDescription => FormatDescription::decode(view).map(|_| ()),
            EventType::Query => Query::decode(view).map(|_| ()),
            EventType::TableMap => TableMap::decode(view).map(|_| ()),
            EventType::WriteRows => Rows::decode(view).map(|_| ()),
            EventType::HeartbeatV2 => Heartbeat::decode(view).map(|_| ()),
            EventType::TransactionPayload => TransactionPayload::decode(view).map(|_| ()),
            other => panic!("{other}"),
        }
    };
    let xa = |phase: u8, global: u32, branch: u32| {
        [
            &[phase, 1, 0, 0, 0][..],
            &global.to_le_bytes(),
            &branch.to_le_bytes(),
            &[b'x'; 129],
        ]
        .concat()
    };
    let gtid =
        |gno: i64, clock: u8| [&[0; 17][..], &gno.to_le_bytes(), &[clock], &[0; 16]].concat();
    let description = |version: u8, header: u8, checksum: u8| {
        [
            &[version, 0][..],
            b"9.7.4",
            &[0; 45],
            &[0; 4],
            &[header],
            &[0; 42],
            &[checksum],
        ]
        .concat()
    };
    assert!(read(EventType::Gtid, &gtid(1, 2)).is_ok());
    assert!(read(EventType::FormatDescription, &description(4, 19, 1)).is_ok());
    for (event_type, body, expected) in [
        (
            EventType::Xid,
            vec![0; 9],
            "1 unexpected bytes follow the XID",
        ),
        (
            EventType::Xid,
            vec![0; 7],
            "XID needs 8 bytes, but only 7 are left",
        ),
        (EventType::XaPrepare, xa(2, 1, 1), "neither 0 nor 1"),
        (EventType::XaPrepare, xa(0, 65, 1), "more than 64 bytes"),
        (
            EventType::XaPrepare,
            xa(0, 1, u32::MAX),
            "more than 64 bytes",
        ),
        (EventType::Gtid, gtid(0, 2), "outside of 1 to 2^63 - 2"),
        (EventType::Gtid, gtid(-1, 2), "outside of 1 to 2^63 - 2"),
        (
            EventType::Gtid,
            gtid(i64::MAX, 2),
            "outside of 1 to 2^63 - 2",
        ),
        (EventType::Gtid, gtid(1, 1), "only type 2"),
        (
            EventType::FormatDescription,
            description(3, 19, 1),
            "only version 4",
        ),
        (
            EventType::FormatDescription,
            description(4, 13, 1),
            "19 bytes",
        ),
        (
            EventType::FormatDescription,
            description(4, 19, 2),
            "neither 0 (NONE) nor 1 (CRC32)",
        ),
        (
            EventType::Query,
            [&[0; 8][..], &[0, 0, 0, 0, 0], &[7]].concat(),
            "not terminated",
        ),
        (
            EventType::TableMap,
            [&[0; 8][..], &[1, b's', 7]].concat(),
            "not terminated",
        ),
        (
            EventType::TableMap,
            [&[0; 8][..], &[251]].concat(),
            "251 and 255",
        ),
        (
            EventType::WriteRows,
            [&[0; 8][..], &[1, 0]].concat(),
            "less than that of its own field",
        ),
        (
            EventType::WriteRows,
            [&[0; 8][..], &[2, 0, 9, 1]].concat(),
            "image columns needs 2 bytes",
        ),
        (
            EventType::HeartbeatV2,
            vec![1, 1, b'b', 0],
            "lacks the file or the position",
        ),
        (
            EventType::TransactionPayload,
            vec![2, 1, 0, 0],
            "lacks its size",
        ),
        (
            EventType::TransactionPayload,
            vec![2, 1, 7, 1, 1, 0, 0],
            "neither 0 (ZSTD) nor 255 (NONE)",
        ),
        (
            EventType::TransactionPayload,
            vec![2, 1, 0, 1, 1, 5, 0, 1],
            "not that of the event's rest",
        ),
    ] {
        let refusal = reason(read(event_type, &body));
        assert!(refusal.contains(expected), "{event_type}: {refusal}");
    }
}

#[test]
fn events_of_another_type() {
    let bytes = event(EventType::Rotate, &[0; 20]);
    let refusal = reason(Xid::decode(EventRef::new(&bytes).unwrap()));
    assert_eq!(refusal, "expected a XID event, found ROTATE");
}

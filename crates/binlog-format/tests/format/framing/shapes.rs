//! The event sequences that form a transaction, and other stream items.

use binlog_format::canonical::canonicalise;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType, RawEvent};
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, Heartbeat, Ignorable, PreviousGtids, Rotate,
    XaPrepare,
};
use binlog_format::framing::{StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use spilling_bytes::{SPILLED_FROM, SpillFolder};

use super::source::{LIMIT, SOURCE, Source, gtid, gtid_event, query, source};

#[test]
fn every_shape_of_a_transaction_is_recognised() {
    let rows = |source: Source| {
        source
            .bare(EventType::TableMap, EventFlags::NONE, b"table")
            .bare(EventType::WriteRows, EventFlags::NONE, b"rows")
    };
    let prepare = XaPrepare {
        one_phase: false,
        format_id: 1,
        global_id: b"1".as_slice().into(),
        branch: b"".as_slice().into(),
    };
    let begun = || source().gtid(1);
    let shapes = [
        (rows(begun().query("BEGIN")).xid(), 5),
        (rows(begun().query("BEGIN")).query("COMMIT"), 5),
        (begun().query("BEGIN").query("COMMIT"), 3),
        (
            begun()
                .query("BEGIN")
                .query("insert into t values (1)")
                .query("ROLLBACK"),
            4,
        ),
        (begun().query("create table t (a int)"), 2),
        (begun().query("XA COMMIT X'31',X'',1"), 2),
        (begun().query("XA ROLLBACK X'31',X'',1"), 2),
        (
            rows(begun().query("XA START X'31',X'',1"))
                .query("XA END X'31',X'',1")
                .event(&prepare),
            6,
        ),
        (
            begun().bare(EventType::TransactionPayload, EventFlags::NONE, b"zstd"),
            2,
        ),
        (
            begun()
                .bare(EventType::UserVar, EventFlags::NONE, b"v")
                .bare(EventType::IntVar, EventFlags::NONE, b"i")
                .query("create table t as select @v"),
            4,
        ),
        (
            begun()
                .query("BEGIN")
                .query("SAVEPOINT `s`")
                .bare(EventType::RowsQuery, EventFlags::IGNORABLE, b"\0insert")
                .query("ROLLBACK TO `s`")
                .bare(
                    EventType::Other(77),
                    EventFlags::NONE,
                    b"from a later version",
                )
                .bare(EventType::Rand, EventFlags::NONE, b"seed")
                .query("insert into t values (rand())")
                .bare(EventType::BeginLoadQuery, EventFlags::NONE, b"file")
                .bare(EventType::ExecuteLoadQuery, EventFlags::NONE, b"load")
                .xid(),
            11,
        ),
    ];
    for (shape, event_count) in shapes {
        let framed = shape.transaction();
        assert_eq!(framed.event_count, event_count);
        assert_eq!(framed.gtid, gtid(1));
        assert_eq!((framed.timestamp, framed.server_id), (77, 5));
        assert_eq!(framed.end_position.offset, shape.offset);
        let mut stored = Vec::new();
        binlog_format::canonical::stamp_payload(&framed.payload, 4, &mut stored).unwrap();
        let sent: Vec<u8> = shape
            .sent
            .iter()
            .flat_map(|event| event.bytes().to_vec())
            .collect();
        assert_eq!(
            stored, sent,
            "stamped at its old place, the payload is what the source had"
        );
    }
}

#[test]
fn items_between_transactions_are_returned_separately() {
    let rotate = Rotate {
        position: 4,
        next_file: b"binlog.000007".as_slice().into(),
    };
    let start = rotate.encode(EventOrigin {
        timestamp: 0,
        server_id: 5,
        flags: EventFlags::ARTIFICIAL,
    });
    let beat = Heartbeat {
        version_2: true,
        file: b"binlog.000007".as_slice().into(),
        position: 5 << 32,
    };
    let gtids: GtidSet = format!("{SOURCE}:1-6").parse().unwrap();
    let stream = source()
        .canonical(&start)
        .event(&FormatDescription::built_in("8.4.7"))
        .event(&PreviousGtids {
            gtids: gtids.clone(),
        })
        .event(&Ignorable {
            body: b"anything".as_slice().into(),
        })
        .bare(
            EventType::Other(43),
            EventFlags::IGNORABLE,
            b"from a later version",
        )
        .event(&beat)
        .event(&Rotate::to("binlog.000008"))
        .bare(EventType::Stop, EventFlags::NONE, b"");
    let items = stream.frame().unwrap();
    let [
        first,
        description,
        previous,
        ignored,
        later,
        heartbeat,
        last,
        stop,
    ] = items.as_slice()
    else {
        panic!("eight items were expected, not {items:?}");
    };
    assert!(
        matches!(first, StreamItem::Rotate { to, artificial: true } if to.to_string() == "binlog.000007:4")
    );
    let StreamItem::FormatDescription {
        canonical,
        checksum,
    } = description
    else {
        panic!("not a format description: {description:?}");
    };
    assert_eq!(*checksum, ChecksumAlgorithm::Crc32);
    assert_eq!(
        RawEvent::new(canonical.clone()).unwrap().header().log_pos,
        0
    );
    assert_eq!(*previous, StreamItem::PreviousGtids(gtids));
    assert_eq!(*ignored, StreamItem::Ignored(EventType::Ignorable));
    assert_eq!(*later, StreamItem::Ignored(EventType::Other(43)));
    assert!(matches!(heartbeat, StreamItem::Heartbeat(at) if at.offset == 5 << 32));
    assert!(
        matches!(last, StreamItem::Rotate { to, artificial: false } if to.to_string() == "binlog.000008:4")
    );
    assert_eq!(*stop, StreamItem::Ignored(EventType::Stop));
}

#[test]
fn a_heartbeat_does_not_disturb_an_open_transaction() {
    let beat = Heartbeat {
        version_2: false,
        file: b"b".as_slice().into(),
        position: 0,
    };
    let items = source()
        .gtid(1)
        .query("BEGIN")
        .event(&beat)
        .xid()
        .frame()
        .unwrap();
    assert!(
        matches!(items.as_slice(), [StreamItem::Heartbeat(_), StreamItem::Transaction(framed)]
        if framed.event_count == 3)
    );
}

#[test]
fn the_checksum_is_the_one_of_the_last_format_description() {
    let mut unprotected = FormatDescription::built_in("8.4.7");
    unprotected.checksum = ChecksumAlgorithm::None;
    let head = source().event(&unprotected);
    let bare = |bytes: Vec<u8>| RawEvent::new(Bytes::from(bytes)).unwrap();
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, LIMIT);
    head.frame_with(&mut framer).unwrap();
    for event in [
        gtid_event(1, None).encode(EventOrigin::default()),
        query("create table t (a int)").encode(EventOrigin::default()),
    ] {
        if let Some(StreamItem::Transaction(framed)) = framer.push(&bare(event)).unwrap() {
            assert_eq!(framed.event_count, 2);
            return;
        }
    }
    panic!("no transaction came out");
}

#[test]
fn events_that_the_source_made_up_do_not_move_the_position() {
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, LIMIT);
    let made_up = EventOrigin {
        timestamp: 0,
        server_id: 5,
        flags: EventFlags::ARTIFICIAL,
    };
    let rotate = Rotate {
        position: 1000,
        next_file: b"b".as_slice().into(),
    };
    let mut with_position = Ignorable {
        body: b"".as_slice().into(),
    }
    .encode(made_up);
    with_position[13] = 77;
    for event in [
        rotate.encode(made_up),
        // A canonical event has no position. This one is not marked as artificial either.
        Ignorable {
            body: b"".as_slice().into(),
        }
        .encode(EventOrigin::default()),
        with_position,
    ] {
        framer.push(&RawEvent::new(event.into()).unwrap()).unwrap();
        assert_eq!(framer.position().to_string(), "b:1000");
    }
}

#[test]
fn a_large_transaction_is_in_a_file_and_has_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let spill = SpillFolder::open(folder.path(), 0);
    let row = "x".repeat(900_000);
    let mut source = source().gtid(1).query("BEGIN");
    for at in 0..SPILLED_FROM / row.len() + 1 {
        source = source.query(&format!("insert into t values ({at}, '{row}')"));
    }
    let source = source.xid();
    let framed = |framer: TransactionFramer| {
        let items = source.frame_with(&mut { framer }).unwrap();
        let framed = items.into_iter().find_map(|item| match item {
            StreamItem::Transaction(framed) => Some(framed),
            _ => None,
        });
        framed.unwrap()
    };
    let framer = || TransactionFramer::new(ChecksumAlgorithm::Crc32, 1 << 30);
    let in_memory = framed(framer());
    assert_eq!(spill.bytes(), 0);
    let in_file = framed(framer().spilling(spill.clone()));
    assert_eq!(spill.bytes(), in_memory.payload.len() as u64);
    assert!(in_file == in_memory);
    let canonical = source.sent.iter().map(|event| {
        let canonical = canonicalise(event, ChecksumAlgorithm::Crc32);
        canonical.unwrap()
    });
    let canonical: Vec<u8> = canonical
        .skip(source.sent.len() - in_file.event_count as usize)
        .flatten()
        .collect();
    assert!(in_file.payload == canonical);
    // A caller that has the events' bytes receives all other fields.
    let without = framed(framer().without_payloads());
    assert!(without.payload.is_empty() && without.event_count == in_file.event_count);
    assert_eq!(without.end_position, in_file.end_position);
}

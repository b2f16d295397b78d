//! Which events make a transaction, which come out by themselves, and what is refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests stand outside of #[test] functions")]

use binlog_format::canonical::stamp;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, GtidEvent, GtidForm, Heartbeat, Ignorable,
    LogicalClock, PreviousGtids, Query, Rotate, XaPrepare, Xid,
};
use binlog_format::framing::{
    FramedTransaction, FramingError, StreamItem, TransactionEnd, TransactionFramer,
};
use binlog_format::gtid::{Gtid, GtidSet};
use bytes::Bytes;

const LIMIT: u64 = 1 << 20;
const SOURCE: &str = "d14fb9f6-e498-11f1-aa34-02fc00000001";

/// Writes events as a source's file holds them, and remembers where it is.
struct Source {
    offset: u64,
    sent: Vec<RawEvent>,
}

impl Source {
    fn new() -> Self {
        Self {
            offset: 4,
            sent: Vec::new(),
        }
    }

    fn canonical(mut self, event: &[u8]) -> Self {
        let mut stored = Vec::new();
        self.offset = stamp(event, self.offset, &mut stored).unwrap();
        self.sent.push(RawEvent::new(stored.into()).unwrap());
        self
    }

    fn event(self, event: &impl EncodeEvent) -> Self {
        self.canonical(&event.encode(EventOrigin {
            timestamp: 77,
            server_id: 5,
            flags: EventFlags::NONE,
        }))
    }

    fn bare(self, event_type: EventType, flags: EventFlags, body: &[u8]) -> Self {
        let header = EventHeader {
            timestamp: 77,
            event_type,
            server_id: 5,
            event_size: (HEADER_LEN + body.len()) as u32,
            log_pos: 0,
            flags,
        };
        self.canonical(&[&header.encode()[..], body].concat())
    }

    fn gtid(self, gno: u64) -> Self {
        self.event(&gtid_event(gno, None))
    }

    fn query(self, statement: &str) -> Self {
        self.event(&query(statement))
    }

    fn xid(self) -> Self {
        self.event(&Xid { xid: 9 })
    }

    fn frame(&self) -> Result<Vec<StreamItem>, FramingError> {
        let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, LIMIT);
        self.frame_with(&mut framer)
    }

    fn frame_with(&self, framer: &mut TransactionFramer) -> Result<Vec<StreamItem>, FramingError> {
        let mut items = Vec::new();
        for event in &self.sent {
            items.extend(framer.push(event)?);
        }
        Ok(items)
    }

    /// The one transaction that all events make.
    fn transaction(&self) -> FramedTransaction {
        let items = self.frame().unwrap();
        match items.as_slice() {
            [StreamItem::Transaction(framed)] => framed.clone(),
            other => panic!("one transaction was expected, not {other:?}"),
        }
    }

    fn error(&self) -> FramingError {
        self.frame().unwrap_err()
    }
}

fn gtid(gno: u64) -> Gtid {
    format!("{SOURCE}:{gno}").parse().unwrap()
}

fn gtid_event(gno: u64, transaction_length: Option<u64>) -> GtidEvent<'static> {
    GtidEvent {
        form: GtidForm::Classic,
        flags: 0,
        gtid: gtid(gno),
        clock: LogicalClock {
            last_committed: 1,
            sequence_number: 2,
        },
        immediate_commit: transaction_length.map(|_| Default::default()),
        original_commit: None,
        transaction_length,
        immediate_version: None,
        original_version: None,
        commit_group_ticket: None,
    }
}

fn query(statement: &str) -> Query<'_> {
    Query {
        schema: b"shop".as_slice().into(),
        statement: statement.as_bytes().into(),
        ..Query::default()
    }
}

fn source() -> Source {
    Source::new()
}

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
        (rows(begun().query("BEGIN")).xid(), TransactionEnd::Xid, 5),
        (
            rows(begun().query("BEGIN")).query("COMMIT"),
            TransactionEnd::Commit,
            5,
        ),
        (
            begun().query("BEGIN").query("COMMIT"),
            TransactionEnd::Commit,
            3,
        ),
        (
            begun()
                .query("BEGIN")
                .query("insert into t values (1)")
                .query("ROLLBACK"),
            TransactionEnd::Rollback,
            4,
        ),
        (
            begun().query("create table t (a int)"),
            TransactionEnd::Statement,
            2,
        ),
        (
            begun().query("XA COMMIT X'31',X'',1"),
            TransactionEnd::Statement,
            2,
        ),
        (
            begun().query("XA ROLLBACK X'31',X'',1"),
            TransactionEnd::XaRollback,
            2,
        ),
        (
            rows(begun().query("XA START X'31',X'',1"))
                .query("XA END X'31',X'',1")
                .event(&prepare),
            TransactionEnd::XaPrepare,
            6,
        ),
        (
            begun().bare(EventType::TransactionPayload, EventFlags::NONE, b"zstd"),
            TransactionEnd::Payload,
            2,
        ),
        (
            begun()
                .bare(EventType::UserVar, EventFlags::NONE, b"v")
                .bare(EventType::IntVar, EventFlags::NONE, b"i")
                .query("create table t as select @v"),
            TransactionEnd::Statement,
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
            TransactionEnd::Xid,
            11,
        ),
    ];
    for (shape, end, event_count) in shapes {
        let framed = shape.transaction();
        assert_eq!((framed.end, framed.event_count), (end, event_count));
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
fn what_belongs_to_no_transaction_comes_out_by_itself() {
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
        server_version,
        checksum,
    } = description
    else {
        panic!("not a format description: {description:?}");
    };
    assert_eq!(
        (server_version.as_str(), *checksum),
        ("8.4.7", ChecksumAlgorithm::Crc32)
    );
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
fn a_transaction_without_a_gtid_is_refused_with_the_setting_to_change() {
    let error = source()
        .bare(EventType::AnonymousGtid, EventFlags::NONE, &[0; 42])
        .error();
    assert_eq!(error, FramingError::AnonymousTransaction);
    assert!(error.to_string().contains("gtid_mode=ON"), "{error}");
}

#[test]
fn events_at_wrong_places_are_refused() {
    for (stream, event_type) in [
        (source().xid(), EventType::Xid),
        (source().query("BEGIN"), EventType::Query),
        (
            source().bare(EventType::TableMap, EventFlags::NONE, b""),
            EventType::TableMap,
        ),
        (
            source().bare(EventType::Other(99), EventFlags::NONE, b""),
            EventType::Other(99),
        ),
    ] {
        assert_eq!(
            stream.error(),
            FramingError::OutsideTransaction { event_type }
        );
    }
    for (stream, event_type) in [
        (source().gtid(1).xid(), EventType::Xid),
        (source().gtid(1).query("COMMIT"), EventType::Query),
        (
            source().gtid(1).query("BEGIN").query("BEGIN"),
            EventType::Query,
        ),
        (
            source()
                .gtid(1)
                .bare(EventType::WriteRows, EventFlags::NONE, b""),
            EventType::WriteRows,
        ),
        (
            source()
                .gtid(1)
                .bare(EventType::IntVar, EventFlags::NONE, b"")
                .query("BEGIN"),
            EventType::Query,
        ),
    ] {
        assert_eq!(
            stream.error(),
            FramingError::Misplaced {
                gtid: gtid(1),
                event_type
            }
        );
    }
    for (stream, event_type) in [
        (source().gtid(1).query("BEGIN").gtid(2), EventType::Gtid),
        (source().gtid(1).event(&Rotate::to("b")), EventType::Rotate),
        (
            source()
                .gtid(1)
                .event(&FormatDescription::built_in("9.7.0")),
            EventType::FormatDescription,
        ),
    ] {
        assert_eq!(
            stream.error(),
            FramingError::Interrupted {
                gtid: gtid(1),
                event_type
            }
        );
    }
    assert_eq!(
        source()
            .bare(EventType::Incident, EventFlags::NONE, b"")
            .error(),
        FramingError::Incident
    );
}

#[test]
fn a_failed_or_cut_stream_begins_anew_after_a_reset() {
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, LIMIT);
    assert!(source().xid().frame_with(&mut framer).is_err());
    assert_eq!(
        source().gtid(1).frame_with(&mut framer),
        Err(FramingError::NeedsReset)
    );

    framer.reset(ChecksumAlgorithm::Crc32);
    source()
        .gtid(1)
        .query("BEGIN")
        .frame_with(&mut framer)
        .unwrap();
    assert!(framer.in_transaction());

    framer.reset(ChecksumAlgorithm::Crc32);
    assert!(!framer.in_transaction());
    let again = source().gtid(1).query("BEGIN").xid();
    assert_eq!(
        again.frame_with(&mut framer).unwrap(),
        [StreamItem::Transaction(again.transaction())]
    );
}

#[test]
fn a_transaction_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() {
    let stream = source().gtid(1).query("BEGIN").xid();
    let size = stream.transaction().payload.len() as u64;
    let mut exact = TransactionFramer::new(ChecksumAlgorithm::Crc32, size);
    assert_eq!(stream.frame_with(&mut exact).unwrap().len(), 1);
    let mut tight = TransactionFramer::new(ChecksumAlgorithm::Crc32, size - 1);
    let error = stream.frame_with(&mut tight).unwrap_err();
    assert_eq!(
        error,
        FramingError::TransactionTooLarge {
            gtid: gtid(1),
            size,
            limit: size - 1
        }
    );
    assert!(
        error.to_string().contains("max_transaction_bytes"),
        "{error}"
    );
}

#[test]
fn a_huge_announced_length_is_refused_before_its_events_come() {
    let error = source().event(&gtid_event(1, Some(u64::MAX))).error();
    assert!(
        matches!(error, FramingError::TransactionTooLarge { .. }),
        "{error}"
    );
}

#[test]
fn the_announced_length_must_be_that_of_the_events() {
    let length = {
        let probe = source()
            .event(&gtid_event(1, Some(100)))
            .query("BEGIN")
            .xid();
        probe.offset - 4
    };
    assert!(
        length < 250,
        "a longer length field would change the length"
    );
    let transaction = |announced| {
        source()
            .event(&gtid_event(1, Some(announced)))
            .query("BEGIN")
            .xid()
    };
    transaction(length).transaction();
    // What a source without checksums announces.
    transaction(length - 3 * 4).transaction();
    for announced in [length - 1, length + 1] {
        let error = transaction(announced).error();
        assert_eq!(
            error,
            FramingError::LengthMismatch {
                gtid: gtid(1),
                announced,
                received: length
            }
        );
    }
}

#[test]
fn a_damaged_event_is_refused() {
    let stream = source().gtid(1).query("BEGIN").xid();
    let mut damaged = stream.sent[1].bytes().to_vec();
    damaged[30] ^= 1;
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, LIMIT);
    framer.push(&stream.sent[0]).unwrap();
    let error = framer
        .push(&RawEvent::new(damaged.into()).unwrap())
        .unwrap_err();
    assert!(matches!(error, FramingError::Decode(_)), "{error}");
}

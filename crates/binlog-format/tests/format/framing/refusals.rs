//! Refused events, and the framer's state after them.

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType, RawEvent};
use binlog_format::events::{FormatDescription, Rotate};
use binlog_format::framing::{FramingError, StreamItem, TransactionFramer};

use super::source::{LIMIT, gtid, gtid_event, source};

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
fn a_failed_or_cut_stream_restarts_after_a_reset() {
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
    // A source without checksums announces this length.
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

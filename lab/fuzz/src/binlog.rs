//! Targets for MySQL's binlog: events, streams of them, GTID sets, and the applier's decoder.

use applier::decode::Decoder;
use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, GtidEvent, Heartbeat, Ignorable, PreviousGtids,
    Query, Rotate, Rows, TableMap, TransactionPayload, XaPrepare, Xid, summary,
};
use binlog_format::framing::{StreamItem, TransactionFramer};
use binlog_format::fuzzing::{
    MAX_TRANSACTION_BYTES, MAX_UNCOMPRESSED_BYTES, read_as_stream, read_through_views,
};
use binlog_format::gtid::{Gtid, GtidSet, GtidSetFormat};
use bytes::Bytes;

use crate::{Target, repair};

/// Memory for the largest uncompressed payload, plus two images of the widest possible row.
const INFLATED: usize = MAX_UNCOMPRESSED_BYTES as usize + (320 << 10) + (64 << 10);

pub(crate) const TARGETS: &[Target] = &[
    // One event with its header, as received from a mysqld, a file or another member.
    Target::new("event", event).within(INFLATED, 32),
    // Consecutive events, as in a dump or in a compressed payload.
    Target::new("event-stream", event_stream).within(INFLATED + MAX_TRANSACTION_BYTES as usize, 32),
    // A transaction for tables that differ between the log and the target, and the statements that apply it.
    Target::new("applier-transaction", applier::fuzzing::transaction).within(1 << 20, 256),
    // A set of GTIDs in its binary form, from events, replicas and clients.
    Target::new("gtid-set", gtid_set).within(32 << 10, 64),
    // GTIDs as text, from mysqld, operators and documents.
    Target::new("gtid-text", gtid_text).within(32 << 10, 64),
];

/// Writes a value that was read from a view. Reading the result must return the same value.
macro_rules! written_the_same {
    ($event:expr, $($view:ty),+) => {
        [$(match <$view>::decode($event) {
            Ok(view) => {
                let written = view.encode(EventOrigin::from($event.header()));
                let again = EventRef::new(&written).and_then(<$view>::decode);
                assert_eq!(again.as_ref(), Ok(&view), "{}", stringify!($view));
                true
            }
            Err(_) => false,
        }),+].contains(&true)
    };
}

fn event(bytes: &[u8]) -> bool {
    let whole = repair::event(bytes);
    let Ok(event) = EventRef::new(&whole) else {
        return false;
    };
    read_through_views(event);
    let _line = summary(event);
    match event.event_type() {
        EventType::FormatDescription => written_the_same!(event, FormatDescription),
        _ => written_the_same!(
            event,
            GtidEvent,
            Heartbeat,
            Ignorable,
            PreviousGtids,
            Query,
            Rotate,
            Rows,
            TableMap,
            TransactionPayload,
            XaPrepare,
            Xid
        ),
    }
}

fn event_stream(bytes: &[u8]) -> bool {
    let checksums = [ChecksumAlgorithm::None, ChecksumAlgorithm::Crc32];
    let mut transactions = 0;
    for checksum in checksums {
        read_as_stream(bytes, checksum);
        transactions += applied(bytes, checksum);
    }
    transactions > 0
}

/// Passes a stream's transactions to the applier's decoder. Returns the number of transactions up to the first fault.
fn applied(bytes: &[u8], checksum: ChecksumAlgorithm) -> usize {
    let mut framer = TransactionFramer::new(checksum, MAX_TRANSACTION_BYTES);
    let decoder = Decoder::new(MAX_TRANSACTION_BYTES);
    let mut transactions = 0;
    for event in CanonicalEvents::new(Bytes::copy_from_slice(bytes)) {
        let Ok(event) = event else { break };
        match framer.push(&event) {
            Ok(Some(StreamItem::Transaction(framed))) => {
                transactions += 1;
                if let Ok(parsed) = decoder.parse(&framed) {
                    let _ = parsed.finish(|_| None);
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    transactions
}

fn gtid_set(bytes: &[u8]) -> bool {
    match GtidSet::decode(bytes) {
        Ok(set) => {
            means_the_same(&set);
            true
        }
        Err(_) => false,
    }
}

fn gtid_text(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    if let Ok(gtid) = text.parse::<Gtid>() {
        assert_eq!(gtid.to_string().parse(), Ok(gtid));
        let set: GtidSet = text.parse().expect("a GTID is a set of one");
        assert!(set.contains(&gtid) && set.count() == 1);
    }
    match text.parse::<GtidSet>() {
        Ok(set) => {
            means_the_same(&set);
            true
        }
        Err(_) => false,
    }
}

/// Asserts that a GTID set is equal after writing and reading it in each of its forms.
fn means_the_same(set: &GtidSet) {
    assert_eq!(set.to_string().parse().as_ref(), Ok(set));
    for format in [GtidSetFormat::Automatic, GtidSetFormat::Tagged] {
        assert_eq!(GtidSet::decode(&set.encode(format)).as_ref(), Ok(set));
    }
    assert!(set.contains_set(set) && set.difference(set).is_empty());
    assert_eq!(&set.union(set), set);
    assert_eq!(&set.intersection(set), set);
}

//! The recorded streams of two replicas that requested everything, up to the second heartbeat: the events of all files, with the source's
//! artificial events around them.

use std::fs;

use binlog_format::canonical::canonicalise;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventType, RawEvent};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use bytes::Bytes;

use super::files::{golden_file, split, table, testdata};

pub(crate) struct Stream {
    events: Vec<RawEvent>,
    announced: ChecksumAlgorithm,
}

/// The stream of the replica that announced this checksum.
pub(crate) fn stream(name: &str) -> Stream {
    let bytes = fs::read(testdata().join(format!("{name}.stream"))).unwrap();
    let events = split(bytes.into(), 0)
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    let announced = if name == "none" {
        ChecksumAlgorithm::None
    } else {
        ChecksumAlgorithm::Crc32
    };
    Stream { events, announced }
}

impl Stream {
    fn items(&self) -> Vec<StreamItem> {
        let mut framer = TransactionFramer::new(self.announced, 1 << 20);
        self.events
            .iter()
            .filter_map(|event| framer.push(event).unwrap())
            .collect()
    }

    pub(crate) fn canonical(&self) -> Vec<Bytes> {
        let mut framer = TransactionFramer::new(self.announced, 1 << 20);
        let mut checksum = self.announced;
        let mut canonical = Vec::new();
        for event in &self.events {
            if let Some(StreamItem::FormatDescription { checksum: next, .. }) =
                framer.push(event).unwrap()
            {
                checksum = next;
            }
            let own = match event.event_type() {
                EventType::FormatDescription => ChecksumAlgorithm::Crc32,
                _ => checksum,
            };
            canonical.push(canonicalise(event, own).unwrap());
        }
        canonical
    }
}

fn transactions(items: &[StreamItem]) -> Vec<&FramedTransaction> {
    items
        .iter()
        .filter_map(|item| match item {
            StreamItem::Transaction(framed) => Some(framed),
            _ => None,
        })
        .collect()
}

#[test]
fn a_stream_has_the_transactions_of_all_files() {
    let mut of_files = Vec::new();
    for row in table("previous_gtids.tsv") {
        let file = golden_file(&row[0]);
        let mut framer = TransactionFramer::new(file.checksum, 1 << 20);
        let items: Vec<StreamItem> = file
            .events
            .iter()
            .filter_map(|(_, event)| framer.push(event).unwrap())
            .collect();
        of_files.extend(
            transactions(&items)
                .into_iter()
                .map(|framed| (framed.gtid, framed.payload.clone())),
        );
    }
    // After the streams were recorded, the last file received one more transaction and its end.
    let (late, of_files) = of_files.split_last().unwrap();
    for name in ["crc32", "none"] {
        let items = stream(name).items();
        let streamed: Vec<_> = transactions(&items)
            .into_iter()
            .map(|framed| (framed.gtid, framed.payload.clone()))
            .collect();
        assert_eq!(streamed, of_files);
        assert!(streamed.iter().all(|(gtid, _)| *gtid != late.0));
    }
}

#[test]
fn positions_name_the_file_that_the_source_reads() {
    let items = stream("crc32").items();
    let mut file = None;
    for item in &items {
        match item {
            StreamItem::Rotate { to, .. } => file = Some(to.file.clone()),
            StreamItem::Transaction(framed) => {
                assert_eq!(Some(&framed.end_position.file), file.as_ref());
                assert!(framed.end_position.offset > 4);
            }
            _ => {}
        }
    }
    assert!(file.is_some_and(|file| file.starts_with(b"binlog.0000")));
}

#[test]
fn the_source_begins_every_file_with_a_made_up_rotate() {
    for name in ["crc32", "none"] {
        let items = stream(name).items();
        assert!(
            matches!(&items[0], StreamItem::Rotate { to, artificial: true } if to.to_string() == "binlog.000001:4")
        );
        assert!(matches!(&items[1], StreamItem::FormatDescription { .. }));
        let count = |wanted| {
            let rotates = items.iter().filter(|item| {
                matches!(item, StreamItem::Rotate { artificial, .. } if *artificial == wanted)
            });
            rotates.count()
        };
        assert_eq!(count(true), count(false) + 1);
    }
}

#[test]
fn heartbeats_of_both_forms_name_the_end_of_the_log() {
    for (name, event_type) in [
        ("crc32", EventType::HeartbeatV2),
        ("none", EventType::Heartbeat),
    ] {
        let stream = stream(name);
        assert_eq!(stream.events.last().unwrap().event_type(), event_type);
        let items = stream.items();
        let last = transactions(&items).last().unwrap().end_position.clone();
        let Some(StreamItem::Heartbeat(at)) = items.last() else {
            panic!("no heartbeat")
        };
        assert!(
            at.file > last.file || (at.file == last.file && at.offset >= last.offset),
            "{at} after {last}"
        );
    }
}

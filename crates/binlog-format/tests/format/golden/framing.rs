//! The framer finds the transactions of the server's listing.

use binlog_format::canonical::{CanonicalEvents, stamp_payload};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};

use super::files::{GoldenFile, golden_file, golden_files};

const LIMIT: u64 = 1 << 20;

fn frame(file: &GoldenFile) -> (Vec<FramedTransaction>, Vec<StreamItem>) {
    let mut framer = TransactionFramer::new(file.checksum, LIMIT);
    let (mut transactions, mut others) = (Vec::new(), Vec::new());
    for (offset, event) in &file.events {
        match framer
            .push(event)
            .unwrap_or_else(|error| panic!("{}:{offset}: {error}", file.name))
        {
            Some(StreamItem::Transaction(framed)) => transactions.push(framed),
            Some(other) => others.push(other),
            None => {}
        }
    }
    assert!(!framer.in_transaction(), "{}", file.name);
    (transactions, others)
}

/// A transaction in the listing: it extends from its GTID event to the next one, or to the event that ends the file.
struct Listed {
    gtid: String,
    begin: u64,
    end: u64,
    event_count: u32,
}

fn listed(file: &GoldenFile) -> Vec<Listed> {
    let mut transactions: Vec<Listed> = Vec::new();
    for line in file.listing.iter().filter(|line| line.offset < line.end) {
        if line.event_type.starts_with("Gtid") {
            let gtid = line.description.split('\'').nth(1).unwrap().to_owned();
            transactions.push(Listed {
                gtid,
                begin: line.offset,
                end: line.end,
                event_count: 1,
            });
        } else if let Some(open) = transactions.last_mut()
            && !matches!(line.event_type.as_str(), "Rotate" | "Stop")
        {
            open.end = line.end;
            open.event_count += 1;
        }
    }
    transactions
}

#[test]
fn every_file_is_framed_as_the_server_lists_it() {
    let mut total = 0;
    for file in golden_files() {
        let (framed, _) = frame(&file);
        let listed = listed(&file);
        assert_eq!(framed.len(), listed.len(), "{}", file.name);
        for (framed, listed) in framed.iter().zip(&listed) {
            assert_eq!(framed.gtid.to_string(), listed.gtid, "{}", file.name);
            assert_eq!(framed.end_position.offset, listed.end, "{}", listed.gtid);
            assert_eq!(framed.event_count, listed.event_count, "{}", listed.gtid);
            assert_eq!(
                CanonicalEvents::new(framed.payload.clone()).count() as u32,
                listed.event_count
            );
            assert!(framed.immediate_commit.is_some(), "{}", listed.gtid);
            if file.checksum == ChecksumAlgorithm::Crc32 {
                let mut stored = Vec::new();
                stamp_payload(&framed.payload, listed.begin, &mut stored).unwrap();
                assert_eq!(
                    stored,
                    file.bytes[listed.begin as usize..listed.end as usize],
                    "{}",
                    listed.gtid
                );
            }
            total += 1;
        }
    }
    assert!(total > 80, "{total}");
}

#[test]
fn items_between_transactions_are_returned() {
    let (_, others) = frame(&golden_file("rows"));
    assert!(matches!(
        others.as_slice(),
        [
            StreamItem::FormatDescription {
                checksum: ChecksumAlgorithm::Crc32,
                ..
            },
            StreamItem::PreviousGtids(_),
            StreamItem::Rotate {
                artificial: false,
                ..
            },
        ]
    ));
}

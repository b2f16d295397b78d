//! GTID sets are parsed, printed and combined as the server's own functions do it.

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::EventType;
use binlog_format::events::PreviousGtids;
use binlog_format::framing::{StreamItem, TransactionFramer};
use binlog_format::gtid::{GtidSet, GtidSetFormat};

use super::files::{golden_file, golden_files, table};

fn set(text: &str) -> GtidSet {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn previous_gtids_equal_the_servers_executed_set() {
    let table = table("previous_gtids.tsv");
    assert_eq!(table.len(), 16);
    for row in table {
        let [name, executed] = row.as_slice() else {
            panic!("{row:?}")
        };
        let file = golden_file(name);
        let (_, event) = &file.events[1];
        assert_eq!(event.event_type(), EventType::PreviousGtids);
        let event = event.verified(file.checksum).unwrap();
        let previous = PreviousGtids::decode(event).unwrap().gtids;
        assert_eq!(previous.to_string(), *executed);
        assert_eq!(set(executed), previous);
        assert_eq!(
            previous.encode(GtidSetFormat::Automatic),
            event.body(),
            "{name}"
        );
        // The server's listing has a line break between sources.
        assert_eq!(
            format!("{previous:#}").replace('\n', "\\n"),
            file.listing[1].description
        );
    }
}

#[test]
fn a_file_adds_its_transactions_to_the_previous_gtids() {
    let names: Vec<String> = table("previous_gtids.tsv")
        .into_iter()
        .map(|mut row| row.swap_remove(0))
        .collect();
    for pair in names.windows(2) {
        let (mut gtids, framed) = head_and_transactions(&pair[0]);
        for gtid in framed.iter() {
            assert!(gtids.add(gtid), "{gtid} was there before");
        }
        let (next, _) = head_and_transactions(&pair[1]);
        // A change of the checksum algorithm rotates the log; no transaction is between these files either.
        assert_eq!(gtids, next, "{} to {}", pair[0], pair[1]);
    }
}

fn head_and_transactions(name: &str) -> (GtidSet, GtidSet) {
    let file = golden_file(name);
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, 1 << 20);
    let (mut head, mut framed) = (GtidSet::new(), GtidSet::new());
    for (_, event) in &file.events {
        match framer.push(event).unwrap() {
            Some(StreamItem::PreviousGtids(gtids)) => head = gtids,
            Some(StreamItem::Transaction(transaction)) => {
                framed.add(transaction.gtid);
            }
            _ => {}
        }
    }
    (head, framed)
}

#[test]
fn texts_are_read_and_refused_as_the_server_does() {
    let rows = table("gtid_texts.tsv");
    assert!(rows.len() > 60);
    for row in rows {
        let [text, read] = row.as_slice() else {
            panic!("{row:?}")
        };
        let text = text.replace("\\n", "\n").replace("\\t", "\t");
        match text.parse::<GtidSet>() {
            Ok(set) => assert_eq!(set.to_string(), *read, "{text:?}"),
            Err(error) => assert_eq!("ERROR", read, "{text:?}: {error}"),
        }
    }
}

#[test]
fn differences_and_subsets_are_the_servers() {
    let rows = table("gtid_pairs.tsv");
    assert_eq!(rows.len(), 150);
    let mut subsets = 0;
    for row in rows {
        let [left, right, left_read, right_read, difference, subset] = row.as_slice() else {
            panic!("{row:?}")
        };
        let (left, right) = (set(left), set(right));
        assert_eq!(left.to_string(), *left_read);
        assert_eq!(right.to_string(), *right_read);
        assert_eq!(left.difference(&right).to_string(), *difference);
        assert_eq!(
            left.intersection(&right),
            left.difference(&left.difference(&right))
        );
        assert_eq!(
            right.contains_set(&left),
            subset == "1",
            "{left} in {right}"
        );
        subsets += usize::from(subset == "1");
    }
    assert!(subsets > 5, "{subsets}");
}

#[test]
fn every_previous_gtids_event_survives_both_formats() {
    for file in golden_files() {
        let event = file.events[1].1.verified(file.checksum).unwrap();
        let gtids = PreviousGtids::decode(event).unwrap().gtids;
        assert_eq!(
            GtidSet::decode(&gtids.encode(GtidSetFormat::Tagged)).unwrap(),
            gtids
        );
        let untagged = GtidSet::decode(&gtids.encode(GtidSetFormat::Classic)).unwrap();
        assert!(gtids.contains_set(&untagged) && !untagged.has_tags());
    }
}

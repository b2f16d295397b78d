//! Tests with files that a real mysqld wrote, cut and damaged at every byte.

use std::fs;
use std::path::PathBuf;

use binlog_format::gtid::Gtid;

use super::*;
use crate::tail_trim::plan::Keep;

/// Files with and without checksums, with tags, compressed, with XA and DDL, still in use, empty.
const FILES: [&str; 9] = [
    "rows",
    "tagged",
    "compressed",
    "no_checksum",
    "xa",
    "ddl",
    "statements",
    "in_use",
    "stopped",
];

fn golden(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../binlog-format/testdata");
    fs::read(folder.join(name).with_extension("binlog")).unwrap()
}

/// Writes a file with these bytes, and parses its beginning.
fn open(bytes: &[u8]) -> (tempfile::NamedTempFile, Beginning) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let beginning = LastFile::open(file.path()).unwrap().beginning().unwrap();
    (file, beginning)
}

fn plan(bytes: &[u8], committed: &GtidSet) -> Plan {
    let (file, beginning) = open(bytes);
    let Beginning::Header(header) = beginning else {
        panic!("{beginning:?}");
    };
    let mut last = LastFile::open(file.path()).unwrap();
    last.beginning().unwrap();
    let mut committed = committed.clone();
    committed.union_with(&header.previous);
    let own = golden_server(&committed);
    last.plan(&header, &committed, own, false, 1 << 20).unwrap()
}

fn golden_server(gtids: &GtidSet) -> Option<SourceId> {
    gtids.intervals().next().map(|(source, ..)| source)
}

/// Returns the end of the file's header, and its transactions with their offsets.
fn contents(bytes: &[u8]) -> (FileOffset, Vec<(FileOffset, Gtid)>) {
    let (file, beginning) = open(bytes);
    let Beginning::Header(header) = beginning else {
        panic!("{beginning:?}");
    };
    let mut last = LastFile::open(file.path()).unwrap();
    last.beginning().unwrap();
    let mut transactions = Vec::new();
    while let Next::Event(at, event) = last.next(header.checksum).unwrap() {
        if let EventType::Gtid | EventType::GtidTagged = event.event_type() {
            let event = event.verified(header.checksum).unwrap();
            transactions.push((at, GtidEvent::decode(event).unwrap().gtid));
        }
    }
    (header.end, transactions)
}

#[test]
fn a_cut_is_where_the_first_begins_that_the_ring_lacks() {
    for name in FILES {
        let bytes = golden(name);
        let (_, transactions) = contents(&bytes);
        for kept in 0..=transactions.len() {
            let (has, lacks) = transactions.split_at(kept);
            let committed = has.iter().map(|(_, gtid)| *gtid).collect();
            let found = plan(&bytes, &committed);
            let Some((at, _)) = lacks.first() else {
                assert_eq!(found, Plan::Keep(Keep::AllCommitted), "{name}");
                continue;
            };
            let gtids: GtidSet = lacks.iter().map(|(_, gtid)| *gtid).collect();
            match found {
                Plan::Cut {
                    at: cut,
                    gtids: gone,
                } => {
                    assert_eq!((cut, gone), (*at, gtids), "{name} {kept}");
                }
                // These files also have statements of engines without transactions.
                Plan::Refuse(Refusal::CannotBeUndone { gtid, .. }) => {
                    assert!(gtids.contains(&gtid), "{name} {kept}");
                }
                other => panic!("{name} {kept}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_file_that_ends_anywhere_is_cut_where_it_would_be_anyway() {
    for name in ["rows", "tagged", "compressed", "no_checksum"] {
        let bytes = golden(name);
        let (header_end, transactions) = contents(&bytes);
        let committed: GtidSet = transactions[..1].iter().map(|(_, gtid)| *gtid).collect();
        let first_lost = transactions[1].0;
        // No event has a size that is a multiple of 7.
        for length in (0..bytes.len()).step_by(7) {
            let (_, beginning) = open(&bytes[..length]);
            if (length as u64) < header_end.0 {
                assert_eq!(beginning, Beginning::Torn, "{name} {length}");
                continue;
            }
            let torn = &bytes[..length];
            let zeros = [torn, &[0; 64]].concat();
            for file in [torn, &zeros] {
                match plan(file, &committed) {
                    Plan::Keep(Keep::AllCommitted) => {}
                    Plan::Cut { at, .. } => assert_eq!(at, first_lost, "{name} {length}"),
                    // The same refusal occurs without a crash.
                    Plan::Refuse(Refusal::CannotBeUndone { .. }) => {}
                    other => panic!("{name} {length}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_damaged_file_is_refused_unless_only_its_end_is() {
    let bytes = golden("rows");
    let (header_end, transactions) = contents(&bytes);
    let all: GtidSet = transactions.iter().map(|(_, gtid)| *gtid).collect();
    for at in (header_end.0 as usize..bytes.len()).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        match plan(&damaged, &all) {
            Plan::Refuse(Refusal::Damaged { .. }) => {}
            // The damage is in the last event, as after a crash, or it is a length that leads beyond the end of the file.
            Plan::Keep(Keep::AllCommitted) => {}
            other => panic!("{at}: {other:?}"),
        }
        // An unacknowledged transaction is cut off with its damage.
        let (_, last) = transactions[transactions.len() - 1];
        let but_the_last: GtidSet = all.iter().filter(|gtid| *gtid != last).collect();
        let (begins, _) = transactions[transactions.len() - 1];
        if at as u64 >= begins.0 {
            match plan(&damaged, &but_the_last) {
                Plan::Cut { at, .. } => assert_eq!(at, begins),
                // The damaged GTID event has a length that leads beyond the end of the file.
                Plan::Keep(Keep::AllCommitted) => {}
                // The damage follows the last event of a transaction of an engine without transactions.
                Plan::Refuse(Refusal::CannotBeUndone { .. }) => {}
                other => panic!("{at}: {other:?}"),
            }
        }
    }
    let mut inside = bytes.clone();
    inside[transactions[1].0.0 as usize + 30] ^= 1;
    let refused = plan(&inside, &all);
    assert!(
        matches!(refused, Plan::Refuse(Refusal::Damaged { at, .. }) if at == transactions[1].0)
    );
    for damaged in [
        [&bytes[..5], &[9], &bytes[6..]].concat(),
        [&b"nothing"[..], &bytes].concat(),
        b"none".to_vec(),
    ] {
        assert!(matches!(open(&damaged).1, Beginning::Damaged(..)));
    }
    assert_eq!(open(&[0; 300]).1, Beginning::Torn);
    let encrypted = [&[0xfd], &bytes[1..]].concat();
    assert_eq!(open(&encrypted).1, Beginning::Encrypted);
}

#[test]
fn without_checksums_what_a_gtid_event_says_is_looked_at() {
    let bytes = golden("no_checksum");
    let (_, transactions) = contents(&bytes);
    let all: GtidSet = transactions.iter().map(|(_, gtid)| *gtid).collect();
    let (at, _) = transactions[1];
    let event = at.0 as usize;
    let mut anonymous = bytes.clone();
    anonymous[event + 4] = 34;
    match plan(&anonymous, &all) {
        Plan::Refuse(Refusal::WithoutGtid { at: found, .. }) => assert_eq!(found, at),
        other => panic!("{other:?}"),
    }
    // Damages the transaction number, which follows the flags and the source.
    let mut unreadable = bytes.clone();
    unreadable[event + HEADER_LEN + 17..][..8].fill(0xff);
    // Makes the event shorter than its own header.
    let mut short = bytes;
    short[event + 9..][..4].copy_from_slice(&5_u32.to_le_bytes());
    for damaged in [unreadable, short] {
        match plan(&damaged, &all) {
            Plan::Refuse(Refusal::Damaged { at: found, .. }) => assert_eq!(found, at),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_file_that_ends_with_a_gtid_event_is_cut_there() {
    let bytes = golden("rows");
    let (_, transactions) = contents(&bytes);
    let [(_, has), (at, lacks), ..] = transactions[..] else {
        panic!("{transactions:?}");
    };
    let event = at.0 as usize;
    let size = u32::from_le_bytes(bytes[event + 9..][..4].try_into().unwrap());
    let torn = &bytes[..event + size as usize];
    let cut = Plan::Cut {
        at,
        gtids: [lacks].into_iter().collect(),
    };
    assert_eq!(plan(torn, &[has].into_iter().collect()), cut);
}

#[test]
fn damage_behind_a_statement_that_is_a_transaction_is_not_in_it() {
    let mut bytes = golden("ddl");
    let (_, transactions) = contents(&bytes);
    let [(_, has), (at, _), ..] = transactions[..] else {
        panic!("{transactions:?}");
    };
    bytes[at.0 as usize + HEADER_LEN] ^= 1;
    let cut = Plan::Cut {
        at,
        gtids: GtidSet::new(),
    };
    assert_eq!(plan(&bytes, &[has].into_iter().collect()), cut);
}

/// mysqld logs a write to MyISAM that exceeds the statement cache like this: a GTID, and an incident for the lost events.
#[test]
fn what_an_incident_stands_for_is_not_undone() {
    let bytes = golden("no_checksum");
    let (_, transactions) = contents(&bytes);
    let [(_, has), (at, lacks), ..] = transactions[..] else {
        panic!("{transactions:?}");
    };
    let gtid_event = at.0 as usize;
    let size = u32::from_le_bytes(bytes[gtid_event + 9..][..4].try_into().unwrap());
    let mut file = bytes[..gtid_event + size as usize].to_vec();
    let body = b"\x01\x00\x04lost";
    let end = file.len() + HEADER_LEN + body.len();
    file.extend(bytes[gtid_event..][..HEADER_LEN].iter());
    let header = end - body.len() - HEADER_LEN;
    file[header + 4] = EventType::Incident.code();
    file[header + 9..][..4].copy_from_slice(&((HEADER_LEN + body.len()) as u32).to_le_bytes());
    file[header + 13..][..4].copy_from_slice(&(end as u32).to_le_bytes());
    file.extend(body);
    match plan(&file, &[has].into_iter().collect()) {
        Plan::Refuse(Refusal::CannotBeUndone { gtid, .. }) => assert_eq!(gtid, lacks),
        other => panic!("{other:?}"),
    }
    let both = [has, lacks].into_iter().collect();
    assert_eq!(plan(&file, &both), Plan::Keep(Keep::AllCommitted));
}

#[test]
fn what_a_header_says() {
    let header = |name: &str| match open(&golden(name)).1 {
        Beginning::Header(header) => header,
        other => panic!("{other:?}"),
    };
    assert!(header("in_use").in_use && !header("stopped").in_use);
    assert!(header("first_file").after_a_start && !header("rows").after_a_start);
    assert!(!header("rows").previous.is_empty());
}

#[test]
fn the_flags_of_an_encrypted_file_are_one_byte_behind_its_header() {
    // 512 bytes of the encryption's header, then the magic number, and 17 bytes of the first event's header.
    let mut bytes = vec![0; 533];
    bytes[..4].copy_from_slice(&[0xfd, b'b', b'i', b'n']);
    let flags = |bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        encrypted_flags(file.path()).unwrap()
    };
    assert_eq!(flags(&bytes), None, "it ends before them");
    bytes.push(0x5a);
    assert_eq!(flags(&bytes), Some(0x5a));
    bytes.extend([0xff; 100]);
    assert_eq!(flags(&bytes), Some(0x5a));
    bytes[0] = 0xfe;
    assert_eq!(flags(&bytes), None, "it is not encrypted");
}

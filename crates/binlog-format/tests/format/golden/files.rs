//! The golden files and their listings. Decoding a file must match its listing.

use std::fs;
use std::path::{Path, PathBuf};

use binlog_format::MAGIC;
use binlog_format::canonical::{canonicalise, stamp, stamp_payload, stamped_len, unstamp};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType, RawEvent};
use binlog_format::events::FormatDescription;
use bytes::Bytes;

/// A golden file with its events.
pub(crate) struct GoldenFile {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
    /// The events, each with its offset in the file.
    pub(crate) events: Vec<(u64, RawEvent)>,
    pub(crate) checksum: ChecksumAlgorithm,
    pub(crate) listing: Vec<Line>,
}

/// One event in the server's listing.
pub(crate) struct Line {
    pub(crate) offset: u64,
    pub(crate) event_type: String,
    pub(crate) server_id: u32,
    pub(crate) end: u64,
    pub(crate) description: String,
}

pub(crate) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

pub(crate) fn table(name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(testdata().join(name)).unwrap();
    text.lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

pub(crate) fn golden_files() -> Vec<GoldenFile> {
    let mut names: Vec<String> = fs::read_dir(testdata())
        .unwrap()
        .filter_map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()?
                .strip_suffix(".binlog")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    assert_eq!(names.len(), 17, "{names:?}");
    names.iter().map(|name| golden_file(name)).collect()
}

pub(crate) fn golden_file(name: &str) -> GoldenFile {
    let bytes = Bytes::from(fs::read(testdata().join(format!("{name}.binlog"))).unwrap());
    assert_eq!(bytes[..4], MAGIC);
    let events = split(bytes.slice(4..), 4);
    let description = events[0].1.verified(ChecksumAlgorithm::Crc32).unwrap();
    let checksum = FormatDescription::decode(description).unwrap().checksum;
    let listing = table(&format!("{name}.events.tsv"))
        .into_iter()
        .map(|columns| Line {
            offset: columns[0].parse().unwrap(),
            event_type: columns[1].clone(),
            server_id: columns[2].parse().unwrap(),
            end: columns[3].parse().unwrap(),
            description: columns[4].clone(),
        })
        .collect();
    GoldenFile {
        name: name.to_owned(),
        bytes,
        events,
        checksum,
        listing,
    }
}

/// The events of a buffer that begins at `offset` of its file.
pub(crate) fn split(mut buffer: Bytes, mut offset: u64) -> Vec<(u64, RawEvent)> {
    let mut events = Vec::new();
    while let Some(event) = RawEvent::split_from(&mut buffer).unwrap() {
        let size = event.bytes().len() as u64;
        events.push((offset, event));
        offset += size;
    }
    events
}

impl GoldenFile {
    /// A format description always has a CRC32, whatever algorithm it announces for other events.
    pub(crate) fn checksum_of(&self, event: &RawEvent) -> ChecksumAlgorithm {
        match event.event_type() {
            EventType::FormatDescription => ChecksumAlgorithm::Crc32,
            _ => self.checksum,
        }
    }

    pub(crate) fn canonical(&self) -> Vec<Bytes> {
        self.events
            .iter()
            .map(|(_, event)| canonicalise(event, self.checksum_of(event)).unwrap())
            .collect()
    }

    /// The listing without the events in compressed payloads, because these have no position in the file.
    fn listing_of_the_file(&self) -> Vec<&Line> {
        self.listing
            .iter()
            .filter(|line| line.offset < line.end)
            .collect()
    }
}

fn name_in_listings(event_type: EventType) -> &'static str {
    match event_type {
        EventType::Query => "Query",
        EventType::Stop => "Stop",
        EventType::Rotate => "Rotate",
        EventType::IntVar => "Intvar",
        EventType::Rand => "RAND",
        EventType::UserVar => "User var",
        EventType::FormatDescription => "Format_desc",
        EventType::Xid => "Xid",
        EventType::BeginLoadQuery => "Begin_load_query",
        EventType::ExecuteLoadQuery => "Execute_load_query",
        EventType::TableMap => "Table_map",
        EventType::RowsQuery => "Rows_query",
        EventType::WriteRows => "Write_rows",
        EventType::UpdateRows => "Update_rows",
        EventType::DeleteRows => "Delete_rows",
        EventType::Gtid => "Gtid",
        EventType::PreviousGtids => "Previous_gtids",
        EventType::XaPrepare => "XA_prepare",
        EventType::PartialUpdateRows => "Update_rows_partial",
        EventType::TransactionPayload => "Transaction_payload",
        EventType::GtidTagged => "Gtid_tagged_log_event",
        other => panic!("no golden file has a {other} event"),
    }
}

#[test]
fn events_stand_where_the_server_lists_them() {
    for file in golden_files() {
        let ours: Vec<_> = file
            .events
            .iter()
            .map(|(offset, event)| {
                let header = event.header();
                (
                    *offset,
                    name_in_listings(header.event_type),
                    header.server_id,
                    u64::from(header.log_pos),
                )
            })
            .collect();
        let listed: Vec<_> = file
            .listing_of_the_file()
            .iter()
            .map(|line| {
                (
                    line.offset,
                    line.event_type.as_str(),
                    line.server_id,
                    line.end,
                )
            })
            .collect();
        assert_eq!(ours, listed, "{}", file.name);
    }
}

#[test]
fn every_checksum_holds() {
    let mut checked = 0;
    for file in golden_files() {
        for (offset, event) in &file.events {
            if file.checksum_of(event) == ChecksumAlgorithm::Crc32 {
                unstamp(event.bytes())
                    .unwrap_or_else(|error| panic!("{}:{offset}: {error}", file.name));
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn one_file_has_no_checksums() {
    let without: Vec<String> = golden_files()
        .into_iter()
        .filter(|file| file.checksum == ChecksumAlgorithm::None)
        .map(|file| file.name)
        .collect();
    assert_eq!(without, ["no_checksum"]);
}

#[test]
fn a_file_is_restored_byte_for_byte_from_its_canonical_events() {
    for file in golden_files() {
        let canonical = file.canonical();
        for ((offset, original), canonical) in file.events.iter().zip(&canonical) {
            if file.checksum_of(original) == ChecksumAlgorithm::None {
                let mut zeroed = original.bytes().to_vec();
                zeroed[13..17].fill(0);
                assert_eq!(*canonical, zeroed, "{}:{offset}", file.name);
                continue;
            }
            let mut stored = Vec::new();
            let end = stamp(canonical, *offset, &mut stored).unwrap();
            assert_eq!(stored, original.bytes()[..], "{}:{offset}", file.name);
            assert_eq!(end, offset + stored.len() as u64);
        }
        if file.checksum == ChecksumAlgorithm::Crc32 {
            let payload = canonical.concat();
            let mut stored = Vec::new();
            stamp_payload(&payload, 4, &mut stored).unwrap();
            assert_eq!(stored, file.bytes[4..], "{}", file.name);
            assert_eq!(stamped_len(&payload).unwrap(), stored.len() as u64);
            assert_eq!(unstamp(&stored).unwrap(), payload);
        }
    }
}

#[test]
fn format_descriptions_of_one_server_have_one_canonical_form_but_for_their_time() {
    let heads: Vec<Vec<u8>> = golden_files()
        .iter()
        .map(|file| {
            let event = file.events[0].1.verified(ChecksumAlgorithm::Crc32).unwrap();
            let mut canonical = FormatDescription::canonical_event(event).unwrap();
            canonical[..4].fill(0);
            canonical
        })
        .collect();
    assert!(heads.windows(2).all(|pair| pair[0] == pair[1]));
    let built_in = FormatDescription::built_in("9.7.4-2");
    let event = RawEvent::new(heads[0].clone().into()).unwrap();
    assert_eq!(
        FormatDescription::decode(event.canonical()).unwrap(),
        built_in
    );
}

#[test]
fn the_in_use_flag_is_read_and_is_no_part_of_the_canonical_form() {
    let in_use = |name: &str| {
        golden_file(name).events[0]
            .1
            .header()
            .flags
            .contains(EventFlags::BINLOG_IN_USE)
    };
    assert!(in_use("in_use"));
    assert!(!in_use("stopped"));
}

#[test]
fn only_a_servers_first_file_has_a_creation_time() {
    for file in golden_files() {
        let event = file.events[0].1.verified(ChecksumAlgorithm::Crc32).unwrap();
        let created = FormatDescription::decode(event).unwrap().created;
        assert_eq!(created != 0, file.name == "first_file", "{}", file.name);
    }
}

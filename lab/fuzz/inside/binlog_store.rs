//! Fuzzing entry points for the input from disks and other members. The product does not call them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use binlog_format::event::{EventFlags, EventRef};
use bytes::Bytes;

use crate::file_system::StorageFile;
use crate::format::{FileHeader, FileNumber, encode_file_header, parse_index, render_index};
use crate::hard_state::{
    COMMITTED, DOUBT, DURABLE, ELECTIONS, FLOOR, HardState, LOG, MetaStore, SCRUB, START, UNSYNCED,
    VOTE,
};
use crate::scan::{
    Depth, EntryScanner, InMemory, ScanError, Scanned, Window, find_entry_after, scan_header,
    scan_noted_start,
};

/// Reads the header of an otherwise empty file, writes it, and reads the result. Returns whether the header is valid.
pub fn file_header(bytes: &[u8]) -> bool {
    let Ok(start) = scan_noted_start(Bytes::copy_from_slice(bytes)) else {
        return false;
    };
    let description = EventRef::new(&start.header.format_description);
    let flags = description.expect("it was read").header().flags;
    if flags.contains(EventFlags::BINLOG_IN_USE) {
        // No log file has this flag, and the writer excludes the flag from the checksum.
        return true;
    }
    let written = encode_file_header(&mut start.header.clone()).into();
    let again = scan_noted_start(written).expect("what was written is read");
    let end = again.header.end;
    assert_eq!(
        again.header,
        FileHeader {
            end,
            ..start.header
        }
    );
    true
}

/// Reads a log file at every depth, and searches for entries after offsets in it. Returns the number of entries up to the first fault;
/// `None` if the header is not valid.
pub fn log_file(bytes: &[u8]) -> Option<usize> {
    let file: Arc<dyn StorageFile> = Arc::new(InMemory(Bytes::copy_from_slice(bytes)));
    let end = bytes.len() as u64;
    let window = || Window::new(&file, end, Window::LOOKUP_BYTES);
    for offset in [0, end / 2] {
        let found = find_entry_after(&file, end, FileNumber::FIRST, offset);
        if let Some(found) = found.expect("a file in memory is read") {
            assert!(found.offset > offset && found.end <= end);
        }
    }
    // The header contains the file's number, so that the expected number must match.
    let number = (1..=2).filter_map(FileNumber::new);
    let mut headers = number.filter_map(|number| scan_header(&mut window(), Some(number)).ok());
    let header = headers.next()?;
    let scanner = || EntryScanner::new(window(), header.number, header.end, header.before);

    let mut with_payloads = scanner();
    let whole = entries(|| Ok(with_payloads.next_entry()?.map(|(scanned, _)| scanned)));
    for depth in [Depth::Full, Depth::FirstEvent, Depth::Marker] {
        let mut scanner = scanner();
        let seen = entries(|| scanner.next(depth));
        // A scan that skips payloads must find all entries that a scan of every byte finds.
        assert!(seen.len() >= whole.len());
        assert!(depth != Depth::Full || seen == whole);
        assert_eq!(seen[..whole.len()], whole);
    }
    Some(whole.len())
}

/// The offsets of entries up to the first fault.
fn entries(
    mut next: impl FnMut() -> Result<Option<Scanned>, ScanError>,
) -> Vec<(u64, u64, raft_types::OpId)> {
    let mut entries = Vec::new();
    while let Ok(Some(scanned)) = next() {
        entries.push((scanned.offset, scanned.end, scanned.op_id));
    }
    entries
}

/// Reads an index. Returns the index as written again.
pub fn index(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(render_index(parse_index(bytes)?))
}

/// The number of records of the hard state.
pub const RECORDS: usize = KEYS.len();

const KEYS: [&str; 10] = [
    LOG.name,
    VOTE.name,
    COMMITTED.name,
    FLOOR.name,
    DURABLE.name,
    START.name,
    DOUBT.name,
    SCRUB.name,
    UNSYNCED.name,
    ELECTIONS.name,
];

/// Reads record `which` of the hard state. Returns the record as written again.
pub fn record(which: usize, value: &[u8]) -> Option<Vec<u8>> {
    let key = KEYS[which % RECORDS];
    let meta = Arc::new(MemoryMeta::default());
    meta.lock().insert(key.to_owned(), value.to_vec());
    let state = HardState { meta: meta.clone() };
    let saved = state.read().ok()?;
    meta.lock().clear();
    let puts = [
        saved.log.map(|record| state.put(LOG, Some(&record))),
        saved.vote.map(|vote| state.put(VOTE, Some(&vote))),
        saved
            .committed
            .map(|mark| state.put(COMMITTED, Some(&mark))),
        saved.floor.map(|floor| state.put(FLOOR, Some(&floor))),
        saved.durable.map(|mark| state.put(DURABLE, Some(&mark))),
        saved.start.map(|start| state.put(START, Some(&start))),
        saved.doubt.map(|doubt| state.put(DOUBT, Some(&doubt))),
        Some(state.put(SCRUB, Some(&saved.scrub))),
        Some(state.put(ELECTIONS, Some(&saved.elections))),
    ];
    for put in puts.into_iter().flatten() {
        put.expect("it is written to memory");
    }
    let written = meta.lock().get(key).cloned();
    Some(written.expect("what was read is written"))
}

/// An in-memory store for the hard state.
#[derive(Default)]
struct MemoryMeta(Mutex<BTreeMap<String, Vec<u8>>>);

impl MemoryMeta {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetaStore for MemoryMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.lock().get(key).cloned())
    }

    fn reserve(&self) -> io::Result<()> {
        Ok(())
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.lock().insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.lock().remove(key);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

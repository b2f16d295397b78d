//! Payloads that are too large to stay in memory, or to be checked in the engine's loop.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::path::Path;
use std::sync::Arc;

use binlog_store::{BinlogStore, DiskFileSystem, SledMeta, StoreOptions};
use raft_types::{AppEntry, Entry, EntryPayload, OpId, TransactionPayload};
use spilling_bytes::{Gathered, SPILLED_FROM, SpillFolder};
use testkit::log_entries::{transaction, transaction_events};

use crate::workload::{append, read_all, ring, save_vote};

fn open(home: &Path, spill: SpillFolder) -> BinlogStore {
    let options = StoreOptions {
        cache_bytes: 1,
        disk_reserve_bytes: 0,
        spill,
        ..StoreOptions::new(home, ring())
    };
    let meta = Arc::new(SledMeta::open(&home.join("meta")).unwrap());
    let opened = BinlogStore::open(options, Arc::new(DiskFileSystem), meta);
    opened.unwrap().0
}

#[test]
fn a_large_entry_is_read_into_a_file_and_is_the_one_that_was_written() {
    let home = tempfile::tempdir().unwrap();
    let spill = SpillFolder::open(home.path().join("spill"), 0);
    let mut store = open(home.path(), spill.clone());
    save_vote(&mut store, 1).unwrap();
    let sizes = [1_000, SPILLED_FROM + 1_000_000, 1_000];
    let entries: Vec<Entry> = (0..)
        .zip(sizes)
        .map(|(index, bytes)| transaction(OpId::new(0, index), bytes))
        .collect();
    append(&mut store, entries.clone()).unwrap();
    // Uncommitted entries are still in memory.
    assert!(read_all(&store).unwrap() == entries);
    assert_eq!(spill.bytes(), 0);
    store.close().unwrap();
    drop(store);
    let store = open(home.path(), spill.clone());
    let read = read_all(&store).unwrap();
    assert!(spill.bytes() > SPILLED_FROM as u64);
    assert!(read == entries);
    // Without a spill folder, the payload stays in memory and is the same.
    store.close().unwrap();
    drop(store);
    let store = open(home.path(), SpillFolder::default());
    assert!(read_all(&store).unwrap() == entries);
}

#[test]
fn a_large_payload_that_was_damaged_on_its_way_is_not_written() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path(), SpillFolder::default());
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![transaction(OpId::new(0, 0), 100)]).unwrap();
    let bytes = transaction_events(1, 5 << 20);
    let crc32c = crc32c::crc32c(&bytes) ^ 1;
    let payload = TransactionPayload::seal_gathered(Gathered { bytes, crc32c });
    let damaged = Entry {
        log_id: OpId::new(0, 1).into(),
        payload: EntryPayload::Normal(AppEntry::Transaction(payload)),
    };
    let error = append(&mut store, vec![damaged]).unwrap_err().to_string();
    assert!(error.contains("damaged on its way"), "{error}");
    // The writer has stopped and reports its error.
    assert!(store.close().is_err());
    drop(store);
    let store = open(home.path(), SpillFolder::default());
    assert_eq!(read_all(&store).unwrap().len(), 1);
}

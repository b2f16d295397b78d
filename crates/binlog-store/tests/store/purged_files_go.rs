//! Purged files are removed from the disk, also under uninterrupted load, and if another process removed a file before the writer.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::path::PathBuf;
use std::time::Duration;

use crate::workload::{append, log_dir, log_files, open_with, options, purge, save_committed};
use binlog_store::{BinlogStore, StoreOptions, WriterMode};
use futures::executor::block_on;
use futures::join;
use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{LogId, OpId, TypeConfig};
use testkit::disk::{CallFault, FaultyDisk};
use testkit::log_entries::{rotate, transaction};

/// Duration of a disk call: much longer than the scheduler may delay this thread.
const SLOW: Duration = Duration::from_millis(100);
/// Number of groups of entries within which the files must be removed.
const MANY_GROUPS: u64 = 50;

/// Number of files that these tests purge.
const PURGED: u64 = 8;

fn id(index: u64) -> OpId {
    OpId::new(0, index)
}

/// Fills a log: its first [`PURGED`] files contain only their rotate entries, which are committed.
fn fill(store: &mut BinlogStore) {
    for index in 0..PURGED {
        append(store, vec![rotate(id(index))]).unwrap();
    }
    save_committed(store, id(PURGED - 1)).unwrap();
}

/// Number of log files on the disk, without the index.
fn files_on(disk: &FaultyDisk) -> usize {
    log_files(disk).len() - 1
}

#[test]
fn purged_files_are_removed_although_entries_keep_coming() {
    let disk = FaultyDisk::new();
    disk.stop_recording();
    let threaded = StoreOptions {
        writer: WriterMode::Thread,
        ..options()
    };
    let (mut store, _) = open_with(&disk, threaded).unwrap();
    fill(&mut store);
    purge(&mut store, id(PURGED - 1)).unwrap();
    // Each group of entries takes two slow calls, and the next entries arrive before it is written. So the writer is never idle.
    for call in 1..=4 * MANY_GROUPS {
        disk.fail_call(disk.calls() + call, CallFault::Slow(SLOW));
    }
    let before = store.stats().flushes;
    let mut next = PURGED;
    while files_on(&disk) > 1 {
        let (done, _) = TypeConfig::oneshot();
        let entry = transaction(id(next), 10);
        block_on(store.append([entry], IOFlushed::signal(done))).unwrap();
        next += 1;
        std::thread::sleep(Duration::from_millis(2));
        let (groups, left) = (store.stats().flushes - before, files_on(&disk));
        assert!(groups < MANY_GROUPS, "{left} files are left");
    }
    assert_eq!(store.files().len(), 1);
    assert_eq!(store.failure(), None);
}

#[test]
fn a_purged_file_removed_by_another_process_counts_as_removed() {
    let disk = FaultyDisk::new();
    let stepped = StoreOptions {
        writer: WriterMode::Stepped,
        ..options()
    };
    let (mut store, _) = open_with(&disk, options()).unwrap();
    fill(&mut store);
    drop(store);
    disk.restart_process();

    let (mut store, _) = open_with(&disk, stepped).unwrap();
    let handle = store.handle();
    let (purged, ()) = block_on(async {
        join!(store.purge(LogId::from(id(PURGED - 1))), async {
            handle.write_waiting();
        })
    });
    purged.unwrap();
    assert_eq!(files_on(&disk), PURGED as usize + 1, "none has gone yet");
    let path = |number: u64| -> PathBuf { log_dir().join(format!("binlog.{number:06}")) };
    for number in [1, 2, 5, PURGED] {
        disk.delete(&path(number));
    }
    save_committed(&mut store, id(PURGED - 1)).unwrap();
    handle.write_waiting();
    assert_eq!(handle.failure(), None);
    assert_eq!(files_on(&disk), 1);
}

/// If any call of a purge fails, the log stops; a lack of room is the only exception, because it may end.
#[test]
fn no_call_of_a_purge_may_fail_unnoticed() {
    let purged = |failing: Option<u64>| {
        let disk = FaultyDisk::new();
        let (mut store, _) = open_with(&disk, options()).unwrap();
        fill(&mut store);
        let before = disk.calls();
        if let Some(call) = failing {
            disk.fail_call(before + call, CallFault::Io);
        }
        purge(&mut store, id(PURGED - 1)).ok();
        (disk.calls() - before, store.failure())
    };
    let (calls, failure) = purged(None);
    assert_eq!(failure, None);
    for call in 1..=calls {
        assert_ne!(purged(Some(call)).1, None, "call {call} of {calls}");
    }
}

/// A reader assumes that the first entry it receives is the next one. The engine would send it directly after an earlier entry, and an
/// applier would skip the entries between them.
#[test]
fn readers_never_get_later_entries_in_place_of_purged_ones() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options()).unwrap();
    fill(&mut store);
    append(&mut store, vec![rotate(id(PURGED))]).unwrap();
    let readers = [block_on(store.get_log_reader()), store.reader()];
    let read = |start| {
        readers.clone().map(|mut reader| {
            let read = block_on(reader.limited_get_log_entries(start, PURGED + 1)).unwrap();
            read.first().map(|first| first.log_id.index)
        })
    };
    assert_eq!(read(2), [Some(2); 2]);
    purge(&mut store, id(PURGED - 1)).unwrap();
    assert_eq!(read(2), [None; 2]);
    assert_eq!(read(PURGED), [Some(PURGED); 2]);
}

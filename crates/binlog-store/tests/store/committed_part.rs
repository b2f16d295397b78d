//! The end of the committed part of the files, and its GTIDs: after every entry, a restart, a truncation, a purge and a truncation below
//! the commit index.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::path::Path;

use crate::workload::{
    DATA_DIR, append, cut_back, open, open_with, options, purge, save_committed, save_vote,
    truncate,
};
use binlog_format::gtid::GtidSet;
use binlog_store::{
    BinlogStore, EntryRecord, FileNumber, LogDirectory, LogPlace, MarkerKind, StoreOptions,
    VerifyAtStart, WriterMode,
};
use futures::executor::block_on;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, OpId, TypeConfig};
use testkit::disk::FaultyDisk;
use testkit::log_entries::{blank, gtid, membership, rotate, transaction};

fn id(index: u64) -> OpId {
    OpId::new(1, index)
}

/// Twelve entries in three files and the beginning of a fourth.
fn entries() -> Vec<Entry> {
    (0..12)
        .map(|index| match index % 4 {
            0 => blank(id(index)),
            1 => transaction(id(index), 300),
            2 => membership(id(index), &[1, 2, 3]),
            _ => rotate(id(index)),
        })
        .collect()
}

fn filled() -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, entries()).unwrap();
    (disk, store)
}

/// The end of each entry according to the files. For a rotate entry, the position at which the next file's entries begin.
fn ends(disk: &FaultyDisk) -> Vec<(EntryRecord, LogPlace)> {
    let directory = LogDirectory::open(disk.file_system(), Path::new(DATA_DIR)).unwrap();
    let records = directory.entries().unwrap().map(Result::unwrap);
    records
        .map(|record| {
            let end = match record.kind {
                MarkerKind::Rotate => {
                    let file = record.file.next();
                    let offset = directory.header(file).unwrap().end;
                    LogPlace { file, offset }
                }
                _ => LogPlace {
                    file: record.file,
                    offset: record.end,
                },
            };
            (record, end)
        })
        .collect()
}

/// Checks the committed end and GTIDs with each entry from index `from` on as the commit index.
fn check(store: &BinlogStore, disk: &FaultyDisk, from: u64) {
    let ends = ends(disk);
    let mut gtids = GtidSet::new();
    let first = ends.first().map_or(0, |(record, _)| record.op_id.index);
    gtids.union_with(&store.purged_gtids());
    assert!(first <= from);
    for (record, end) in &ends {
        gtids.extend(record.gtid);
        if record.op_id.index < from {
            continue;
        }
        let mark = Some(record.op_id);
        assert_eq!(store.committed_end(mark), *end, "{}", record.op_id);
        assert_eq!(store.committed_gtids(mark), gtids, "{}", record.op_id);
    }
}

#[test]
fn every_mark_has_its_place() {
    let (disk, store) = filled();
    let begin = store.committed_end(None);
    assert_eq!(begin.file, FileNumber::FIRST);
    assert_eq!(store.committed_gtids(None), GtidSet::new());
    check(&store, &disk, 0);
    // The commit index is after the log's end, as on a leader with a slow disk.
    let end = store.committed_end(Some(id(11)));
    assert_eq!(store.committed_end(Some(id(99))), end);
}

#[test]
fn a_new_start_recovers_the_committed_end() {
    for verify_at_start in [VerifyAtStart::All, VerifyAtStart::Recent] {
        let mut known_ones = 0;
        for committed in 0..12 {
            let (disk, mut store) = filled();
            save_committed(&mut store, id(committed)).unwrap();
            drop(store);
            let options = StoreOptions {
                verify_at_start,
                ..options()
            };
            let (store, _) = open_with(&disk, options).unwrap();
            let known = store.applied_at_open().0;
            let (record, end) = match known {
                Some(known) => ends(&disk).swap_remove(known.index as usize),
                None => continue,
            };
            assert_eq!(store.committed_end(None), end, "{}", record.op_id);
            check(&store, &disk, record.op_id.index);
            known_ones += 1;
        }
        assert!(
            known_ones > 6,
            "the stored commit is only a hint, but {known_ones}"
        );
    }
}

#[test]
fn a_truncated_tail_is_no_part_of_it() {
    for keep in 4..11 {
        let (disk, mut store) = filled();
        save_committed(&mut store, id(4)).unwrap();
        truncate(&mut store, Some(id(keep))).unwrap();
        let more = (keep + 1..keep + 4).map(|index| transaction(OpId::new(2, index), 50));
        append(&mut store, more.collect()).unwrap();
        assert_eq!(
            store.committed_end(None),
            ends(&disk)[4].1,
            "kept up to {keep}"
        );
        check(&store, &disk, 4);
    }
}

#[test]
fn purged_files_are_removed_and_held_ones_stay_readable() {
    let (disk, mut store) = filled();
    save_committed(&mut store, id(9)).unwrap();
    let first = store.files()[0].number;
    let hold = store.hold_file(first).unwrap();
    purge(&mut store, id(3)).unwrap();
    assert_eq!(store.files().len(), 3);
    let gone: GtidSet = [gtid(1)].into_iter().collect();
    assert_eq!(store.purged_gtids(), gone);
    assert_eq!(store.last_file_within(&GtidSet::new()), None);
    let within = store.last_file_within(&gone).unwrap();
    assert_eq!((within.number, within.before), (first.next(), Some(id(3))));
    let place = LogPlace {
        file: first,
        offset: 0,
    };
    let magic = block_on(store.read_file(place, 4)).unwrap();
    assert_eq!(magic[..], binlog_format::MAGIC);
    assert!(store.hold_file(first).is_some(), "it is still there");
    drop(hold);
    let read = block_on(store.read_file(place, 4));
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(store.hold_file(first).is_none());
    check(&store, &disk, 9);
}

#[test]
fn a_log_that_is_cut_back_is_committed_to_its_end() {
    let (disk, mut store) = filled();
    save_committed(&mut store, id(9)).unwrap();
    cut_back(&mut store, Some(id(5))).unwrap();
    let end = ends(&disk).last().unwrap().1;
    assert_eq!(store.committed_end(None), end);
    append(&mut store, vec![transaction(OpId::new(2, 6), 50)]).unwrap();
    assert_eq!(store.committed_end(None), end);
    check(&store, &disk, 5);
}

/// The GTIDs of committed entries do not wait for this member's disk: other members have the entries, and clients may have read them.
#[test]
fn entries_committed_by_others_count_before_they_are_written() {
    let disk = FaultyDisk::new();
    let stepped = StoreOptions {
        writer: WriterMode::Stepped,
        ..options()
    };
    let (mut store, _) = open_with(&disk, stepped).unwrap();
    let entries = (0..3).map(|index| transaction(id(index), 50)).collect();
    let (done, _flushed) = TypeConfig::oneshot();
    block_on(RaftLogStorage::append::<Vec<Entry>>(
        &mut store,
        entries,
        IOFlushed::signal(done),
    ))
    .unwrap();
    assert_eq!(store.durable(), None);
    let upto = |last: u64| -> GtidSet { (0..=last).map(gtid).collect() };
    for index in 0..3 {
        let mark = Some(id(index));
        assert_eq!(store.gtids_committed_in_ring(mark), upto(index));
        assert_eq!(store.committed_gtids(mark), GtidSet::new());
    }
    assert_eq!(store.gtids_committed_in_ring(None), GtidSet::new());
}

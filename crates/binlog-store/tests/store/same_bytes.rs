//! Equal logs have equal files, however the entries arrived and whatever was truncated in between.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::sync::Arc;

use crate::workload::{
    append, log_files, open_with, options, purge, read_all, save_committed, save_vote, truncate,
};
use binlog_store::{BinlogStore, StoreOptions, WriterMode};
use futures::executor::block_on;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, EntryPayload, MembershipPayload, OpId, TypeConfig};
use testkit::disk::FaultyDisk;
use testkit::log_entries::{blank, membership, rotate, transaction};

/// Entries of all kinds; some are larger than the writer's copies.
fn entries() -> Vec<Entry> {
    let sizes = [0, 40, 3_000, 2_500_000, 90, 70_000, 5_000_000, 10];
    (0..60)
        .map(|index| {
            let op_id = OpId::new(1 + index / 25, index);
            match index % 15 {
                0 => membership(op_id, &[1, 2, 3 + index]),
                4 => blank(op_id),
                9 => rotate(op_id),
                _ => transaction(op_id, sizes[index as usize % sizes.len()]),
            }
        })
        .collect()
}

fn fill(options: StoreOptions, batches: impl Iterator<Item = Vec<Entry>>) -> FaultyDisk {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options).unwrap();
    for batch in batches {
        append(&mut store, batch).unwrap();
    }
    store.close().unwrap();
    disk
}

/// Requests all appends before any of them is known to be durable.
fn fill_pipelined(options: StoreOptions, batch: usize) -> FaultyDisk {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options).unwrap();
    let flushed: Vec<_> = entries()
        .chunks(batch)
        .map(|batch| begin(&mut store, batch.to_vec()))
        .collect();
    for flushed in flushed {
        block_on(flushed).unwrap();
    }
    store.close().unwrap();
    disk
}

fn begin(
    store: &mut BinlogStore,
    entries: Vec<Entry>,
) -> impl Future<Output = std::io::Result<()>> + use<> {
    let (done, flushed) = TypeConfig::oneshot();
    block_on(store.append(entries, IOFlushed::signal(done))).unwrap();
    async move { flushed.await.map_err(std::io::Error::other)? }
}

#[test]
fn bytes_do_not_depend_on_how_entries_are_grouped() {
    let wanted = log_files(&fill(
        options(),
        entries().into_iter().map(|entry| vec![entry]),
    ));
    assert_eq!(wanted.len(), 6, "the log has five files and the index");
    for batch in [2, 7, 60] {
        let chunks: Vec<Vec<Entry>> = entries().chunks(batch).map(<[Entry]>::to_vec).collect();
        assert!(
            log_files(&fill(options(), chunks.into_iter())) == wanted,
            "batches of {batch}"
        );
    }
    for (batch, queue_bytes) in [(1, 1), (1, 64 << 20), (5, 100_000)] {
        let options = StoreOptions {
            writer: WriterMode::Thread,
            queue_bytes,
            ..options()
        };
        assert!(
            log_files(&fill_pipelined(options, batch)) == wanted,
            "pipelined batches of {batch}, {queue_bytes}"
        );
    }
    let os = StoreOptions {
        writer: WriterMode::Thread,
        durability: binlog_store::Durability::Os,
        ..options()
    };
    assert!(
        log_files(&fill_pipelined(os, 1)) == wanted,
        "written in the caller's thread"
    );
}

#[test]
fn bytes_do_not_depend_on_truncated_entries() {
    let wanted = log_files(&fill(options(), [entries()].into_iter()));
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options()).unwrap();
    let entries = entries();
    for (at, entry) in entries.iter().enumerate() {
        if at % 7 == 3 {
            // A former leader's entries, across the end of a file, which a later leader truncates.
            let next = entry.log_id.index;
            let former = entry.log_id.leader_id.term.min(at as u64 / 25);
            let term = former.max(entries[at - 1].log_id.leader_id.term);
            let wrong = [
                transaction(OpId::new(term, next), 900),
                rotate(OpId::new(term, next + 1)),
                membership(OpId::new(term, next + 2), &[9]),
                rotate(OpId::new(term, next + 3)),
                transaction(OpId::new(term, next + 4), 20),
            ];
            append(&mut store, wrong.to_vec()).unwrap();
            truncate(&mut store, Some(OpId::from(entries[at - 1].log_id))).unwrap();
        }
        append(&mut store, vec![entry.clone()]).unwrap();
    }
    save_vote(&mut store, 3).unwrap();
    store.close().unwrap();
    assert!(log_files(&disk) == wanted);
}

#[test]
fn the_real_file_system_gets_the_same_bytes() {
    let wanted = log_files(&fill(options(), [entries()].into_iter()));
    let dir = tempfile::tempdir().unwrap();
    let meta = binlog_store::SledMeta::open(&dir.path().join("meta")).unwrap();
    let options = StoreOptions {
        data_dir: dir.path().to_path_buf(),
        writer: WriterMode::Thread,
        ..options()
    };
    let (mut store, _) = BinlogStore::open(
        options,
        Arc::new(binlog_store::DiskFileSystem),
        Arc::new(meta),
    )
    .unwrap();
    for batch in entries().chunks(4) {
        append(&mut store, batch.to_vec()).unwrap();
    }
    store.close().unwrap();
    for (name, bytes) in wanted {
        assert!(
            std::fs::read(dir.path().join("log").join(&name)).unwrap() == bytes,
            "{name}"
        );
    }
}

/// A membership as a later version would write it: with fields unknown to this version, and in another order.
const OF_A_LATER_VERSION: &str = r#"{ "written_by": "2.0", "nodes": {"1": {"rack": "b7", "name": "one", "region": "a",
    "kind": "witness", "votes": true, "address": "one:7400", "incarnation": "11111111-2222-3333-4444-555555555555"}},
    "configs": [[1]] }"#;

#[test]
fn a_membership_of_a_later_version_stays_as_it_was_written() {
    let payload = MembershipPayload::read(OF_A_LATER_VERSION.into()).unwrap();
    let later = Entry {
        log_id: OpId::new(1, 1).into(),
        payload: EntryPayload::Membership(payload),
    };
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options()).unwrap();
    let first = membership(OpId::new(1, 0), &[1]);
    let all = vec![
        first,
        later,
        rotate(OpId::new(1, 2)),
        blank(OpId::new(1, 3)),
    ];
    save_vote(&mut store, 3).unwrap();
    append(&mut store, all.clone()).unwrap();
    assert_eq!(read_all(&store).unwrap(), all);
    let times = |bytes: &[u8]| {
        let wanted = OF_A_LATER_VERSION.as_bytes();
        bytes
            .windows(wanted.len())
            .filter(|at| *at == wanted)
            .count()
    };
    let files = log_files(&disk);
    assert_eq!(times(&files["binlog.000001"]), 1, "in its entry");
    assert_eq!(
        times(&files["binlog.000002"]),
        1,
        "in the next file's header"
    );
    // After the purge, the log has the membership only in the record of the purge floor.
    save_committed(&mut store, OpId::new(1, 9)).unwrap();
    purge(&mut store, OpId::new(1, 9)).unwrap();
    store.close().unwrap();
    let (mut store, _) = open_with(&disk, options()).unwrap();
    append(&mut store, vec![rotate(OpId::new(2, 10))]).unwrap();
    let files = log_files(&disk);
    assert_eq!(times(&files["binlog.000003"]), 1, "after the purge");
    assert_eq!(times(&files["binlog.000004"]), 1, "and in all that follow");
}

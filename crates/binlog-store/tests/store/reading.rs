//! Readers: entries from memory and from files, bounded and complete, and correct while the log changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::workload;
use crate::workload::{
    Step, append, log_files, open, open_with, options, perform, purge, save_committed, save_vote,
    truncate,
};
use binlog_store::{
    BinlogStore, DiskFileSystem, PurgeLimit, PurgePolicy, SledMeta, StillNeeded, StoreOptions,
    VerifyAtStart, WriterMode,
};
use futures::StreamExt;
use futures::executor::block_on;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use raft_types::{Entry, LogId, OpId, OwnLog};
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{blank, gtid, membership, rotate, transaction};

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

/// Entries 0 to 299 in ten files, terms 1 to 3.
fn entries() -> Vec<Entry> {
    (0..300)
        .map(|index| {
            let op_id = id(1 + index / 110, index);
            match index % 30 {
                29 => rotate(op_id),
                7 => membership(op_id, &[1, 2, index]),
                _ => transaction(op_id, (index as usize * 37) % 9_000),
            }
        })
        .collect()
}

fn filled(options: StoreOptions) -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options).unwrap();
    save_vote(&mut store, 3).unwrap();
    for batch in entries().chunks(17) {
        append(&mut store, batch.to_vec()).unwrap();
    }
    (disk, store)
}

#[test]
fn every_range_has_exactly_its_entries() {
    let entries = entries();
    let mut dice = fastrand::Rng::with_seed(7);
    for cache_bytes in [1, 60_000, 64 << 20] {
        for reopened in [false, true] {
            let options = StoreOptions {
                cache_bytes,
                read_batch_bytes: 20_000,
                ..options()
            };
            let (disk, mut store) = filled(options.clone());
            if reopened {
                save_committed(&mut store, id(3, 280)).unwrap();
                drop(store);
                let options = StoreOptions {
                    verify_at_start: VerifyAtStart::Recent,
                    ..options
                };
                store = open_with(&disk, options).unwrap().0;
            }
            let mut reader = store.reader();
            for _ in 0..200 {
                let start = dice.u64(0..310);
                let end = start + dice.u64(0..60);
                let from = (start as usize).min(entries.len());
                let wanted = &entries[from..(end as usize).clamp(from, entries.len())];
                let found = block_on(reader.try_get_log_entries(start..end)).unwrap();
                assert!(found == wanted, "{start}..{end}");

                let limited = block_on(reader.limited_get_log_entries(start, end)).unwrap();
                assert!(wanted.starts_with(&limited), "{start}..{end}");
                assert_eq!(limited.is_empty(), wanted.is_empty(), "{start}..{end}");
                let bytes: usize = limited.iter().skip(1).map(size).sum();
                assert!(bytes <= 20_000 + 9_000, "{bytes} bytes in one limited read");
            }
            let all: Vec<Entry> = block_on(async {
                let stream = reader.entries_stream(5..=250).await;
                stream.map(Result::unwrap).collect().await
            });
            assert!(all == entries[5..=250]);
            let stats = store.stats();
            assert_eq!(
                stats.cache_misses == 0,
                cache_bytes == 64 << 20 && !reopened,
                "{stats:?}"
            );
        }
    }
}

fn size(entry: &Entry) -> usize {
    match &entry.payload {
        raft_types::EntryPayload::Normal(raft_types::AppEntry::Transaction(payload)) => {
            payload.bytes().len()
        }
        _ => 0,
    }
}

#[test]
fn log_ids_are_known_without_reading() {
    let (_disk, mut store) = filled(options());
    assert_eq!(store.op_id_at(150), Some(id(2, 150)));
    let range = LogId::from(id(1, 100))..=LogId::from(id(3, 290));
    let wanted = [id(1, 109), id(2, 219), id(3, 290)].map(LogId::from);
    let reads = store.stats().cache_misses + store.stats().cache_hits;
    assert_eq!(
        block_on(store.reader().get_key_log_ids(range.clone())).unwrap(),
        wanted
    );
    assert_eq!(store.stats().cache_misses + store.stats().cache_hits, reads);
    // The range may begin with a purged entry.
    save_committed(&mut store, id(1, 100)).unwrap();
    purge(&mut store, id(1, 100)).unwrap();
    assert_eq!(
        block_on(store.reader().get_key_log_ids(range)).unwrap(),
        wanted
    );
    purge(&mut store, id(1, 109)).unwrap();
    let range = LogId::from(id(1, 109))..=LogId::from(id(3, 290));
    assert_eq!(
        block_on(store.reader().get_key_log_ids(range)).unwrap(),
        wanted
    );

    let report = store.report();
    assert_eq!(report.vote.map(|vote| vote.leader_id.term), Some(3));
    let runs: Vec<_> = report
        .runs
        .iter()
        .map(|run| (run.term, run.first, run.last))
        .collect();
    assert_eq!(runs, [(2, 110, 219), (3, 220, 299)]);
}

#[test]
fn readers_see_consistent_logs_during_truncations() {
    let dir = tempfile::tempdir().unwrap();
    let meta = SledMeta::open(&dir.path().join("meta")).unwrap();
    let options = StoreOptions {
        data_dir: dir.path().to_path_buf(),
        writer: WriterMode::Thread,
        cache_bytes: 3_000,
        durability: binlog_store::Durability::Os,
        ..options()
    };
    let (mut store, _) =
        BinlogStore::open(options, Arc::new(DiskFileSystem), Arc::new(meta)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    save_vote(&mut store, 1).unwrap();
    for index in 0..200 {
        append(&mut store, vec![transaction(id(1, index), 300)]).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    // For each term, the index of the last entry that its leader kept.
    let kept: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let readers: Vec<_> = (0..3)
        .map(|seed| {
            let (mut reader, stop, kept) = (store.reader(), stop.clone(), kept.clone());
            runtime.spawn(async move {
                let mut dice = fastrand::Rng::with_seed(seed);
                let mut reads = 0;
                while !stop.load(Ordering::Relaxed) {
                    let start = dice.u64(0..210);
                    let found = reader.try_get_log_entries(start..start + 40).await.unwrap();
                    let first = found.first().map_or(start, |entry| entry.log_id.index);
                    assert_eq!(first, start, "begins where it was asked to");
                    for (at, entry) in found.iter().enumerate() {
                        assert_eq!(entry.log_id.index, start + at as u64, "no hole");
                        // An entry's content depends only on its index and term, so this checks the bytes that were read.
                        assert!(
                            entry.payload == transaction(OpId::from(entry.log_id), 300).payload
                        );
                    }
                    assert_one_history(&found, &kept.lock().unwrap());
                    reads += 1;
                }
                reads
            })
        })
        .collect();
    let mut dice = fastrand::Rng::with_seed(99);
    for term in 2..150 {
        let keep = dice.u64(100..200);
        kept.lock().unwrap().insert(term, keep);
        let kept = store.op_id_at(keep);
        truncate(&mut store, kept).unwrap();
        save_vote(&mut store, term).unwrap();
        for index in keep + 1..201 {
            append(&mut store, vec![transaction(id(term, index), 300)]).unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(runtime.block_on(reader).unwrap() > 10);
    }
}

#[test]
fn a_tail_that_is_taken_back_between_two_pieces_of_a_read_is_not_in_it() {
    // If the disk answers immediately, the read never waits, and no truncation can happen between its pieces. So several attempts are made.
    let taken_back = (0..100).filter(|_| tail_is_taken_back_between_two_pieces());
    assert_eq!(taken_back.take(5).count(), 5);
}

/// Returns true if the truncation happened between two pieces; the read must then return the entries after the truncation.
fn tail_is_taken_back_between_two_pieces() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let meta = Arc::new(SledMeta::open(&dir.path().join("meta")).unwrap());
    let options = StoreOptions {
        data_dir: dir.path().to_path_buf(),
        writer: WriterMode::Thread,
        cache_bytes: 1,
        read_batch_bytes: 2_000,
        durability: binlog_store::Durability::Os,
        ..options()
    };
    let open = || BinlogStore::open(options.clone(), Arc::new(DiskFileSystem), meta.clone());
    let (mut store, _) = open().unwrap();
    let transactions = |term, indices: std::ops::Range<u64>| -> Vec<Entry> {
        let of_term = |index| transaction(id(term, index), 1_500);
        indices.map(of_term).collect()
    };
    save_vote(&mut store, 1).unwrap();
    append(&mut store, transactions(1, 0..20)).unwrap();
    // New entries are still in memory, so the log is opened again.
    drop(store);
    let (mut store, _) = open().unwrap();
    let mut reader = store.reader();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut waits = 0;
    let found = runtime.block_on(async {
        let mut reading = std::pin::pin!(reader.try_get_log_entries(0..20));
        std::future::poll_fn(|context| {
            let polled = reading.as_mut().poll(context);
            waits += u32::from(polled.is_pending());
            if waits == 3 && polled.is_pending() {
                let first = store.op_id_at(0);
                truncate(&mut store, first).unwrap();
                save_vote(&mut store, 2).unwrap();
                append(&mut store, transactions(2, 1..20)).unwrap();
            }
            polled
        })
        .await
    });
    if waits >= 3 {
        let wanted = [transactions(1, 0..1), transactions(2, 1..20)].concat();
        assert!(found.unwrap() == wanted);
    }
    waits >= 3
}

/// Checks that all entries of one read were in the log together. After the entry that a term's leader kept, and up to the last entry of
/// that term, all entries are of that term.
fn assert_one_history(entries: &[Entry], kept: &BTreeMap<u64, u64>) {
    let Some(last) = entries.last().map(|entry| OpId::from(entry.log_id)) else {
        return;
    };
    let Some(keep) = kept.get(&last.term) else {
        return;
    };
    for entry in entries.iter().filter(|entry| entry.log_id.index > *keep) {
        let op_id = OpId::from(entry.log_id);
        assert_eq!(
            op_id.term, last.term,
            "{op_id} and {last} were never in one log"
        );
    }
    let older: Vec<Entry> = entries
        .iter()
        .filter(|entry| entry.log_id.index <= *keep)
        .cloned()
        .collect();
    assert_one_history(&older, kept);
}

#[test]
fn a_hold_keeps_files_until_it_is_dropped() {
    let (disk, mut store) = filled(options());
    save_committed(&mut store, id(3, 290)).unwrap();
    let file_count = |disk: &FaultyDisk| log_files(disk).len() - 1;
    assert_eq!(file_count(&disk), 11);

    let no_needs = StillNeeded::default();
    let before = binlog_store::FileNumber::new(5).unwrap();
    let plan = store.plan_purge(&PurgePolicy::BeforeFile(before), &no_needs);
    assert_eq!(
        (plan.remove.len(), plan.floor, plan.kept),
        (4, Some(id(2, 119)), None)
    );

    let hold = store.hold(65);
    let plan = store.plan_purge(&PurgePolicy::TotalBytes(1), &no_needs);
    assert_eq!(plan.floor, Some(id(1, 59)));
    assert_eq!(
        plan.kept.map(|(file, limit)| (file.get(), limit)),
        Some((3, PurgeLimit::Held(65)))
    );

    // If the engine purges further, the held files stay, but their purged entries are no longer served.
    purge(&mut store, id(2, 150)).unwrap();
    assert_eq!(file_count(&disk), 9);
    assert_eq!(store.bounds().map(|(first, _)| first), Some(id(2, 151)));
    hold.advance(95);
    assert_eq!(file_count(&disk), 8);
    drop(hold);
    assert_eq!(file_count(&disk), 6);
    let gtids = store.gtid_set();
    assert!(
        gtids.contains(&gtid(3)),
        "purged transactions stay in the set"
    );

    // A hold ends with the process: the next start removes the remaining files.
    let before = workload::read_all(&store).unwrap();
    let held = store.hold(0);
    purge(&mut store, id(3, 240)).unwrap();
    disk.power_cycle(Survival::Nothing);
    drop((held, store));
    let (store, _) = open(&disk).unwrap();
    assert_eq!(file_count(&disk), 3);
    assert!(before.ends_with(&workload::read_all(&store).unwrap()));
}

#[test]
fn applied_state_and_memberships_are_those_of_the_committed_entry() {
    let (disk, mut store) = filled(options());
    save_committed(&mut store, id(1, 50)).unwrap();
    let membership_index =
        |membership: raft_types::StoredMembership| membership.log_id().map(|id| id.index);
    assert_eq!(membership_index(store.committed_membership()), Some(37));
    save_committed(&mut store, id(2, 199)).unwrap();
    assert_eq!(membership_index(store.committed_membership()), Some(187));
    assert_eq!(
        store.applied_at_open(),
        (None, raft_types::StoredMembership::default())
    );
    drop(store);
    disk.power_cycle(Survival::Nothing);

    for verify_at_start in [VerifyAtStart::All, VerifyAtStart::Recent] {
        let (mut store, _) = open_with(
            &disk,
            StoreOptions {
                verify_at_start,
                ..options()
            },
        )
        .unwrap();
        let (applied, membership) = store.applied_at_open();
        assert_eq!(
            (applied, membership_index(membership)),
            (Some(id(2, 199)), Some(187))
        );
        assert_eq!(
            block_on(store.read_committed()).unwrap(),
            Some(LogId::from(id(2, 199)))
        );
    }

    // The same holds if the membership's own entry is purged.
    let (mut store, _) = open(&disk).unwrap();
    purge(&mut store, id(2, 195)).unwrap();
    drop(store);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(membership_index(store.applied_at_open().1), Some(187));
}

#[test]
fn current_file_and_format_description_follow_rotations() {
    let (_disk, mut store) = filled(options());
    assert_eq!(store.current_file().number.get(), 11);
    let raft_types::EntryPayload::Normal(raft_types::AppEntry::Rotate(wanted)) =
        rotate(id(3, 0)).payload
    else {
        panic!("a rotate entry carries a rotation");
    };
    assert_eq!(store.format_description(), wanted.format_description);
    perform(&mut store, &Step::Truncate(Some(id(3, 298)))).unwrap();
    assert_eq!(store.current_file().number.get(), 10);
    append(&mut store, vec![blank(id(3, 299))]).unwrap();
    assert_eq!(store.current_file().number.get(), 10);
}

/// The sequence number of a test transaction is its index plus one.
#[test]
fn the_sequence_number_is_that_of_the_current_files_last_transaction() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 1).unwrap();
    assert_eq!(store.sequence_number(), 0);
    let appended = [
        (vec![blank(id(1, 0))], 0),
        (
            vec![transaction(id(1, 1), 10), transaction(id(1, 2), 10)],
            3,
        ),
        (vec![membership(id(1, 3), &[1, 2]), blank(id(1, 4))], 3),
        (vec![transaction(id(1, 5), 10), rotate(id(1, 6))], 0),
        (vec![rotate(id(1, 7)), transaction(id(1, 8), 10)], 9),
    ];
    for (entries, expected) in appended {
        append(&mut store, entries).unwrap();
        assert_eq!(store.sequence_number(), expected);
        drop(store);
        store = open(&disk).unwrap().0;
        assert_eq!(store.sequence_number(), expected, "opened again");
    }
    // Truncations within a file, to its rotate entry, and across its end.
    for (keep, expected) in [(7, 0), (6, 0), (5, 6), (4, 3), (1, 2), (0, 0)] {
        truncate(&mut store, Some(id(1, keep))).unwrap();
        assert_eq!(store.sequence_number(), expected, "up to {keep}");
    }
}

#[test]
fn entries_that_do_not_follow_are_refused() {
    let (_disk, mut store) = filled(options());
    for wrong in [id(3, 301), id(3, 299), id(2, 300)] {
        let error = append(&mut store, vec![blank(wrong)]).unwrap_err();
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::InvalidInput,
            "{wrong}: {error}"
        );
    }
    // A caller's mistake is not a failure of the store.
    assert!(store.failure().is_none());
    append(&mut store, vec![blank(id(3, 300))]).unwrap();

    save_committed(&mut store, id(3, 300)).unwrap();
    let error = truncate(&mut store, Some(id(3, 299))).unwrap_err();
    assert!(error.to_string().contains("3.300 is committed"), "{error}");
}

#[test]
fn a_closed_log_takes_nothing() {
    for writer in [WriterMode::Inline, WriterMode::Thread] {
        let (_disk, mut store) = filled(StoreOptions {
            writer,
            ..options()
        });
        store.close().unwrap();
        let error = append(&mut store, vec![blank(id(3, 300))]).unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
        assert!(save_vote(&mut store, 9).is_err());
    }
}

//! Other programs fill the disk that the log writes to. The log neither stops nor acknowledges anything, and continues without help once
//! there is room. See `writer/waiting.rs` for why this is safe.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::workload::{
    Model, append, log_files, open_with, purge, read_all, run, save_committed, save_vote, script,
    summary,
};
use binlog_store::{
    BinlogStore, DiskFileSystem, Durability, LogHandle, MetaStore, SledMeta, StoreError,
    StoreOptions, WriterMode,
};
use futures::FutureExt;
use futures::executor::block_on;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, LogIntake, LogRoom, OpId, TypeConfig};
use testkit::disk::{CallFault, FaultyDisk, Survival};
use testkit::log_entries::{rotate, transaction};
use testkit::real_disks::LoopDisk;
use testkit::wait::eventually;

fn options() -> StoreOptions {
    StoreOptions {
        writer: WriterMode::Thread,
        ..crate::workload::options()
    }
}

fn id(index: u64) -> OpId {
    OpId::new(0, index)
}

type Flushed = std::pin::Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

/// Passes entries to the writer without waiting for it.
fn begin(store: &mut BinlogStore, entries: Vec<Entry>) -> Flushed {
    let (done, flushed) = TypeConfig::oneshot();
    block_on(store.append(entries, IOFlushed::signal(done))).unwrap();
    Box::pin(async move { flushed.await.map_err(std::io::Error::other)? })
}

fn until(what: &str, holds: impl Fn() -> bool) {
    eventually(what, Duration::from_secs(20), holds).unwrap();
}

fn waits(log: &LogHandle) {
    until("the writer waits for room", || {
        assert_eq!(log.failure(), None);
        log.stats().disk_refuses
    });
    let none = LogRoom {
        transactions: 0,
        in_all: 0,
    };
    assert_eq!(log.room(1), none, "proposers and senders wait");
    assert!(log.stats().disk_alarm);
}

/// A log with entries 0.0 to 0.4, on a disk with room for half of another entry.
fn nearly_full(options: StoreOptions) -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options).unwrap();
    for index in 0..5 {
        append(&mut store, vec![transaction(id(index), 1_000)]).unwrap();
    }
    disk.leave_room(500);
    (disk, store)
}

#[test]
fn a_disk_without_room_is_waited_for_wherever_that_is_found() {
    let undisturbed = FaultyDisk::new();
    let run_on = |disk: &FaultyDisk| {
        let (mut store, _) = open_with(disk, options())?;
        let mut model = Model::default();
        let done = run(&mut store, &script(), &mut model);
        let failure = store.close().err();
        Ok::<_, binlog_store::OpenError>((done, failure, model))
    };
    run_on(&undisturbed).unwrap();
    let wanted = log_files(&undisturbed);
    let (mut waited, mut final_ones) = (0, 0);
    for call in 1..=undisturbed.calls() {
        let disk = FaultyDisk::new();
        disk.fail_call(call, CallFault::NoSpace);
        let Ok((done, failure, model)) = run_on(&disk) else {
            continue;
        };
        // Which operation the call performs depends on when the writer does its housekeeping.
        let record = disk.record();
        let Some(hit) = record.get(call as usize - 1).map(|call| call.what.clone()) else {
            continue;
        };
        let awaited = ["write ", "create ", "rename ", "truncate ", "remove "];
        if awaited.iter().any(|what| hit.starts_with(what)) {
            waited += 1;
            assert_eq!((done, failure), (script().len(), None), "{hit}");
            // If a removal failed, the file is left, and the next start removes it.
            if !hit.starts_with("remove ") {
                assert!(log_files(&disk) == wanted, "{hit}: other files");
            }
        } else if hit.starts_with("sync binlog.0") || hit == "meta flush" {
            final_ones += 1;
            assert!(
                matches!(failure, Some(StoreError::DiskFull { .. })),
                "{hit} was tried again: {failure:?}"
            );
        }
        disk.power_cycle(Survival::Nothing);
        let (store, report) = open_with(&disk, options()).unwrap();
        model
            .check(&store)
            .map_err(|what| format!("{hit}: {what} ({report})"))
            .unwrap();
    }
    assert!(waited > 20 && final_ones > 20, "{waited}, {final_ones}");
}

#[test]
fn a_waiting_writer_acknowledges_nothing_and_continues_when_there_is_room() {
    let (disk, mut store) = nearly_full(options());
    let log = store.handle();
    let mut flushed = begin(&mut store, vec![transaction(id(5), 1_000)]);
    waits(&log);
    std::thread::sleep(Duration::from_millis(100));
    assert!((&mut flushed).now_or_never().is_none(), "acknowledged");
    assert_eq!(log.durable(), Some(id(4)));

    // A crash now loses no acknowledged entry, and the next start truncates the half that was written.
    let crashed = disk.fork();
    for survival in [Survival::Nothing, Survival::Everything] {
        let crashed = crashed.fork();
        crashed.power_cycle(survival);
        let (store, report) = open_with(&crashed, crate::workload::options()).unwrap();
        assert_eq!(summary(&read_all(&store).unwrap()), "5 entries 0.0..=0.4");
        assert!(!report.doubted, "{report}");
    }

    disk.set_capacity(None);
    block_on(flushed).unwrap();
    until("room is seen", || !log.stats().disk_refuses);
    assert!(!log.stats().disk_alarm && log.room(1).transactions > 1 << 30);
    append(&mut store, vec![transaction(id(6), 1_000)]).unwrap();
    log.close().unwrap();
    let other = FaultyDisk::new();
    let (mut same, _) = open_with(&other, options()).unwrap();
    for index in 0..7 {
        append(&mut same, vec![transaction(id(index), 1_000)]).unwrap();
    }
    same.close().unwrap();
    assert_eq!(
        log_files(&disk),
        log_files(&other),
        "the same bytes as on other members"
    );
}

#[test]
fn a_purge_frees_room_for_earlier_requests() {
    for durability in [Durability::Fsync, Durability::Os] {
        let disk = FaultyDisk::new();
        let options = || StoreOptions {
            durability,
            ..options()
        };
        let (mut store, _) = open_with(&disk, options()).unwrap();
        for index in (0..10).step_by(2) {
            append(
                &mut store,
                vec![transaction(id(index), 5_000), rotate(id(index + 1))],
            )
            .unwrap();
        }
        append(&mut store, vec![transaction(id(10), 100)]).unwrap();
        save_committed(&mut store, id(10)).unwrap();
        disk.leave_room(0);
        let flushed = begin(&mut store, vec![transaction(id(11), 3_000)]);
        waits(&store.handle());
        // The hard state has room of its own; the new index has none.
        purge(&mut store, id(5)).unwrap();
        block_on(flushed).unwrap();
        let more = vec![
            transaction(id(12), 1_000),
            rotate(id(13)),
            transaction(id(14), 1_000),
        ];
        append(&mut store, more).unwrap();
        assert_eq!(store.bounds(), Some((id(6), id(14))));
        let log = store.handle();
        drop(store);
        log.close().unwrap();
        disk.restart_process();
        let (store, report) = open_with(&disk, options()).unwrap();
        assert_eq!(summary(&read_all(&store).unwrap()), "9 entries 0.6..=0.14");
        assert_eq!(report.index_case, "index agrees", "{report}");
    }
}

#[test]
fn a_full_disk_takes_a_purge_though_it_has_no_room_for_the_new_index() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options()).unwrap();
    for index in (0..6).step_by(2) {
        let entries = vec![transaction(id(index), 5_000), rotate(id(index + 1))];
        append(&mut store, entries).unwrap();
    }
    save_committed(&mut store, id(5)).unwrap();
    disk.leave_room(0);
    purge(&mut store, id(3)).unwrap();
    let names = || log_files(&disk).into_keys().collect::<Vec<_>>();
    let gone = ["binlog.000001", "binlog.000002"];
    until("the files are gone", || {
        names().iter().all(|name| !gone.contains(&name.as_str()))
    });
    // A start at this point accepts the old index.
    let crashed = disk.fork();
    crashed.power_cycle(Survival::Everything);
    crashed.set_capacity(None);
    let (found, _) = open_with(&crashed, crate::workload::options()).unwrap();
    assert_eq!(found.bounds(), Some((id(4), id(5))));
    let index = || log_files(&disk)["binlog.index"].clone();
    until("the index follows", || {
        !String::from_utf8_lossy(&index()).contains("000001")
    });
    assert_eq!(store.failure(), None);
}

#[test]
fn votes_and_floors_wait_for_room_for_the_hard_state() {
    let (disk, store) = nearly_full(options());
    disk.set_capacity(None);
    disk.refuse_hard_state(true);
    let log = store.handle();
    let voting = std::thread::spawn(move || {
        let mut store = store;
        save_vote(&mut store, 7).map(|()| store)
    });
    waits(&log);
    assert!(!voting.is_finished());
    disk.refuse_hard_state(false);
    let store = voting.join().unwrap().unwrap();
    assert_eq!(log.failure(), None);
    drop(store);
    log.close().unwrap();
    disk.power_cycle(Survival::Nothing);
    let (store, _) = open_with(&disk, options()).unwrap();
    let vote = block_on(openraft::RaftLogReader::read_vote(&mut store.reader())).unwrap();
    assert_eq!(vote.map(|vote| vote.leader_id.term), Some(7));
}

/// Without room, records that may be outdated are not written.
#[test]
fn a_log_continues_and_closes_without_room_for_its_hard_state() {
    let (disk, mut store) = nearly_full(options());
    disk.set_capacity(None);
    let log = store.handle();
    disk.refuse_hard_state(true);
    for index in 5..16 {
        append(&mut store, vec![transaction(id(index), 1_000)]).unwrap();
        save_committed(&mut store, id(index)).unwrap();
    }
    drop(store);
    log.close().unwrap();
    disk.refuse_hard_state(false);
    disk.restart_process();
    let (store, _) = open_with(&disk, options()).unwrap();
    assert_eq!(summary(&read_all(&store).unwrap()), "16 entries 0.0..=0.15");
}

#[test]
fn shutdown_does_not_wait_for_room() {
    let (disk, mut store) = nearly_full(options());
    let log = store.handle();
    let flushed = begin(&mut store, vec![transaction(id(5), 1_000)]);
    waits(&log);
    let begun = Instant::now();
    log.wait_for_no_room();
    let error = block_on(flushed).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert!(matches!(log.close(), Err(StoreError::DiskFull { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(store);
    disk.restart_process();
    disk.set_capacity(None);
    let (store, _) = open_with(&disk, options()).unwrap();
    assert_eq!(summary(&read_all(&store).unwrap()), "5 entries 0.0..=0.4");
}

/// Needs root and a loop device, as all tests with real disks do.
#[test]
fn a_real_disk_that_others_fill_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("disk");
    std::fs::create_dir(&folder).unwrap();
    let disk = LoopDisk::mount(&folder, home.path(), 64 << 20).unwrap();
    let open = || {
        let options = StoreOptions {
            writer: WriterMode::Thread,
            disk_reserve_bytes: 0,
            ..StoreOptions::new(&folder, crate::workload::ring())
        };
        let meta = Arc::new(SledMeta::open(&folder.join("meta")).unwrap());
        BinlogStore::open(options, Arc::new(DiskFileSystem), meta)
            .unwrap()
            .0
    };
    let mut store = open();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![transaction(id(0), 1_000)]).unwrap();

    // The hard state has reserved room, so votes can be stored.
    disk.fill().unwrap();
    for term in 2..200 {
        save_vote(&mut store, term).unwrap();
    }
    assert!(!store.stats().disk_refuses);
    disk.make_room().unwrap();

    let log = store.handle();
    let acknowledged = Arc::new(AtomicU64::new(0));
    // The disk is filled between two entries.
    let gate = Arc::new(Barrier::new(2));
    let writing = std::thread::spawn({
        let (acknowledged, gate) = (acknowledged.clone(), gate.clone());
        move || {
            for index in 1..=120 {
                if [21, 51].contains(&index) {
                    gate.wait();
                    gate.wait();
                }
                let entries = match index % 20 {
                    0 => vec![rotate(id(index))],
                    _ => vec![transaction(id(index), 50_000)],
                };
                append(&mut store, entries)?;
                acknowledged.store(index, Ordering::SeqCst);
            }
            save_vote(&mut store, 300)?;
            Ok::<_, std::io::Error>(store)
        }
    });
    for _ in 0..2 {
        gate.wait();
        disk.fill().unwrap();
        gate.wait();
        waits(&log);
        let stands = acknowledged.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(acknowledged.load(Ordering::SeqCst), stands);
        assert!(!writing.is_finished() && log.failure().is_none());
        disk.make_room().unwrap();
    }
    let store = writing.join().unwrap().unwrap();
    assert_eq!(log.failure(), None);
    drop(store);
    log.close().unwrap();
    drop(log);
    let store = open();
    assert_eq!(
        summary(&read_all(&store).unwrap()),
        "121 entries 0.0..=0.120"
    );
}

/// Needs root and a loop device.
#[test]
fn a_hard_state_that_found_no_room_to_be_opened_is_opened_once_there_is_some() {
    let disk = LoopDisk::of_its_own(64 << 20).unwrap();
    let path = disk.folder().join("meta");
    let patience = Duration::from_secs(20);
    let meta = SledMeta::open(&path).unwrap();
    meta.put("vote", b"one").unwrap();
    meta.flush().unwrap();
    drop(meta);
    disk.fill().unwrap();
    for _ in 0..2 {
        let refused = eventually("the lock is free", patience, || {
            let refused = SledMeta::open(&path).err().map(|error| error.kind());
            Some(refused).filter(|kind| *kind != Some(std::io::ErrorKind::ResourceBusy))
        });
        assert_eq!(refused.unwrap(), Some(std::io::ErrorKind::StorageFull));
    }
    disk.make_room().unwrap();
    let open = || SledMeta::open(&path);
    let meta = eventually("the lock is free", patience, open).unwrap();
    assert_eq!(meta.get("vote").unwrap(), Some(b"one".to_vec()));
}

/// Needs root and a loop device.
#[test]
fn a_file_system_without_free_inodes_is_distinguished_from_one_without_space() {
    let disk = LoopDisk::of_its_own(64 << 20).unwrap();
    let options = StoreOptions {
        writer: WriterMode::Thread,
        disk_reserve_bytes: 0,
        ..StoreOptions::new(disk.folder(), crate::workload::ring())
    };
    let meta = Arc::new(SledMeta::open(&disk.folder().join("meta")).unwrap());
    let (mut store, _) = BinlogStore::open(options, Arc::new(DiskFileSystem), meta).unwrap();
    append(&mut store, vec![transaction(id(0), 1_000)]).unwrap();
    let others = disk.folder().join("others");
    std::fs::create_dir(&others).unwrap();
    let made = |number: &u32| std::fs::File::create(others.join(number.to_string())).is_ok();
    let count = (0..).take_while(made).count();
    assert!(count > 1_000, "{count}");

    let log = store.handle();
    let writing =
        std::thread::spawn(move || append(&mut store, vec![rotate(id(1))]).map(|()| store));
    waits(&log);
    let stats = log.stats();
    assert!(stats.no_inodes && stats.free_bytes > 1 << 20, "{stats:?}");
    std::fs::remove_dir_all(others).unwrap();
    writing.join().unwrap().unwrap();
    assert!(!log.stats().no_inodes);
}

//! A full or failing disk: acknowledged entries stay, no other entries are acknowledged, and the member's next start continues from there.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::io;
use std::time::Duration;

use crate::workload;
use crate::workload::exploration::{Disturbance, Exploration};
use crate::workload::{
    append, open, open_with, options, purge, read_all, save_committed, save_vote, script, summary,
};
use binlog_store::{FileNumber, LogPlace, StoreError, StoreOptions};
use futures::executor::block_on;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use raft_types::{FileStarts, LogIntake, LogRoom, OpId};
use testkit::disk::{CallFault, FaultyDisk, Survival};
use testkit::log_entries::{blank, membership, rotate, transaction};

fn exploration(fault: CallFault) -> Exploration {
    Exploration {
        steps: script(),
        options: options(),
        disturbance: Disturbance::Fault(fault),
        lying_disk: false,
        seeds: 2,
        nested_every: 0,
    }
}

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

/// A log with entries 0.0 to 0.4 on its own disk.
fn begun(options: StoreOptions) -> (FaultyDisk, binlog_store::BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options).unwrap();
    for index in 0..5 {
        append(&mut store, vec![transaction(id(0, index), 1_000)]).unwrap();
    }
    (disk, store)
}

#[test]
fn nothing_is_lost_when_any_call_finds_the_disk_full() {
    let explored = exploration(CallFault::NoSpace).go().unwrap();
    println!("{explored:?}");
}

#[test]
fn nothing_is_lost_when_any_call_fails() {
    let explored = exploration(CallFault::Io).go().unwrap();
    println!("{explored:?}");
}

#[test]
fn an_operation_that_hangs_is_visible_while_it_lasts() {
    const SLOW: Duration = Duration::from_millis(600);
    let (disk, mut store) = begun(options());
    let log = store.handle();
    assert_eq!(log.stats().busy_for, Duration::ZERO);
    disk.fail_call(disk.calls() + 2, CallFault::Slow(SLOW));
    let writing = std::thread::spawn(move || {
        append(&mut store, vec![transaction(id(0, 5), 1_000)]).unwrap();
        store
    });
    let mut longest = Duration::ZERO;
    while !writing.is_finished() {
        longest = longest.max(log.stats().busy_for);
        std::thread::sleep(Duration::from_millis(1));
    }
    let store = writing.join().unwrap();
    assert!(longest > SLOW / 2, "{longest:?}");
    assert_eq!(log.stats().busy_for, Duration::ZERO);
    drop(store);
}

#[test]
fn a_full_disk_stops_the_member_with_a_message_and_loses_nothing() {
    let (disk, mut store) = begun(options());
    let used: usize = workload::log_files(&disk).values().map(Vec::len).sum();
    disk.set_capacity(Some(used as u64 + 500));
    let error = append(&mut store, vec![transaction(id(0, 5), 1_000)]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(
        error.to_string().contains("Free space")
            && error.to_string().contains("nothing acknowledged is lost")
    );
    assert!(matches!(store.failure(), Some(StoreError::DiskFull { .. })));
    // From here on no write succeeds.
    assert!(append(&mut store, vec![transaction(id(0, 5), 10)]).is_err());
    assert!(save_vote(&mut store, 7).is_err());
    drop(store);

    disk.restart_process();
    disk.set_capacity(None);
    let (store, report) = open(&disk).unwrap();
    assert_eq!(summary(&read_all(&store).unwrap()), "5 entries 0.0..=0.4");
    assert!(
        report.cut.is_some(),
        "the half that was written is cut off: {report}"
    );
}

#[test]
fn a_failed_sync_is_never_retried_and_dropped_bytes_are_rewritten_at_the_next_start() {
    let (disk, mut store) = begun(options());
    // The write succeeds and its sync fails: the operating system drops the bytes, but they are still readable.
    disk.fail_call(disk.calls() + 2, CallFault::Io);
    append(&mut store, vec![transaction(id(0, 5), 1_000)]).unwrap_err();
    let calls = disk.calls();
    append(&mut store, vec![transaction(id(0, 6), 1_000)]).unwrap_err();
    assert_eq!(
        disk.calls(),
        calls,
        "after a failed sync the disk is left alone"
    );
    assert!(matches!(store.failure(), Some(StoreError::Io { .. })));
    drop(store);

    disk.restart_process();
    let (store, _) = open(&disk).unwrap();
    let entries = read_all(&store).unwrap();
    assert_eq!(
        summary(&entries),
        "6 entries 0.0..=0.5",
        "the engine counts what it finds at the start"
    );
    drop(store);
    disk.power_cycle(Survival::Nothing);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(
        read_all(&store).unwrap(),
        entries,
        "so it must be durable from then on"
    );
}

/// Appends transactions until there is no room for another; returns the next index and the remaining room.
fn filled(store: &mut binlog_store::BinlogStore, from: u64, bytes: usize) -> (u64, LogRoom) {
    for index in from.. {
        let room = store.room(bytes as u64 + 200);
        if room.transactions < bytes as u64 + 200 {
            return (index, room);
        }
        append(store, vec![transaction(id(0, index), bytes)]).unwrap();
    }
    unreachable!("a disk without an end")
}

#[test]
fn the_disk_budget_raises_its_alarm_before_it_is_used_up() {
    let (_disk, mut store) = begun(StoreOptions {
        disk_limit_bytes: Some(12_000),
        ..options()
    });
    assert!(!store.stats().disk_alarm);
    let (_, room) = filled(&mut store, 5, 500);
    assert!(
        store.stats().disk_alarm && room.transactions > 0,
        "{room:?}"
    );
    assert!(store.stats().log_bytes <= 12_000);
}

/// Entries cannot be skipped: a log that refused one would stop its member. If all disks of a ring filled up together, no member would be
/// left to elect.
#[test]
fn a_log_beyond_its_budget_accepts_entries_of_the_engine() {
    let (disk, mut store) = begun(StoreOptions {
        disk_limit_bytes: Some(12_000),
        disk_reserve_bytes: 8_000,
        ..options()
    });
    let (index, room) = filled(&mut store, 5, 500);
    assert_eq!(room.in_all, room.transactions + 8_000 - 2_000);
    save_vote(&mut store, 7).unwrap();
    let at = |back: u64| id(7, index + back);
    append(
        &mut store,
        vec![
            blank(at(0)),
            membership(at(1), &[1, 2, 3]),
            transaction(at(2), 700),
        ],
    )
    .unwrap();
    append(&mut store, vec![rotate(at(3)), blank(at(4))]).unwrap();
    let room = store.room(1);
    assert_eq!(room.transactions, 0);
    assert!(room.in_all > 0 && room.in_all < 6_000, "{room:?}");
    assert_eq!(store.failure(), None);

    // A purge frees room without a restart.
    save_committed(&mut store, at(4)).unwrap();
    purge(&mut store, at(3)).unwrap();
    assert!(store.room(1).transactions > 10_000, "{:?}", store.room(1));
    append(&mut store, vec![transaction(at(5), 700)]).unwrap();
    drop(store);
    disk.restart_process();
    let (store, _) = open(&disk).unwrap();
    assert_eq!(store.durable(), Some(at(5)));
}

#[test]
fn the_reserve_stays_free_and_room_that_others_make_is_seen() {
    let disk = FaultyDisk::new();
    disk.set_capacity(Some(60_000));
    let options = StoreOptions {
        disk_reserve_bytes: 40_000,
        ..options()
    };
    let (mut store, _) = open_with(&disk, options).unwrap();
    filled(&mut store, 0, 700);
    let used: usize = workload::log_files(&disk).values().map(Vec::len).sum();
    assert!((15_000..=20_000).contains(&used), "{used}");
    disk.set_capacity(Some(90_000));
    assert!(
        store.room(10_000).transactions > 29_000,
        "without a restart"
    );
}

#[test]
fn a_disk_failure_during_rotation_keeps_acknowledged_entries() {
    let (disk, mut store) = begun(options());
    // The write and sync of the first file succeed, then the creation of the next file fails.
    disk.fail_call(disk.calls() + 3, CallFault::Io);
    let entries = vec![transaction(id(0, 5), 10), rotate(id(0, 6))];
    append(&mut store, entries).unwrap_err();
    drop(store);
    disk.restart_process();
    let (store, report) = open(&disk).unwrap();
    assert_eq!(report.cases, ["rotated, next file missing"]);
    assert_eq!(summary(&read_all(&store).unwrap()), "7 entries 0.0..=0.6");
}

/// Tests the reads that the engine makes for another member. Other readers receive the error.
#[test]
fn a_file_that_cannot_be_read_is_an_alarm_and_no_end() {
    let (disk, mut store) = begun(StoreOptions {
        cache_bytes: 10,
        ..options()
    });
    append(
        &mut store,
        vec![rotate(id(0, 5)), transaction(id(0, 6), 10)],
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut engines = runtime.block_on(store.get_log_reader());
    for call in 1..=100 {
        disk.fail_call(disk.calls() + call, CallFault::Io);
    }
    let read = runtime.block_on(engines.limited_get_log_entries(1, 4));
    assert_eq!(read.unwrap(), []);
    let faults = store.read_faults();
    let told: Vec<_> = faults
        .iter()
        .map(|fault| (fault.file.name(), fault.index))
        .collect();
    assert_eq!(told, [("binlog.000001".to_owned(), Some(1))]);
    assert!(faults[0].why.contains("input/output error"), "{faults:?}");
    assert_eq!((store.failure(), store.stats().read_failures), (None, 1));
    let others = runtime.block_on(store.reader().limited_get_log_entries(1, 4));
    let told = others.unwrap_err().to_string();
    assert!(told.contains("input/output error"), "{told}");
    assert!(!told.contains("stops writing"), "{told}");

    disk.forget_faults();
    append(&mut store, vec![transaction(id(0, 7), 10)]).unwrap();
    let read = runtime.block_on(engines.limited_get_log_entries(1, 4));
    assert_eq!(summary(&read.unwrap()), "3 entries 0.1..=0.3");
    assert_eq!(store.read_faults(), []);
}

/// A member that needs this file as its first one waits, and the status page shows the disk error.
#[test]
fn an_unreadable_start_of_a_file_is_reported() {
    let (disk, mut store) = begun(options());
    append(
        &mut store,
        vec![rotate(id(0, 5)), transaction(id(0, 6), 10)],
    )
    .unwrap();
    for call in 1..=100 {
        disk.fail_call(disk.calls() + call, CallFault::Io);
    }
    let start = || block_on(store.handle().first_start(Some(id(0, 5))));
    assert!(start().is_err());
    let faults = store.read_faults();
    assert_eq!((faults.len(), faults[0].index), (1, Some(6)), "{faults:?}");
    assert!(faults[0].why.contains("reading the begin of"), "{faults:?}");
    assert_eq!(store.failure(), None);
    disk.forget_faults();
    assert_eq!(start().unwrap().unwrap().before, id(0, 5));
    assert_eq!(store.read_faults(), []);
}

/// A read of the same bytes clears the fault, even if the file was never closed.
#[test]
fn bytes_of_a_file_that_cannot_be_read_are_an_alarm_until_they_can_be() {
    let (disk, store) = begun(options());
    let file = store.current_file().number;
    let place = |offset| LogPlace { file, offset };
    disk.fail_call(disk.calls() + 1, CallFault::Io);
    let refused = block_on(store.read_file(place(4), 60)).unwrap_err();
    let told = "reading binlog.000001 failed: input/output error";
    assert!(refused.to_string().starts_with(told), "{refused}");
    assert!(!refused.to_string().contains("stops"), "{refused}");
    let faults = store.read_faults();
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].file, faults[0].index), (file, None));
    assert_eq!(faults[0].why, refused.to_string());
    assert_eq!((store.failure(), store.stats().read_failures), (None, 1));

    for (offset, bytes, left) in [(64, 60, 1), (0, 20, 1), (20, 100, 0)] {
        block_on(store.read_file(place(offset), bytes)).unwrap();
        assert_eq!(store.read_faults().len(), left, "{offset}");
    }
    // A missing file that was purged is no fault.
    let gone = LogPlace {
        file: FileNumber::new(7).unwrap(),
        offset: 4,
    };
    let refused = block_on(store.read_file(gone, 4)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
    store.found_damaged(gone.file, "a bit has turned");
    assert_eq!(store.read_faults(), []);
}

#[test]
fn a_slow_disk_only_takes_longer() {
    let (disk, mut store) = begun(options());
    disk.fail_call(
        disk.calls() + 2,
        CallFault::Slow(std::time::Duration::from_millis(30)),
    );
    let begun = std::time::Instant::now();
    append(&mut store, vec![transaction(id(0, 5), 10)]).unwrap();
    assert!(begun.elapsed() >= std::time::Duration::from_millis(30));
}

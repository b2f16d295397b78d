//! A log that is written without syncs, and its next start. If the machine has stopped in between, acknowledged entries may be missing,
//! whatever the log's end shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use crate::workload::{
    append, begin_at, open, open_with, options, read_all, save_vote, start_after,
};
use binlog_store::{BinlogStore, Durability, RecoveryReport, StoreOptions};
use raft_types::OpId;
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{membership, rotate, transaction};

const ENTRIES: u64 = 8;

fn id(index: u64) -> OpId {
    OpId::new(1, index)
}

/// Options for a log without syncs, with the machine's boot id.
fn unsynced(boot: Option<&str>) -> StoreOptions {
    StoreOptions {
        durability: Durability::Os,
        boot_id: boot.map(str::to_owned),
        ..options()
    }
}

/// Options for a log with syncs, with the machine's boot id.
fn synced(boot: &str) -> StoreOptions {
    StoreOptions {
        boot_id: Some(boot.to_owned()),
        ..options()
    }
}

/// A log with acknowledged entries of which only the first, a membership, was synced.
fn written(boot: Option<&str>) -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, unsynced(boot)).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![membership(id(0), &[1, 2, 3])]).unwrap();
    for index in 1..ENTRIES {
        append(&mut store, vec![transaction(id(index), 100)]).unwrap();
    }
    (disk, store)
}

/// Opens the log; returns its number of entries.
fn entries(disk: &FaultyDisk, options: StoreOptions) -> (u64, RecoveryReport) {
    let (store, report) = open_with(disk, options).unwrap();
    let entries = read_all(&store).unwrap().len() as u64;
    // The process is killed.
    std::mem::forget(store);
    (entries, report)
}

/// The doubt depends on how the log was written, not on the options of the next start.
#[test]
fn a_tail_that_is_lost_at_the_end_of_an_entry_leaves_a_doubt() {
    for next in [unsynced(Some("b")), synced("b")] {
        let (disk, store) = written(Some("a"));
        std::mem::forget(store);
        let (mut clean, mut torn) = (0, 0);
        let seeded = (0..60).map(Survival::Seeded);
        for survival in [Survival::Nothing, Survival::Everything]
            .into_iter()
            .chain(seeded)
        {
            let disk = disk.fork();
            disk.power_cycle(survival);
            let (found, report) = entries(&disk, next.clone());
            assert!(
                report.doubted && report.may_lack_unsynced,
                "{survival:?}: {report}"
            );
            assert!(
                report.cut.is_none_or(|cut| cut.doubted),
                "{survival:?}: {report}"
            );
            if found < ENTRIES {
                match report.cut {
                    None => clean += 1,
                    Some(_) => torn += 1,
                }
            }
            // The doubt stays until it is resolved. A start that follows a run with syncs does not find it again.
            disk.power_cycle(Survival::Nothing);
            let (again, report) = entries(&disk, synced("c"));
            assert!(again == found && report.doubted, "{survival:?}: {report}");
            disk.power_cycle(Survival::Nothing);
            let (_, report) = entries(&disk, synced("d"));
            assert!(report.doubted && !report.may_lack_unsynced, "{report}");
        }
        assert!(
            clean > 5 && torn > 5,
            "{clean} clean ends, {torn} torn ones"
        );
    }
}

#[test]
fn data_in_the_operating_system_is_not_in_doubt_while_it_runs() {
    for next in [unsynced(Some("a")), synced("a")] {
        let (disk, store) = written(Some("a"));
        std::mem::forget(store);
        disk.restart_process();
        let (found, report) = entries(&disk, next);
        assert_eq!(found, ENTRIES);
        assert!(!report.doubted, "{report}");
        // The start has synced the entries that it found.
        disk.power_cycle(Survival::Nothing);
        assert_eq!(entries(&disk, synced("b")).0, ENTRIES);
    }
}

#[test]
fn an_unknown_boot_counts_as_another_boot() {
    for (before, now) in [(None, None), (None, Some("a")), (Some("a"), None)] {
        let (disk, store) = written(before);
        std::mem::forget(store);
        disk.restart_process();
        let (_, report) = entries(&disk, unsynced(now));
        assert!(report.doubted, "{before:?}, then {now:?}: {report}");
    }
}

#[test]
fn a_log_that_was_closed_in_order_is_all_there() {
    for threaded in [false, true] {
        let (disk, mut store) = written(Some("a"));
        if threaded {
            drop(store);
            disk.restart_process();
            let threaded = StoreOptions {
                writer: binlog_store::WriterMode::Thread,
                ..unsynced(Some("a"))
            };
            store = open_with(&disk, threaded).unwrap().0;
            append(&mut store, vec![transaction(id(ENTRIES), 100)]).unwrap();
        }
        store.close().unwrap();
        drop(store);
        disk.power_cycle(Survival::Nothing);
        let (found, report) = entries(&disk, unsynced(Some("b")));
        assert_eq!(found, ENTRIES + u64::from(threaded));
        assert!(!report.doubted, "{report}");
    }
}

#[test]
fn a_log_written_with_syncing_has_no_unsynced_record() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, synced("a")).unwrap();
    append(&mut store, vec![membership(OpId::new(0, 0), &[1])]).unwrap();
    disk.power_cycle(Survival::Nothing);
    let (_, report) = entries(&disk, unsynced(Some("b")));
    assert!(!report.doubted, "{report}");
}

#[test]
fn the_doubt_survives_every_crash_point_of_the_next_start() {
    let (disk, store) = written(Some("a"));
    std::mem::forget(store);
    disk.power_cycle(Survival::Nothing);
    for next in [unsynced(Some("b")), synced("b")] {
        for cut in 0.. {
            let disk = disk.fork();
            disk.cut_power_after(disk.calls() + cut);
            let opened = open_with(&disk, next.clone()).map(std::mem::forget).is_ok();
            let done = !disk.is_off();
            for survival in [
                Survival::Nothing,
                Survival::Everything,
                Survival::Seeded(cut),
            ] {
                let disk = disk.fork();
                disk.power_cycle(survival);
                let (_, report) = entries(&disk, synced("c"));
                assert!(
                    report.doubted,
                    "cut after call {cut}, {survival:?}: {report}"
                );
            }
            if done {
                assert!(opened);
                break;
            }
        }
    }
}

#[test]
fn a_log_that_was_only_being_made_is_not_in_doubt() {
    for cut in 0.. {
        let disk = FaultyDisk::new();
        disk.cut_power_after(cut);
        let opened = open_with(&disk, unsynced(Some("a")));
        let done = opened.map(std::mem::forget).is_ok();
        for survival in [Survival::Nothing, Survival::Everything] {
            let disk = disk.fork();
            disk.power_cycle(survival);
            let (_, report) = entries(&disk, unsynced(Some("b")));
            assert!(!report.doubted, "cut after call {cut}: {report}");
        }
        if done {
            break;
        }
    }
}

/// The restart replaces everything that was written before, so missing parts of it do not matter.
#[test]
fn a_log_that_starts_over_is_not_in_doubt() {
    let peer = FaultyDisk::new();
    let (mut ahead, _) = open(&peer).unwrap();
    save_vote(&mut ahead, 1).unwrap();
    let far = [
        membership(id(0), &[1, 2]),
        transaction(id(1), 10),
        rotate(id(2)),
        transaction(id(3), 10),
    ];
    append(&mut ahead, far.to_vec()).unwrap();
    crate::workload::save_committed(&mut ahead, id(3)).unwrap();
    let start = start_after(&ahead, id(1));
    assert_eq!(start.before, id(2));

    let mut interrupted = 0;
    for cut in 0.. {
        let disk = FaultyDisk::new();
        let (mut store, _) = open_with(&disk, unsynced(Some("a"))).unwrap();
        save_vote(&mut store, 1).unwrap();
        append(&mut store, vec![membership(id(0), &[1, 2])]).unwrap();
        append(&mut store, vec![transaction(id(1), 10)]).unwrap();
        disk.cut_power_after(disk.calls() + cut);
        begin_at(&mut store, &start).ok();
        let done = !disk.is_off();
        std::mem::forget(store);
        disk.power_cycle(Survival::Nothing);
        let (_, report) = entries(&disk, unsynced(Some("b")));
        if report.cases[0] == "starting over interrupted" {
            assert!(!report.doubted, "cut after call {cut}: {report}");
            interrupted += 1;
        } else {
            assert!(report.doubted, "cut after call {cut}: {report}");
        }
        if done {
            break;
        }
    }
    assert!(interrupted > 5, "{interrupted}");
}

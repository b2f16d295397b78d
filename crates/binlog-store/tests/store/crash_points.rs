//! The power is cut after every call to the disk and the hard state, each time with several outcomes for unsynced data. Then the log is
//! opened again, and must have everything that was acknowledged. The member continues, and its files must be those of a member that never
//! crashed.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use crate::workload::exploration::{Disturbance, Exploration};
use crate::workload::{
    Model, Step, append, open_with, options, purge, read_all, run, save_committed, save_vote,
    script,
};
use binlog_store::{Durability, StoreOptions, VerifyAtStart};
use raft_types::{Entry, OpId};
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{gtid, transaction};

fn exploration(options: StoreOptions) -> Exploration {
    let disturbance = Disturbance::PowerCut;
    Exploration {
        steps: script(),
        options,
        disturbance,
        lying_disk: false,
        seeds: 10,
        nested_every: 0,
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_crash_point() {
    let explored = exploration(options()).go().unwrap();
    println!("{explored:?}");
    assert!(
        explored.calls > 200,
        "the script has only {} crash points",
        explored.calls
    );
}

#[test]
fn nothing_is_lost_either_when_only_recent_files_are_verified() {
    let options = StoreOptions {
        verify_at_start: VerifyAtStart::Recent,
        cache_bytes: 1,
        ..options()
    };
    let explored = Exploration {
        seeds: 4,
        ..exploration(options)
    }
    .go()
    .unwrap();
    println!("{explored:?}");
}

#[test]
fn nothing_is_lost_by_a_second_crash_during_the_start() {
    let explored = Exploration {
        seeds: 1,
        nested_every: 5,
        ..exploration(options())
    }
    .go()
    .unwrap();
    println!("{explored:?}");
    assert!(
        explored.nested > 1_000,
        "only {} cuts during a start",
        explored.nested
    );
}

/// Shows that the test above can fail: it detects a disk that reports syncs that it has not made.
#[test]
fn a_disk_that_lies_about_syncing_is_found_out() {
    let lost = Exploration {
        lying_disk: true,
        ..exploration(options())
    }
    .go()
    .unwrap_err();
    // Either the model detects it, or a start that misses a membership below the durable mark.
    let found = ["acknowledged were", "was durable on this member"];
    assert!(found.iter().any(|what| lost.contains(what)), "{lost}");
    println!("{lost}");
}

/// Shows that the test above can fail: it detects a store that does not sync.
#[test]
fn a_store_that_does_not_sync_is_found_out() {
    let unsynced = StoreOptions {
        durability: Durability::Os,
        ..options()
    };
    let lost = exploration(unsynced).go().unwrap_err();
    assert!(lost.contains("acknowledged were"), "{lost}");
    println!("{lost}");
}

/// Without syncs, a power cut removes a tail of the log, but never the end of a file that has a successor. So the rest of the log has no
/// gap. It also has every entry that the hard state names, so the log opens.
#[test]
fn without_syncing_only_a_tail_is_lost() {
    let steps = script();
    let asked_for = |entry: &Entry| {
        steps
            .iter()
            .any(|step| matches!(step, Step::Append(entries) if entries.contains(entry)))
    };
    let options = StoreOptions {
        durability: Durability::Os,
        ..options()
    };
    let (mut outcomes, mut cut) = (0, 0);
    loop {
        let disk = FaultyDisk::new();
        let mut model = Model::default();
        let (mut store, _) = open_with(&disk, options.clone()).unwrap();
        disk.cut_power_after(disk.calls() + cut);
        run(&mut store, &steps, &mut model);
        drop(store);
        if !disk.is_off() {
            break;
        }
        for seed in 0..10 {
            let disk = disk.fork();
            disk.power_cycle(Survival::Seeded(cut * 10 + seed));
            let (store, _) = open_with(&disk, options.clone())
                .unwrap_or_else(|error| panic!("power cut after call {cut}, seed {seed}: {error}"));
            let found = read_all(&store).unwrap();
            assert!(found.iter().all(asked_for));
            assert!(
                model.purged.difference(&store.gtid_set()).is_empty(),
                "power cut after call {cut}, seed {seed}: GTIDs of purged entries are gone"
            );
            assert!(
                found
                    .windows(2)
                    .all(|pair| pair[0].log_id.index + 1 == pair[1].log_id.index)
            );
            outcomes += 1;
        }
        cut += 1;
    }
    println!("{outcomes} outcomes");
    assert!(outcomes > 500);
}

/// The floor is stored durably, but the entries up to it were written without syncs. The test covers floors within the log and beyond its
/// end.
#[test]
fn purged_unsynced_entries_keep_their_gtids() {
    let options = StoreOptions {
        durability: Durability::Os,
        ..options()
    };
    let id = |index| OpId::new(1, index);
    for upto in [4, 9, 30] {
        for cut in 0.. {
            let disk = FaultyDisk::new();
            let (mut store, _) = open_with(&disk, options.clone()).unwrap();
            save_vote(&mut store, 1).unwrap();
            let entries = (0..10).map(|index| transaction(id(index), 50));
            append(&mut store, entries.collect()).unwrap();
            save_committed(&mut store, id(9)).unwrap();
            disk.cut_power_after(disk.calls() + cut);
            let purged = purge(&mut store, id(upto)).is_ok();
            let done = !disk.is_off();
            drop(store);
            for survival in [Survival::Nothing, Survival::Everything] {
                let disk = disk.fork();
                disk.power_cycle(survival);
                let (store, report) = open_with(&disk, options.clone()).unwrap();
                let case =
                    format!("purge up to {upto}, cut after call {cut}, {survival:?}: {report}");
                assert!(!purged || report.floor == Some(id(upto)), "{case}");
                let known = report.floor.map_or(0, |floor| floor.index.min(9) + 1);
                let gtids = store.gtid_set();
                assert!(
                    (0..known).all(|index| gtids.contains(&gtid(index))),
                    "{case}: {gtids}"
                );
            }
            if done {
                break;
            }
        }
    }
}

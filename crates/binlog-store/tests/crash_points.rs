//! Power is cut after every call to the disk and the hard state, with several outcomes for what was
//! not synced each time; the log is opened again, and what was acknowledged must be there. Then the
//! member goes on, and its files must be those of a member that never crashed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod workload;

use binlog_store::{Durability, StoreOptions, VerifyAtStart};
use workload::exploration::{Disturbance, Exploration};
use workload::{options, script};

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
fn nothing_acknowledged_is_lost_wherever_the_power_goes() {
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
fn nothing_is_lost_when_the_power_goes_again_during_the_start() {
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

/// The test above can fail: a disk that only says that it has synced is found out.
#[test]
fn a_disk_that_lies_about_syncing_is_found_out() {
    let lost = Exploration {
        lying_disk: true,
        ..exploration(options())
    }
    .go()
    .unwrap_err();
    assert!(lost.contains("acknowledged were"), "{lost}");
    println!("{lost}");
}

/// And so is a store that does not sync.
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

//! The committed op id on the disk is a hint that is stored at intervals; the purge floor is stored immediately. After a crash between the
//! two, the member continues from the floor and not from the older hint, because the entries between them are gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use crate::workload::{append, open, purge, save_committed, save_vote};
use raft_types::OpId;
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{membership, transaction};

#[test]
fn a_member_continues_from_its_purge_floor() {
    let id = |index| OpId::new(1, index);
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![membership(id(0), &[1, 2, 3])]).unwrap();
    for index in 1..20 {
        append(&mut store, vec![transaction(id(index), 100)]).unwrap();
    }
    // The eighth of these op ids is stored, the later ones are not.
    for committed in 3..14 {
        save_committed(&mut store, id(committed)).unwrap();
    }
    purge(&mut store, id(12)).unwrap();
    disk.power_cycle(Survival::Nothing);

    let (store, _) = open(&disk).unwrap();
    let (applied, membership) = store.applied_at_open();
    assert_eq!(applied, Some(id(12)));
    assert_eq!(membership.log_id().map(OpId::from), Some(id(0)));
}

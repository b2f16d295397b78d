//! A log is truncated below its commit index, as after the repair of a lost quorum. The truncated bytes are saved, the vote stays, and the
//! truncation can be repeated after a power cut at any call.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::path::Path;

use crate::workload::exploration::{Disturbance, Exploration};
use crate::workload::{
    DATA_DIR, Step, append, cut_back, log_files, open, options, purge, read_all, save_committed,
    save_vote, truncate, vote,
};
use binlog_format::gtid::GtidSet;
use binlog_store::{BinlogStore, CutBackError, CutTail, StoreError};
use futures::executor::block_on;
use openraft::RaftLogReader;
use raft_types::{Entry, OpId};
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{blank, gtid, membership, rotate, transaction};

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

/// Entries 0.0 to 1.11 in three files, which begin after no entry, 1.4 and 1.8.
fn entries() -> Vec<Entry> {
    vec![
        membership(id(0, 0), &[1, 2, 3]),
        blank(id(1, 1)),
        transaction(id(1, 2), 100),
        transaction(id(1, 3), 3_000),
        rotate(id(1, 4)),
        transaction(id(1, 5), 50),
        membership(id(1, 6), &[1, 2]),
        transaction(id(1, 7), 60),
        rotate(id(1, 8)),
        transaction(id(1, 9), 70),
        transaction(id(1, 10), 80),
        blank(id(1, 11)),
    ]
}

/// A stopped member whose hard state records all entries except the last as committed.
fn stopped() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 2).unwrap();
    append(&mut store, entries()).unwrap();
    save_committed(&mut store, id(1, 10)).unwrap();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    disk
}

fn kept(disk: &FaultyDisk) -> Vec<CutTail> {
    CutTail::list(&*disk.file_system(), Path::new(DATA_DIR)).unwrap()
}

fn committed(store: &BinlogStore) -> Option<OpId> {
    store.applied_at_open().0
}

#[test]
fn the_truncated_tail_is_saved() {
    let disk = stopped();
    let before = log_files(&disk);
    let (mut store, _) = open(&disk).unwrap();
    assert_eq!(committed(&store), Some(id(1, 10)));
    let refused = truncate(&mut open(&stopped()).unwrap().0, Some(id(1, 5))).unwrap_err();
    assert!(
        refused.to_string().contains("1.10 is committed"),
        "{refused}"
    );

    let tail = cut_back(&mut store, Some(id(1, 5))).unwrap().unwrap();
    assert_eq!((tail.first, tail.last), (id(1, 6), id(1, 11)));
    assert_eq!(
        (tail.kept, tail.committed),
        (Some(id(1, 5)), Some(id(1, 10)))
    );
    assert_eq!(tail.reason, "the quorum was repaired");
    let gone: GtidSet = [7, 9, 10].into_iter().map(gtid).collect();
    assert_eq!(tail.gtids.parse(), Ok(gone));
    assert_eq!(kept(&disk), vec![tail.clone()]);

    // The saved bytes, at their original offsets, restore the original files.
    let after = log_files(&disk);
    assert_eq!(tail.parts.len(), 2);
    for part in &tail.parts {
        let path = Path::new(DATA_DIR).join("trimmed").join(&part.kept_as);
        let bytes = disk.contents(&path).unwrap();
        assert_eq!(bytes.len() as u64, part.bytes);
        let name = part.file.name();
        let stays = after.get(&name).cloned().unwrap_or_default();
        assert_eq!(stays.len() as u64, part.offset);
        assert!([stays, bytes].concat() == before[&name], "{name}");
    }

    // Except for the vote, the log is as if it had never had the truncated entries.
    let (expected, _) = {
        let disk = FaultyDisk::new();
        let (mut store, _) = open(&disk).unwrap();
        save_vote(&mut store, 2).unwrap();
        append(&mut store, entries().into_iter().take(6).collect()).unwrap();
        (log_files(&disk), store)
    };
    assert!(after == expected);
    let membership = store.applied_at_open().1;
    for store in [store, open(&disk).unwrap().0] {
        assert_eq!(
            store.applied_at_open(),
            (Some(id(1, 5)), membership.clone())
        );
        assert_eq!(membership.log_id().map(|at| at.index), Some(0));
        assert_eq!(read_all(&store).unwrap(), entries()[..6]);
        assert_eq!(block_on(store.reader().read_vote()).unwrap(), Some(vote(2)));
    }
}

#[test]
fn a_truncated_log_continues_with_other_entries() {
    let disk = stopped();
    let (mut store, _) = open(&disk).unwrap();
    cut_back(&mut store, Some(id(1, 7))).unwrap();
    save_vote(&mut store, 1_003).unwrap();
    append(
        &mut store,
        vec![blank(id(1_003, 8)), transaction(id(1_003, 9), 40)],
    )
    .unwrap();
    save_committed(&mut store, id(1_003, 9)).unwrap();
    drop(store);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(committed(&store), Some(id(1_003, 9)));
    assert_eq!(store.bounds(), Some((id(0, 0), id(1_003, 9))));
}

#[test]
fn cutting_twice_changes_nothing_more() {
    let disk = stopped();
    let (mut store, _) = open(&disk).unwrap();
    cut_back(&mut store, Some(id(1, 8))).unwrap().unwrap();
    let files = log_files(&disk);
    assert_eq!(cut_back(&mut store, Some(id(1, 8))).unwrap(), None);
    assert!(log_files(&disk) == files);
    assert_eq!(kept(&disk).len(), 1);
    // The whole log can be truncated, too.
    cut_back(&mut store, None).unwrap().unwrap();
    assert_eq!(store.bounds(), None);
    assert_eq!(committed(&store), None);
    drop(store);
    let (store, _) = open(&disk).unwrap();
    assert_eq!((store.bounds(), committed(&store)), (None, None));
    assert_eq!(kept(&disk).len(), 2);
}

#[test]
fn truncation_to_a_missing_entry_is_refused_without_changes() {
    let disk = stopped();
    let (mut store, _) = open(&disk).unwrap();
    purge(&mut store, id(1, 4)).unwrap();
    let files = log_files(&disk);
    for (to, found) in [
        (Some(id(2, 7)), Some(id(1, 7))),
        (Some(id(1, 12)), None),
        (Some(id(1, 3)), Some(id(1, 4))),
        (None, Some(id(1, 4))),
    ] {
        let refused = block_on(store.cut_back(to, "a mistake", 0)).unwrap_err();
        assert_eq!(refused, CutBackError::NotThere { to, found });
        assert!(
            refused.to_string().contains("Nothing was changed"),
            "{refused}"
        );
    }
    assert!(log_files(&disk) == files && store.failure().is_none() && kept(&disk).is_empty());
    cut_back(&mut store, Some(id(1, 4))).unwrap().unwrap();
    assert_eq!(committed(&store), Some(id(1, 4)));
}

#[test]
fn a_full_disk_stops_a_truncation_before_any_removal() {
    let disk = stopped();
    let files = log_files(&disk);
    let (mut store, _) = open(&disk).unwrap();
    disk.leave_room(100);
    let failed = block_on(store.cut_back(Some(id(1, 2)), "no room", 0)).unwrap_err();
    let doing = "keeping the bytes that are to be cut off".to_owned();
    let full = CutBackError::Store(StoreError::DiskFull(doing));
    assert_eq!(failed, full);
    drop(store);
    disk.set_capacity(None);
    assert!(log_files(&disk) == files);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(committed(&store), Some(id(1, 10)));
}

#[test]
fn kept_entries_survive_every_crash_point() {
    let mut steps = vec![
        Step::Vote(2),
        Step::Append(entries()),
        Step::Committed(id(1, 10)),
    ];
    steps.extend((0..8).map(|_| Step::Committed(id(1, 10))));
    steps.extend([
        Step::CutBack(Some(id(1, 5))),
        Step::Vote(9),
        Step::Append(vec![
            blank(id(9, 6)),
            rotate(id(9, 7)),
            transaction(id(9, 8), 90),
        ]),
        Step::Committed(id(9, 8)),
        Step::CutBack(Some(id(1, 3))),
        Step::CutBack(None),
        Step::Append(vec![membership(id(9, 0), &[1])]),
    ]);
    let explored = Exploration {
        steps,
        options: options(),
        disturbance: Disturbance::PowerCut,
        lying_disk: false,
        seeds: 6,
        nested_every: 9,
    };
    let explored = explored.go().unwrap();
    println!("{explored:?}");
    assert!(explored.calls > 60, "{explored:?}");
}

//! A log that begins with a later file of another member's log has the same bytes from that file on. This holds for any previous content,
//! and for a power cut after any call.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use crate::workload;
use crate::workload::exploration::{Disturbance, Exploration};
use crate::workload::{
    Step, append, begin_at, log_files, open, options, purge, read_all, save_committed, save_vote,
    start_after, summary, vote,
};
use binlog_format::gtid::GtidSet;
use binlog_store::{BinlogStore, FileNumber, LogDirectory, StoreError};
use futures::executor::block_on;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use raft_types::{Entry, FileStart, FileStarts, OpId};
use testkit::disk::FaultyDisk;
use testkit::log_entries::{blank, gtid, membership, rotate, transaction};

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

/// Entries 0.0 to 3.15 in five files, which begin after no entry, 1.6, 2.10, 2.12 and 3.14.
fn ring_log() -> Vec<Entry> {
    vec![
        membership(id(0, 0), &[1, 2, 3]),
        blank(id(1, 1)),
        transaction(id(1, 2), 10),
        transaction(id(1, 3), 700),
        transaction(id(1, 4), 30),
        transaction(id(1, 5), 40),
        rotate(id(1, 6)),
        blank(id(2, 7)),
        membership(id(2, 8), &[1, 2, 3, 4]),
        transaction(id(2, 9), 2_000),
        rotate(id(2, 10)),
        transaction(id(2, 11), 50),
        rotate(id(2, 12)),
        blank(id(3, 13)),
        rotate(id(3, 14)),
        transaction(id(3, 15), 90),
    ]
}

/// The leader's log, which has all entries of the ring.
fn leader() -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 3).unwrap();
    append(&mut store, ring_log()).unwrap();
    save_committed(&mut store, id(3, 15)).unwrap();
    (disk, store)
}

/// The entries after an index.
fn entries_after(index: u64) -> Vec<Entry> {
    let log = ring_log().into_iter();
    log.filter(|entry| entry.log_id.index > index).collect()
}

/// The GTIDs up to an index.
fn gtids_before(index: u64) -> GtidSet {
    let of = |entry: &Entry| {
        let index = entry.log_id.index;
        [2, 3, 4, 5, 9, 11, 15]
            .contains(&index)
            .then(|| gtid(index))
    };
    let log = ring_log();
    let wanted = log.iter().filter(|entry| entry.log_id.index <= index);
    let mut gtids = GtidSet::new();
    gtids.extend(wanted.filter_map(of));
    gtids
}

/// An old member's log: the ring's log up to 1.6, then a tail that was never committed. The ring has used the tail's file numbers for other
/// files since.
fn old_tail() -> Vec<Entry> {
    vec![
        transaction(id(1, 7), 80),
        rotate(id(1, 8)),
        transaction(id(1, 9), 80),
        rotate(id(1, 10)),
        rotate(id(1, 11)),
    ]
}

/// Checks that the member's files, except the index, are those of the leader.
fn assert_same_files(member: &FaultyDisk, leader: &FaultyDisk, first: u64) {
    let (mut found, wanted) = (log_files(member), log_files(leader));
    let index = found.remove("binlog.index").unwrap();
    let names: Vec<String> = found.keys().cloned().collect();
    assert_eq!(names[0], format!("binlog.{first:06}"));
    let listed: String = names.iter().map(|name| format!("./{name}\n")).collect();
    assert_eq!(String::from_utf8(index).unwrap(), listed);
    let last = wanted.keys().rev().nth(1);
    assert_eq!(names.last(), last, "both end with the same file");
    for (name, bytes) in found {
        assert!(wanted[&name] == bytes, "{name} has other bytes");
    }
}

#[test]
fn a_new_member_has_the_same_bytes_from_its_first_file_on() {
    let (leader_disk, leader) = leader();
    for (from, before, file) in [
        (id(1, 2), id(1, 6), 2),
        (id(1, 6), id(1, 6), 2),
        (id(1, 7), id(2, 10), 3),
        (id(2, 12), id(2, 12), 4),
    ] {
        let start = start_after(&leader, from);
        assert_eq!(start.before, before, "from {from}");
        let disk = FaultyDisk::new();
        let (mut store, _) = open(&disk).unwrap();
        save_vote(&mut store, 3).unwrap();
        begin_at(&mut store, &start).unwrap();
        assert_eq!(store.durable(), Some(before));
        assert_eq!(store.bounds(), None);
        assert_eq!(store.gtid_set(), gtids_before(before.index));
        assert_eq!(store.current_file().number, FileNumber::new(file).unwrap());
        assert_eq!(
            store.committed_membership(),
            start.membership,
            "the one in force there"
        );
        append(&mut store, entries_after(before.index)).unwrap();
        assert_eq!(store.gtid_set(), leader.gtid_set());
        assert_same_files(&disk, &leader_disk, file);

        // The same holds after a restart, which finds the purge floor at the applied entry.
        drop(store);
        let (mut store, report) = open(&disk).unwrap();
        assert_eq!(report.floor, Some(before));
        assert_eq!(store.applied_at_open(), (Some(before), start.membership));
        assert_eq!(read_all(&store).unwrap(), entries_after(before.index));
        let state = block_on(store.get_log_state()).unwrap();
        assert_eq!(state.last_purged_log_id, Some(before.into()));
        assert_eq!(
            block_on(store.reader().read_vote()).unwrap(),
            Some(vote(3)),
            "the vote stays"
        );
    }
}

#[test]
fn the_first_start_is_the_first_file_that_is_not_purged() {
    let (_, mut leader) = leader();
    let first = |store: &BinlogStore| {
        let start = block_on(FileStarts::first_start(&store.handle(), None)).unwrap();
        start.map(|start| start.before)
    };
    assert_eq!(first(&leader), None, "nothing is purged");
    purge(&mut leader, id(1, 6)).unwrap();
    assert_eq!(first(&leader), Some(id(1, 6)));
    let hold = leader.hold(0);
    purge(&mut leader, id(2, 12)).unwrap();
    assert_eq!(
        first(&leader),
        Some(id(2, 12)),
        "what a hold keeps is purged all the same"
    );
    drop(hold);
    assert_eq!(start_after(&leader, id(0, 0)).before, id(2, 12));
    let beyond = block_on(FileStarts::first_start(&leader.handle(), Some(id(3, 15))));
    assert_eq!(beyond.unwrap(), None, "no file begins there");
}

#[test]
fn a_member_that_was_away_too_long_restarts_its_log() {
    let (leader_disk, leader) = leader();
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 1).unwrap();
    let shared = ring_log().into_iter().take(7).collect();
    append(&mut store, shared).unwrap();
    save_committed(&mut store, id(1, 6)).unwrap();
    append(&mut store, old_tail()).unwrap();
    assert_eq!(
        store.current_file().number.get(),
        5,
        "numbers that the ring uses, too"
    );
    let reader = store.reader();
    let bytes_before = store.stats().log_bytes;

    save_vote(&mut store, 3).unwrap();
    let start = start_after(&leader, id(2, 12));
    begin_at(&mut store, &start).unwrap();
    assert!(store.stats().log_bytes < bytes_before);
    assert_eq!(store.stats().log_bytes, start.header.len() as u64);
    let nothing = block_on(reader.clone().try_get_log_entries(0..)).unwrap();
    assert_eq!(summary(&nothing), "0 entries -..=-");
    append(&mut store, entries_after(12)).unwrap();
    assert_same_files(&disk, &leader_disk, 4);
    assert_eq!(
        block_on(reader.clone().try_get_log_entries(0..)).unwrap(),
        entries_after(12)
    );
    assert_eq!(store.gtid_set(), leader.gtid_set());
}

#[test]
fn a_member_that_has_the_entry_only_purges_earlier_ones() {
    let (_, leader) = leader();
    let (disk, mut store) = self::leader();
    let start = start_after(&leader, id(2, 12));
    begin_at(&mut store, &start).unwrap();
    assert_eq!(
        read_all(&store).unwrap(),
        entries_after(12),
        "later entries stay"
    );
    assert_same_files(&disk, &disk, 4);
    // File starts before the log's end change nothing.
    let earlier = start_after(&leader, id(2, 10));
    begin_at(&mut store, &earlier).unwrap();
    assert_eq!(read_all(&store).unwrap(), entries_after(12));
}

#[test]
fn a_start_that_is_not_the_rings_is_refused() {
    let (_, leader) = leader();
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    let before = log_files(&disk);
    let good = start_after(&leader, id(2, 12));
    let mut damaged = good.header.to_vec();
    damaged[90] ^= 1;
    let mut longer = good.header.to_vec();
    longer.push(0);
    let first_file = leader_first_header(&leader);
    let wrong: [(FileStart, &str); 6] = [
        (with_header(&good, damaged), "cannot be used"),
        (with_header(&good, longer), "bytes follow"),
        (with_header(&good, Vec::new()), "cannot be used"),
        (with_header(&good, first_file), "entry before the file"),
        (
            FileStart {
                before: id(2, 11),
                ..good.clone()
            },
            "entry before the file",
        ),
        (
            FileStart {
                membership: Default::default(),
                ..good.clone()
            },
            "membership",
        ),
    ];
    for (start, word) in wrong {
        let refused = begin_at(&mut store, &start).unwrap_err().to_string();
        assert!(refused.contains(word), "{word:?} is not in: {refused}");
        assert!(store.check_start(&start).is_err());
    }
    let foreign = binlog_store::StoreOptions {
        ring: raft_types::RingId::random(),
        ..options()
    };
    let other = FaultyDisk::new();
    let (mut other, _) = workload::open_with(&other, foreign).unwrap();
    let refused = begin_at(&mut other, &good).unwrap_err().to_string();
    assert!(refused.contains("belongs to ring"), "{refused}");
    // The refused file starts have not changed the log, which continues to work.
    assert!(log_files(&disk) == before && store.failure().is_none());
    store.check_start(&good).unwrap();
    begin_at(&mut store, &good).unwrap();
}

#[test]
fn a_start_that_contradicts_committed_entries_stops_the_log() {
    let (_, leader) = leader();
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 2).unwrap();
    let mut foreign: Vec<Entry> = ring_log().into_iter().take(11).collect();
    foreign.extend((11..=14).map(|index| blank(id(2, index))));
    append(&mut store, foreign.clone()).unwrap();
    save_committed(&mut store, id(2, 14)).unwrap();
    let start = start_after(&leader, id(3, 13));
    assert_eq!(start.before, id(3, 14));
    begin_at(&mut store, &start).unwrap_err();
    assert!(matches!(
        store.failure(),
        Some(StoreError::StartContradicts { .. })
    ));
    drop(store);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(read_all(&store).unwrap(), foreign, "and loses nothing");
}

fn with_header(start: &FileStart, header: Vec<u8>) -> FileStart {
    FileStart {
        header: header.into(),
        ..start.clone()
    }
}

/// The header of the log's very first file, which no entry precedes.
fn leader_first_header(leader: &BinlogStore) -> Vec<u8> {
    let fresh = FaultyDisk::new();
    drop(open(&fresh).unwrap());
    assert_eq!(leader.bounds().unwrap().0, id(0, 0));
    log_files(&fresh)["binlog.000001"].clone()
}

/// An old member's log, a file start, new entries, and two file starts that change nothing.
fn script() -> Vec<Step> {
    let (_, leader) = leader();
    let begin = |from: OpId| {
        let start = start_after(&leader, from);
        let gtids = gtids_before(start.before.index);
        Step::Begin(start, gtids)
    };
    vec![
        Step::Vote(1),
        Step::Append(ring_log().into_iter().take(7).collect()),
        Step::Committed(id(1, 6)),
        Step::Append(old_tail()),
        Step::Vote(3),
        begin(id(2, 12)),
        Step::Append(entries_after(12)),
        Step::Committed(id(3, 15)),
        begin(id(3, 13)),
        begin(id(2, 10)),
    ]
}

#[test]
fn nothing_is_lost_or_left_over_at_any_crash_point() {
    let explored = Exploration {
        steps: script(),
        options: options(),
        disturbance: Disturbance::PowerCut,
        lying_disk: false,
        seeds: 6,
        nested_every: 4,
    };
    let explored = explored.go().unwrap();
    println!("{explored:?}");
    assert!(explored.calls > 60 && explored.nested > 200, "{explored:?}");
}

#[test]
fn the_log_of_a_new_member_verifies() {
    let (_, leader) = leader();
    let dir = tempfile::tempdir().unwrap();
    let start = start_after(&leader, id(1, 6));
    {
        let meta = binlog_store::SledMeta::open(&dir.path().join("meta")).unwrap();
        let options = binlog_store::StoreOptions {
            data_dir: dir.path().to_owned(),
            ..options()
        };
        let files = std::sync::Arc::new(binlog_store::DiskFileSystem);
        let opened = BinlogStore::open(options, files, std::sync::Arc::new(meta));
        let (mut store, _) = opened.unwrap();
        save_vote(&mut store, 3).unwrap();
        begin_at(&mut store, &start).unwrap();
        append(&mut store, entries_after(6)).unwrap();
    }
    let log = LogDirectory::on_disk(dir.path()).unwrap();
    let verified = log.verify(&|_| {}).unwrap();
    println!("{verified:?}");
    assert_eq!(verified.entries, 9);
}

//! Read-only access to the log without its member: listing, finding, verifying, following and comparing, also while the member writes.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::path::Path;

use crate::workload::{
    DATA_DIR, append, log_dir, open, purge, read_all, save_committed, save_vote, truncate,
};
use binlog_store::{
    BinlogStore, Corruption, DirectoryError, EntryRecord, FileDifference, FileNumber, Followed,
    LogDirectory, MarkerKind, Side, Sought,
};
use raft_types::{Entry, OpId};
use testkit::disk::FaultyDisk;
use testkit::log_entries::{blank, gtid, membership, rotate, transaction};

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

/// Files with entries 0.0 to 1.9, 1.10 to 1.19, and 1.20 to 1.24.
fn entries() -> Vec<Entry> {
    (0..25)
        .map(|index| match index {
            0 => membership(id(0, 0), &[1, 2, 3]),
            1 => blank(id(1, 1)),
            9 | 19 => rotate(id(1, index)),
            _ => transaction(id(1, index), index as usize * 10),
        })
        .collect()
}

fn filled() -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, entries()).unwrap();
    (disk, store)
}

fn directory(disk: &FaultyDisk) -> LogDirectory {
    LogDirectory::open(disk.file_system(), Path::new(DATA_DIR)).unwrap()
}

fn file(number: u64) -> FileNumber {
    FileNumber::new(number).unwrap()
}

fn name(number: u64) -> std::path::PathBuf {
    log_dir().join(file(number).name())
}

fn ids(records: &[EntryRecord]) -> Vec<OpId> {
    records.iter().map(|record| record.op_id).collect()
}

#[test]
fn files_are_listed_with_their_contents() {
    let (disk, _store) = filled();
    let files = directory(&disk).files().unwrap();
    let spans: Vec<_> = files
        .iter()
        .map(|file| (file.first.unwrap(), file.last.unwrap(), file.closed))
        .collect();
    assert_eq!(
        spans,
        [
            (id(0, 0), id(1, 9), true),
            (id(1, 10), id(1, 19), true),
            (id(1, 20), id(1, 24), false)
        ]
    );
    assert_eq!(files[1].entries, 10);
    assert_eq!(files[1].times, Some((1_700_000_010, 1_700_000_019)));
    assert_eq!(files[1].previous_gtids, (2..9).map(gtid).collect());
    assert_eq!(files[1].gtids, (10..19).map(gtid).collect());
    assert_eq!(files[2].size, disk.contents(&name(3)).unwrap().len() as u64);
    assert!(files.iter().all(|file| file.fault.is_none()));
    // The directory of the log files can be opened, too.
    let by_files = LogDirectory::open(disk.file_system(), &log_dir()).unwrap();
    assert_eq!(by_files.files().unwrap(), files);
    let none = LogDirectory::open(disk.file_system(), Path::new("/elsewhere"))
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(none, DirectoryError::NoLog(_)) && none.to_string().contains("/elsewhere"),
        "{none}"
    );
}

#[test]
fn entries_are_found_by_index_op_id_and_gtid() {
    let (disk, _store) = filled();
    let directory = directory(&disk);
    let records: Vec<EntryRecord> = directory.entries().unwrap().map(Result::unwrap).collect();
    assert_eq!(records.len(), 25);
    for (record, entry) in records.iter().zip(entries()) {
        let index = entry.log_id.index;
        let find = |sought| directory.find(&sought).unwrap();
        assert_eq!(find(Sought::Index(index)).as_ref(), Some(record));
        assert_eq!(find(Sought::OpId(record.op_id)).as_ref(), Some(record));
        assert_eq!(find(Sought::OpId(id(7, index))), None);
        if record.kind == MarkerKind::Transaction {
            assert_eq!(record.gtid, Some(gtid(index)));
            assert_eq!(find(Sought::Gtid(gtid(index))).as_ref(), Some(record));
        }
        assert_eq!(directory.load(record).unwrap(), entry);
        let bytes = disk.contents(&log_dir().join(record.file.name())).unwrap();
        assert_eq!(
            bytes[record.offset as usize + 4],
            28,
            "an ignorable event is there"
        );
    }
    assert_eq!(directory.find(&Sought::Index(25)).unwrap(), None);
    assert_eq!(directory.find(&Sought::Gtid(gtid(999))).unwrap(), None);
    let from: Vec<EntryRecord> = directory
        .entries_from(17)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(ids(&from), ids(&records[17..]));
    assert_eq!(from[0], records[17]);
}

/// Returns the only damage in the log.
fn damage(disk: &FaultyDisk) -> Corruption {
    let report = directory(disk).verify(&|_| {}).unwrap();
    assert_eq!(report.damaged.len(), 1, "{:?}", report.damaged);
    report.damaged[0].clone()
}

#[test]
fn verification_names_each_damaged_file() {
    let (disk, _store) = filled();
    let report = directory(&disk).verify(&|_| {}).unwrap();
    assert_eq!((report.files, report.entries), (3, 25));
    assert_eq!(
        (report.first, report.last),
        (Some(id(0, 0)), Some(id(1, 24)))
    );
    assert_eq!((report.unfinished, report.damaged), (None, vec![]));

    let records: Vec<EntryRecord> = directory(&disk)
        .entries()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for record in &records {
        let disk = disk.fork();
        disk.flip_bit(&log_dir().join(record.file.name()), record.end - 6, 2);
        let damage = damage(&disk);
        assert_eq!(damage.file, record.file);
        assert!(
            (record.offset..record.end).contains(&damage.fault.offset),
            "{damage}"
        );
        assert_eq!(damage.fault.entry_offset, record.offset);
    }
    // Two damaged files, one of them in its header: the bytes between the damages are verified.
    let two = disk.fork();
    two.flip_bit(&name(1), records[3].end - 6, 2);
    two.flip_bit(&name(3), 30, 2);
    let report = directory(&two).verify(&|_| {}).unwrap();
    let files: Vec<_> = report.damaged.iter().map(|damage| damage.file).collect();
    assert_eq!(files, [file(1), file(3)]);
    let whole = |record: &&EntryRecord| record.file == file(2) || record.op_id < records[3].op_id;
    let whole = records.iter().filter(whole).count();
    assert_eq!(report.entries, u64::try_from(whole).unwrap());
    // A file of another member's log: its header does not match the previous file.
    let other = FaultyDisk::new();
    let (mut store, _) = open(&other).unwrap();
    let mut different = entries();
    different[5] = blank(id(1, 5));
    append(&mut store, different).unwrap();
    disk.set_contents(&name(2), other.contents(&name(2)).unwrap());
    let damage = damage(&disk);
    assert!(damage.to_string().contains("previous GTIDs"), "{damage}");
}

#[test]
fn an_unfinished_write_at_the_end_is_no_damage() {
    let (disk, _store) = filled();
    let whole = disk.contents(&name(3)).unwrap();
    let last = directory(&disk).find(&Sought::Index(24)).unwrap().unwrap();
    for end in last.offset as usize + 1..whole.len() {
        disk.set_contents(&name(3), whole[..end].to_vec());
        let directory = directory(&disk);
        let report = directory.verify(&|_| {}).unwrap();
        assert_eq!(
            (report.last, report.damaged),
            (Some(id(1, 23)), vec![]),
            "at {end}"
        );
        assert!(report.unfinished.is_some());
        assert_eq!(directory.entries().unwrap().map(Result::unwrap).count(), 24);
        assert!(directory.files().unwrap()[2].fault.is_some());
    }
    // In a closed file, an unfinished write is damage.
    let closed = disk.contents(&name(1)).unwrap();
    disk.set_contents(&name(1), closed[..closed.len() - 1].to_vec());
    let directory = directory(&disk);
    assert_eq!(damage(&disk).file, file(1));
    assert!(
        directory
            .entries()
            .unwrap()
            .any(|record| record.is_err_and(|error| error.is_corruption()))
    );
}

#[test]
fn a_log_is_followed_while_it_is_written_and_taken_back() {
    let (disk, mut store) = filled();
    let mut follower = directory(&disk).follow(20);
    let news = |follower: &mut binlog_store::Follower| -> Vec<String> {
        let news = follower.poll(1_000).unwrap().into_iter();
        news.map(|followed| match followed {
            Followed::Entry(record) => format!("+{}", record.op_id),
            Followed::Truncated { keep } => format!("back to {}", keep.unwrap()),
        })
        .collect()
    };
    assert_eq!(
        news(&mut follower),
        ["+1.20", "+1.21", "+1.22", "+1.23", "+1.24"]
    );
    assert!(news(&mut follower).is_empty());
    append(&mut store, vec![rotate(id(1, 25)), blank(id(1, 26))]).unwrap();
    assert_eq!(news(&mut follower), ["+1.25", "+1.26"]);
    truncate(&mut store, Some(id(1, 22))).unwrap();
    assert_eq!(news(&mut follower), ["back to 1.22"]);
    append(
        &mut store,
        vec![
            transaction(id(2, 23), 300),
            rotate(id(2, 24)),
            blank(id(2, 25)),
        ],
    )
    .unwrap();
    assert_eq!(news(&mut follower), ["+2.23", "+2.24", "+2.25"]);
    // The log is truncated and written again between two polls.
    truncate(&mut store, Some(id(2, 23))).unwrap();
    append(&mut store, vec![blank(id(3, 24)), blank(id(3, 25))]).unwrap();
    assert_eq!(news(&mut follower), ["back to 2.23", "+3.24", "+3.25"]);
    // Purging truncates nothing; a file purged before it was read is reported.
    append(&mut store, vec![rotate(id(3, 26)), blank(id(3, 27))]).unwrap();
    save_committed(&mut store, id(3, 26)).unwrap();
    let mut late = directory(&disk).follow(5);
    assert_eq!(late.poll(2).unwrap().len(), 2);
    assert_eq!(news(&mut follower), ["+3.26", "+3.27"]);
    purge(&mut store, id(3, 26)).unwrap();
    append(&mut store, vec![blank(id(3, 28))]).unwrap();
    assert_eq!(news(&mut follower), ["+3.28"]);
    assert!(matches!(late.poll(10), Err(DirectoryError::Purged(_))));
}

#[test]
fn two_logs_are_compared_byte_by_byte() {
    let (disk, store) = filled();
    let copy = disk.fork();
    assert_eq!(directory(&disk).diff(&directory(&copy)).unwrap(), []);

    let record = directory(&disk).find(&Sought::Index(12)).unwrap().unwrap();
    copy.flip_bit(&name(2), record.offset + 80, 0);
    let shorter = copy.contents(&name(3)).unwrap().len() - 30;
    copy.set_contents(
        &name(3),
        copy.contents(&name(3)).unwrap()[..shorter].to_vec(),
    );
    copy.delete(&name(1));
    let wanted = [
        FileDifference::OnlyIn {
            file: file(1),
            side: Side::Left,
        },
        FileDifference::Differs {
            file: file(2),
            offset: record.offset + 80,
        },
        FileDifference::Shorter {
            file: file(3),
            side: Side::Right,
            common_bytes: shorter as u64,
        },
    ];
    assert_eq!(directory(&disk).diff(&directory(&copy)).unwrap(), wanted);
    assert_eq!(read_all(&store).unwrap(), entries());
}

//! A test for every row of the recovery table and of the index table.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::path::PathBuf;

use crate::workload;
use crate::workload::{
    append, begin_at, log_dir, log_files, open, purge, read_all, save_committed, save_vote,
    start_after, summary,
};
use binlog_format::canonical::{stamp, unstamp};
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_store::{
    BinlogStore, Durability, IndexState, OpenError, RECOVERY_CASES, RecoveryReport, StoreOptions,
    VerifyAtStart,
};
use futures::executor::block_on;
use raft_types::{DoubtedTail, FileStarts, OpId, OwnLog};
use testkit::disk::{CallFault, FaultyDisk, Survival};
use testkit::log_entries::{blank, membership, rotate, transaction};

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

fn file(number: u64) -> PathBuf {
    log_dir().join(format!("binlog.{number:06}"))
}

/// A log with the entries 0.0 to 1.2.
fn first_entries() -> (FaultyDisk, BinlogStore) {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    append(&mut store, vec![membership(id(0, 0), &[1, 2, 3])]).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(
        &mut store,
        vec![blank(id(1, 1)), transaction(id(1, 2), 100)],
    )
    .unwrap();
    (disk, store)
}

/// A log of two files. The first has entries 0.0 to 1.4 and ends with rotate entry 1.4; the second has 1.5 and 1.6. Entry 1.3 is committed,
/// and the member was stopped cleanly.
fn stopped() -> FaultyDisk {
    let (disk, mut store) = first_entries();
    append(
        &mut store,
        vec![transaction(id(1, 3), 5_000), rotate(id(1, 4))],
    )
    .unwrap();
    append(
        &mut store,
        vec![transaction(id(1, 5), 300), transaction(id(1, 6), 300)],
    )
    .unwrap();
    save_committed(&mut store, id(1, 3)).unwrap();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    disk
}

/// A disk on which the first log is being created: the hard state records that, and there is no file yet.
fn creating() -> FaultyDisk {
    let disk = FaultyDisk::new();
    open(&disk).unwrap();
    let call = disk
        .record()
        .into_iter()
        .find(|call| call.what.starts_with("create_dir"))
        .unwrap();
    let disk = FaultyDisk::new();
    disk.cut_power_after(call.number);
    open(&disk).map(|_| ()).unwrap_err();
    disk.power_cycle(Survival::Nothing);
    disk
}

/// The stopped log, followed by a torn part of one more entry, which was not acknowledged.
fn torn(tear: impl FnOnce(Vec<u8>) -> Vec<u8>) -> FaultyDisk {
    let disk = stopped();
    let longer = disk.fork();
    let (mut store, _) = open(&longer).unwrap();
    append(&mut store, vec![transaction(id(1, 7), 400)]).unwrap();
    let whole = disk.contents(&file(2)).unwrap();
    let entry = longer.contents(&file(2)).unwrap()[whole.len()..].to_vec();
    disk.set_contents(&file(2), [whole, tear(entry)].concat());
    disk
}

/// Removes a file's last `bytes` bytes.
fn shorten(disk: &FaultyDisk, file: PathBuf, bytes: usize) {
    let mut contents = disk.contents(&file).unwrap();
    contents.truncate(contents.len() - bytes);
    disk.set_contents(&file, contents);
}

/// Opens the log, which must match these rows and have the stopped log's entries. A second open must then find a clean log.
fn opens(disk: &FaultyDisk, cases: &[&str], index_case: &str) -> RecoveryReport {
    let report = opens_with(disk, cases, index_case, "7 entries 0.0..=1.6");
    assert_eq!(
        log_files(disk),
        log_files(&stopped()),
        "the files are those of the stopped log"
    );
    report
}

fn opens_with(
    disk: &FaultyDisk,
    cases: &[&str],
    index_case: &str,
    entries: &str,
) -> RecoveryReport {
    let (store, report) = open(disk).unwrap();
    assert_eq!(report.cases, cases);
    assert_eq!(report.index_case, index_case);
    assert_eq!(summary(&read_all(&store).unwrap()), entries);
    drop(store);
    disk.power_cycle(Survival::Nothing);
    let (store, again) = open(disk).unwrap();
    assert_eq!(
        (again.cut, again.made_file, again.index_case),
        (None, None, "index agrees")
    );
    assert_eq!(summary(&read_all(&store).unwrap()), entries);
    report
}

/// Checks that opening is refused, with a message that contains these words, and that nothing changes.
fn refuses(disk: &FaultyDisk, words: &[&str]) -> OpenError {
    let before = log_files(disk);
    let error = open(disk).map(|_| ()).unwrap_err();
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
    assert!(error.is_corruption(), "{message}");
    // The message of damage does not contain the remedy: the program adds it.
    assert!(
        matches!(error, OpenError::Corrupt { .. })
            || message.contains("Restore the whole data directory"),
        "{message}"
    );
    assert!(log_files(disk) == before, "a refusal changes nothing");
    error
}

#[test]
fn a_directory_that_has_had_a_log_gets_no_new_one() {
    let begun = || StoreOptions {
        begun: true,
        ..workload::options()
    };
    let everything_gone = stopped();
    for path in everything_gone.files(&log_dir()) {
        everything_gone.delete(&path);
    }
    everything_gone.copy_meta_from(&FaultyDisk::new());
    for disk in [everything_gone, creating()] {
        let before = log_files(&disk);
        let error = workload::open_with(&disk, begun()).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, OpenError::AllMissing { .. }) && error.is_corruption(),
            "{error}"
        );
        let message = error.to_string();
        for word in [
            "/data no longer has a log",
            "whole data directory",
            "new number",
        ] {
            assert!(message.contains(word), "{word:?} is not in: {message}");
        }
        assert!(log_files(&disk) == before, "a refusal changes nothing");
    }
    // If the log is present, it opens.
    workload::open_with(&stopped(), begun()).unwrap();
}

/// Declares tests that are named after a row, and the list of the rows that have a test.
macro_rules! rows {
    ($list:ident: $($name:ident, $row:literal => $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $body
            }
        )*

        const $list: &[&str] = &[$($row),*];
    };
}

rows! { TESTED:
    starting_over_interrupted, "starting over interrupted" => {
        let (longer, _) = open(&stopped()).unwrap();
        let start = start_after(&longer, id(1, 4));
        // The hard state records the restart. All, some or none of the old files are left, and a part of the new file.
        let disk = FaultyDisk::new();
        let (mut store, _) = open(&disk).unwrap();
        save_vote(&mut store, 2).unwrap();
        append(&mut store, vec![membership(id(0, 0), &[1, 2, 3]), blank(id(2, 1))]).unwrap();
        disk.cut_power_after(disk.calls() + 2);
        begin_at(&mut store, &start).unwrap_err();
        disk.power_cycle(Survival::Nothing);
        for files in ["as they were", "gone", "half made", "not of a log"] {
            let disk = disk.fork();
            match files {
                "gone" => disk.files(&log_dir()).into_iter().for_each(|path| {
                    disk.delete(&path);
                }),
                "half made" => disk.set_contents(&file(2), start.header[..60].to_vec()),
                "not of a log" => disk.set_contents(&file(1), b"something else".to_vec()),
                _ => {}
            }
            opens_with(&disk, &["starting over interrupted", "vote newer than the log"], "index agrees", "0 entries -..=-");
            assert_eq!(disk.contents(&file(2)).unwrap(), start.header);
            assert_eq!(disk.files(&log_dir()).len(), 2, "the new file and the index");
        }
    }

    new_log, "new log" => {
        opens_with(&FaultyDisk::new(), &["new log", "clean"], "index agrees", "0 entries -..=-");
        opens_with(&creating(), &["new log", "clean"], "index agrees", "0 entries -..=-");
    }

    log_files_gone, "log files gone" => {
        let disk = stopped();
        for path in disk.files(&log_dir()) {
            disk.delete(&path);
        }
        assert!(matches!(refuses(&disk, &["/data/log has no log files"]), OpenError::LogMissing { .. }));
    }

    hard_state_gone, "hard state gone" => {
        let disk = stopped();
        disk.copy_meta_from(&FaultyDisk::new());
        assert!(matches!(refuses(&disk, &["vote twice", "meta/"]), OpenError::MetaMissing { .. }));
        // The same holds if the hard state records that the log is being created, although the log has entries.
        disk.copy_meta_from(&creating());
        refuses(&disk, &["vote twice"]);
    }

    first_file_half_made, "first file half made" => {
        let whole = FaultyDisk::new();
        open(&whole).unwrap();
        let header = whole.contents(&file(1)).unwrap();
        for bytes in [0, 3, 4, 40, header.len() - 1] {
            let disk = creating();
            disk.set_contents(&file(1), header[..bytes].to_vec());
            opens_with(&disk, &["first file half made", "clean"], "index agrees", "0 entries -..=-");
            assert_eq!(log_files(&disk), log_files(&whole));
        }
    }

    rotated_while_being_made, "rotated while being made" => {
        // A log with entries counts as one without a hard state if the hard state records that it is being created. So only a direct call
        // reaches this row.
        let case = binlog_store::judge(binlog_store::TailState::RotateWithoutNext, binlog_store::MetaState::Creating);
        assert_eq!(case.verdict, binlog_store::Verdict::RefuseMetaMissing);
    }

    damage_in_the_middle, "damage in the middle" => {
        // A damaged byte in the payload of 1.5. Entry 1.6 follows, so this is no torn tail, although it is the last file.
        let disk = stopped();
        let (store, _) = open(&disk).unwrap();
        drop(store);
        let offset = disk.contents(&file(2)).unwrap().len() as u64 - 700;
        assert!(disk.flip_bit(&file(2), offset, 3));
        let error = refuses(&disk, &["binlog.000002", "at offset", "not cut off"]);
        assert!(matches!(error, OpenError::Corrupt { .. }));

        // A damaged byte in a closed file.
        let disk = stopped();
        assert!(disk.flip_bit(&file(1), 3_000, 3));
        refuses(&disk, &["binlog.000001", "at offset"]);

        // A closed file without its end.
        let disk = stopped();
        shorten(&disk, file(1), 10);
        refuses(&disk, &["binlog.000001", "ends"]);

        // A file without a header, after a file that does not end with a rotate event, or has bytes after it. The second file cannot have
        // been in creation.
        let begun = stopped().contents(&file(2)).unwrap()[..40].to_vec();
        let (open_file, store) = first_entries();
        drop(store);
        open_file.power_cycle(Survival::Nothing);
        open_file.set_contents(&file(2), begun.clone());
        refuses(&open_file, &["binlog.000002"]);
        let disk = before_the_second_file();
        let closed = disk.contents(&file(1)).unwrap();
        disk.set_contents(&file(1), [closed, vec![0; 30]].concat());
        disk.set_contents(&file(2), begun);
        refuses(&disk, &["binlog.000001", "follow the rotate"]);

        // The only file has half a header left. It had entries, so it was not in creation.
        let (only_file, store) = first_entries();
        drop(store);
        only_file.power_cycle(Survival::Nothing);
        let header = only_file.contents(&file(1)).unwrap()[..40].to_vec();
        only_file.set_contents(&file(1), header);
        refuses(&only_file, &["binlog.000001"]);

        // A closed file whose rotate event names another file or position than the start of the next file.
        for (at, byte) in [(19, 5), (19 + 8 + 12, b'3')] {
            let disk = stopped();
            let mut closed = disk.contents(&file(1)).unwrap();
            let rotate = closed.len() - (19 + 8 + "binlog.000002".len() + CHECKSUM_LEN);
            let mut event = unstamp(&closed[rotate..]).unwrap().to_vec();
            event[at] = byte;
            closed.truncate(rotate);
            stamp(&event, rotate as u64, &mut closed).unwrap();
            disk.set_contents(&file(1), closed);
            refuses(&disk, &["binlog.000001", "does not name binlog.000002"]);
        }

        // A damaged header of a file that has entries.
        let disk = stopped();
        assert!(disk.flip_bit(&file(2), 40, 3));
        refuses(&disk, &["binlog.000002"]);

        // Bytes after the rotate event of the last file.
        let disk = stopped();
        disk.delete(&file(2));
        let index = b"./binlog.000001\n".to_vec();
        disk.set_contents(&log_dir().join("binlog.index"), index);
        disk.copy_meta_from(&before_the_second_file());
        let closed = disk.contents(&file(1)).unwrap();
        disk.set_contents(&file(1), [closed, vec![0; 30]].concat());
        refuses(&disk, &["binlog.000001", "follow the rotate"]);
    }

    vote_older_than_the_log, "vote older than the log" => {
        let disk = stopped();
        let old = disk.fork();
        let (mut store, _) = open(&disk).unwrap();
        save_vote(&mut store, 2).unwrap();
        append(&mut store, vec![blank(id(2, 7))]).unwrap();
        drop(store);
        disk.power_cycle(Survival::Nothing);
        disk.copy_meta_from(&old);
        assert!(matches!(refuses(&disk, &["entry 2.7", "term 1"]), OpenError::VoteOlderThanLog { .. }));
    }

    committed_beyond_the_logs_end, "committed beyond the log's end" => {
        let disk = stopped();
        let (mut store, _) = open(&disk).unwrap();
        save_committed(&mut store, id(1, 6)).unwrap();
        drop(store);
        disk.power_cycle(Survival::Nothing);
        shorten(&disk, file(2), 20);
        let error = refuses(&disk, &["entry 1.6 was committed", "ends at entry 1.5"]);
        assert!(matches!(error, OpenError::EntriesMissing { .. }));
    }

    committed_entry_differs, "committed entry differs" => {
        let other = FaultyDisk::new();
        let (mut store, _) = open(&other).unwrap();
        append(&mut store, vec![membership(id(0, 0), &[1, 2, 3]), blank(id(0, 1)), blank(id(0, 2)), blank(id(0, 3))])
            .unwrap();
        drop(store);
        let disk = stopped();
        disk.copy_files_from(&other, &log_dir());
        let error = refuses(&disk, &["1.3 is committed", "has 0.3 there"]);
        assert!(matches!(error, OpenError::CommittedDiffers { .. }));
    }

    durable_entries_gone, "durable entries gone" => {
        // The last entry is incomplete, although the hard state records that it was durable.
        let disk = stopped();
        shorten(&disk, file(2), 20);
        let error = refuses(&disk, &["entry 1.6 was durable", "ends at entry 1.5"]);
        assert!(matches!(error, OpenError::EntriesMissing { .. }));
        // A byte of that entry is damaged. No entry follows it, so only the hard state shows that this is no torn tail.
        let disk = stopped();
        let size = disk.contents(&file(2)).unwrap().len() as u64;
        assert!(disk.flip_bit(&file(2), size - 20, 0));
        refuses(&disk, &["entry 1.6 was durable"]);
    }

    purge_floor_beyond_the_logs_end, "purge floor beyond the log's end" => {
        let disk = stopped();
        let purged = disk.fork();
        let (mut store, _) = open(&purged).unwrap();
        purge(&mut store, id(1, 20)).unwrap();
        drop(store);
        disk.copy_meta_from(&purged);
        let report = opens_with(
            &disk,
            &["purge floor beyond the log's end", "clean"],
            "file not in index",
            "0 entries -..=-",
        );
        assert_eq!(report.floor, Some(id(1, 20)));
        assert_eq!(log_files(&disk), log_files(&purged));
    }

    clean, "clean" => {
        let report = opens(&stopped(), &["clean"], "index agrees");
        assert_eq!(report.bounds, Some((id(0, 0), id(1, 6))));
        assert_eq!(report.verified_entries, 7);
    }

    vote_newer_than_the_log, "vote newer than the log" => {
        let disk = stopped();
        let (mut store, _) = open(&disk).unwrap();
        save_vote(&mut store, 9).unwrap();
        drop(store);
        opens(&disk, &["vote newer than the log"], "index agrees");
    }

    purge_floor_beyond_the_first_file, "purge floor beyond the first file" => {
        let disk = stopped();
        let purged = disk.fork();
        let (mut store, _) = open(&purged).unwrap();
        purge(&mut store, id(1, 5)).unwrap();
        drop(store);
        // The floor was stored, but the first file was not removed yet.
        disk.copy_meta_from(&purged);
        let cases = &["purge floor beyond the first file"];
        let report = opens_with(&disk, cases, "file not in index", "1 entries 1.6..=1.6");
        assert_eq!(report.removed_files.len(), 1);
        assert_eq!(log_files(&disk), log_files(&purged));
    }

    torn_header, "torn header" => {
        for bytes in [1, 18] {
            let report = opens(&torn(|entry| entry[..bytes].to_vec()), &["torn header"], "index agrees");
            assert_eq!(report.cut.unwrap().bytes, bytes as u64);
        }
    }

    torn_marker, "torn marker" => {
        for bytes in [19, 40, 62] {
            opens(&torn(|entry| entry[..bytes].to_vec()), &["torn marker"], "index agrees");
        }
    }

    marker_without_payload, "marker without payload" => {
        opens(&torn(|entry| entry[..63].to_vec()), &["marker without payload"], "index agrees");
    }

    torn_event, "torn event" => {
        for missing in [1, 4, 100, 350] {
            let disk = torn(|entry| entry[..entry.len() - missing].to_vec());
            let report = opens(&disk, &["torn event"], "index agrees");
            assert!(report.cut.is_some_and(|cut| cut.file.get() == 2));
        }
        // The file ends within the header of the first event after the marker.
        opens(&torn(|entry| entry[..70].to_vec()), &["torn event"], "index agrees");
        // The file ends after that event, before the next one.
        let behind_the_first = |entry: Vec<u8>| {
            let size = u32::from_le_bytes(*entry[63 + 9..].first_chunk().unwrap());
            entry[..63 + size as usize].to_vec()
        };
        opens(&torn(behind_the_first), &["torn event"], "index agrees");
    }

    zero_filled_tail, "zero-filled tail" => {
        for bytes in [1, 19, 500, 100_000] {
            opens(&torn(|_| vec![0; bytes]), &["zero-filled tail"], "index agrees");
        }
    }

    tail_that_ends_in_zeros, "tail that ends in zeros" => {
        // The entry has its full length, but zeros from some offset on.
        for zeros_from in [1, 30, 63, 64, 200] {
            let half_zero = torn(|mut entry| {
                entry[zeros_from..].fill(0);
                entry
            });
            let report = opens(&half_zero, &["tail that ends in zeros"], "index agrees");
            assert!(report.cut.is_some_and(|cut| !cut.doubted));
        }
    }

    garbage_after_a_first_header, "garbage after a first file's header" => {
        // A log in creation has never acknowledged anything.
        let whole = FaultyDisk::new();
        open(&whole).unwrap();
        let disk = creating();
        let header = whole.contents(&file(1)).unwrap();
        disk.set_contents(&file(1), [header, vec![0xff; 50]].concat());
        let report = opens_with(
            &disk,
            &["garbage after a first file's header"],
            "index missing",
            "0 entries -..=-",
        );
        assert!(report.cut.is_some_and(|cut| !cut.doubted) && !report.doubted);
    }

    garbage_tail, "garbage tail" => {
        let report = opens(&torn(|_| vec![0xff; 50]), &["garbage tail"], "index agrees");
        assert!(report.cut.is_some_and(|cut| cut.doubted));
        // One damaged byte in an entry of full length, which may have been acknowledged. If the size in a header is damaged, the end
        // position next to it shows that the file does not end too early.
        for at in [0, 9, 10, 12, 30, 62, 63, 72, 73, 74, 100, 350] {
            let rotten = torn(|mut entry| {
                entry[at] ^= 0x40;
                entry
            });
            let report = opens(&rotten, &["garbage tail"], "index agrees");
            assert!(report.cut.is_some_and(|cut| cut.doubted), "{at}");
        }
    }

    rotated_next_file_missing, "rotated, next file missing" => {
        let disk = before_the_second_file();
        let report = opens_with(&disk, &["rotated, next file missing"], "index agrees", "5 entries 0.0..=1.4");
        assert_eq!(report.made_file.map(|file| file.get()), Some(2));
        let header = stopped().contents(&file(2)).unwrap();
        assert!(header.starts_with(&disk.contents(&file(2)).unwrap()), "the file begins as on every member");
    }

    rotated_next_file_half_made, "rotated, next file half made" => {
        let header = {
            let disk = before_the_second_file();
            open(&disk).unwrap();
            disk.contents(&file(2)).unwrap()
        };
        let written = [0, 4, 100, header.len() - 1].map(|bytes| header[..bytes].to_vec());
        // The header has its full length, but not all of its bytes had reached the disk. So no entry had followed it.
        let half_zero = [&header[..header.len() / 2], &vec![0; header.len().div_ceil(2)]].concat();
        for bytes in written.into_iter().chain([half_zero]) {
            let disk = before_the_second_file();
            disk.set_contents(&file(2), bytes.clone());
            let cases = &["rotated, next file half made"];
            let report = opens_with(&disk, cases, "file not in index", "5 entries 0.0..=1.4");
            assert_eq!((report.cut, report.doubted), (None, false), "{} bytes", bytes.len());
            assert_eq!(disk.contents(&file(2)), Some(header.clone()));
        }
    }
}

/// The stopped log at the time when its first file was complete and the second one not yet created.
fn before_the_second_file() -> FaultyDisk {
    let (disk, mut store) = first_entries();
    // The sync of the rotate entry is the call after its write.
    disk.cut_power_after(disk.calls() + 2);
    append(
        &mut store,
        vec![transaction(id(1, 3), 5_000), rotate(id(1, 4))],
    )
    .unwrap_err();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    disk
}

rows! { INDEX_TESTED:
    index_agrees, "index agrees" => {
        opens(&stopped(), &["clean"], "index agrees");
    }

    index_missing, "index missing" => {
        let disk = stopped();
        disk.delete(&log_dir().join("binlog.index"));
        opens(&disk, &["clean"], "index missing");
    }

    index_damaged, "index damaged" => {
        for bytes in [&b"./binlog.0000"[..], b"\0\0\0\0", b"./binlog.000001\nbinlog.000002\n", b"\xff\xff\n"] {
            let disk = stopped();
            disk.set_contents(&log_dir().join("binlog.index"), bytes.to_vec());
            opens(&disk, &["clean"], "index damaged");
        }
    }

    file_not_in_index, "file not in index" => {
        let disk = stopped();
        disk.set_contents(&log_dir().join("binlog.index"), b"./binlog.000001\n".to_vec());
        opens(&disk, &["clean"], "file not in index");
        // A half-written new index next to the old one is removed.
        let disk = stopped();
        disk.set_contents(&log_dir().join("binlog.index.new"), b"./bin".to_vec());
        opens(&disk, &["clean"], "index agrees");
    }
}

#[test]
fn index_names_a_missing_file() {
    for number in [1, 2] {
        let disk = stopped();
        disk.delete(&file(number));
        let name = format!("binlog.{number:06}");
        assert!(matches!(
            refuses(&disk, &[&name, "missing"]),
            OpenError::FileMissing { .. }
        ));
    }
}

#[test]
fn every_row_has_a_test() {
    let names: Vec<&str> = RECOVERY_CASES.iter().map(|case| case.name).collect();
    assert_eq!(TESTED, names);
    assert_eq!(INDEX_TESTED, IndexState::ALL.map(IndexState::name));
}

#[test]
fn a_report_names_the_truncated_and_possibly_missing_entries() {
    let report = open(&stopped()).unwrap().1;
    assert!(!report.to_string().contains("missing"), "{report}");
    let whole = "clean; index agrees; entries 0.0 to 1.6 in 2 files; verified 7 entries, ";
    assert!(report.to_string().starts_with(whole), "{report}");
    let since_earlier = RecoveryReport {
        doubted: true,
        ..report
    };
    let missing = "; since an earlier start acknowledged entries may be missing";
    assert!(
        since_earlier.to_string().ends_with(missing),
        "{since_earlier}"
    );
    let garbage = open(&torn(|_| vec![0xff; 50])).unwrap().1.to_string();
    assert!(
        garbage.contains("; cut 50 bytes off binlog.000002 at "),
        "{garbage}"
    );
    assert!(
        garbage.ends_with(", which may have been acknowledged"),
        "{garbage}"
    );
}

#[test]
fn waiters_for_entries_are_notified_of_those_present_at_the_start() {
    let (store, _) = open(&stopped()).unwrap();
    assert_eq!(*store.handle().appended().borrow(), 7);
}

/// Opens the log and returns its doubt about its end, if any.
fn is_in_doubt(disk: &FaultyDisk) -> Option<DoubtedTail> {
    open(disk).unwrap().0.handle().doubted_tail()
}

#[test]
fn an_acknowledged_tail_that_rotted_is_remembered_until_it_is_settled() {
    // Entry 1.7 was acknowledged after the durable mark was stored, and one of its bits is damaged.
    let disk = torn(|mut entry| {
        let last = entry.len() - 1;
        entry[last] ^= 1;
        entry
    });
    let (mut store, report) = open(&disk).unwrap();
    assert!(report.doubted && report.cut.is_some_and(|cut| cut.doubted));
    let handle = store.handle();
    let doubt = DoubtedTail::of_term(1);
    assert_eq!(handle.doubted_tail(), Some(doubt));
    let settle = |from| block_on(FileStarts::settle_tail(&handle, from)).unwrap();
    assert!(!settle(doubt.settled_from()));
    // The doubt stays after further starts, whatever they find.
    drop(store);
    disk.power_cycle(Survival::Nothing);
    assert_eq!(is_in_doubt(&disk), Some(doubt));
    disk.power_cycle(Survival::Nothing);
    store = open(&disk).unwrap().0;
    let handle = store.handle();
    let settle = |from| block_on(FileStarts::settle_tail(&handle, from)).unwrap();
    // The leader's log ended at 1.7 when the member asked it, so this log must have 1.7 durably.
    assert!(!settle(id(1, 7)));
    append(&mut store, vec![transaction(id(1, 7), 400)]).unwrap();
    assert!(settle(id(1, 7)));
    assert_eq!(handle.doubted_tail(), None);
    assert!(settle(id(9, 9)), "no doubt is left");
    drop(store);
    disk.power_cycle(Survival::Nothing);
    assert_eq!(is_in_doubt(&disk), None);
}

/// A ring of one member adds a second one. The power is cut in the seconds before the durable mark is stored. Without the entry that added
/// the second member, the first would assume that it is alone, ask no other member, and elect itself.
#[test]
fn a_membership_damaged_after_its_acknowledgement_is_never_truncated() {
    for durability in [Durability::Fsync, Durability::Os] {
        let options = || StoreOptions {
            durability,
            ..workload::options()
        };
        let disk = FaultyDisk::new();
        let (mut store, _) = workload::open_with(&disk, options()).unwrap();
        append(&mut store, vec![membership(id(0, 0), &[1])]).unwrap();
        save_vote(&mut store, 1).unwrap();
        append(
            &mut store,
            vec![blank(id(1, 1)), transaction(id(1, 2), 300)],
        )
        .unwrap();
        let alone = disk.contents(&file(1)).unwrap().len();
        append(&mut store, vec![membership(id(1, 3), &[1, 2])]).unwrap();
        let end = disk.contents(&file(1)).unwrap().len();
        // The crash is before the store is closed, because closing moves the mark.
        let crashed = disk.fork();
        crashed.power_cycle(Survival::Nothing);
        let refused = |disk: &FaultyDisk, what: &str| {
            let opened = workload::open_with(disk, options());
            let error = opened.map(|(store, report)| {
                let members = store.committed_membership();
                let last = store.bounds().map(|(_, last)| last);
                format!("{what}: opened, ends at {last:?}, {report}, {members:?}")
            });
            assert!(
                matches!(&error, Err(OpenError::EntriesMissing { known, .. }) if *known == id(1, 3)),
                "{error:?}"
            );
        };
        for at in [alone, alone + 9, alone + 40, (alone + end) / 2, end - 1] {
            let rotten = crashed.fork();
            assert!(rotten.flip_bit(&file(1), at as u64, 3));
            refused(
                &rotten,
                &format!("{durability:?}, byte {at} of {alone}..{end} rotten"),
            );
        }
        let shorter = crashed.fork();
        shorten(&shorter, file(1), end - alone);
        refused(&shorter, &format!("{durability:?}, all of it gone"));

        // Unacknowledged entries that a start finds count as durable from then on.
        let before_the_mark = {
            let disk = FaultyDisk::new();
            let (mut store, _) = workload::open_with(&disk, options()).unwrap();
            save_vote(&mut store, 1).unwrap();
            append(
                &mut store,
                vec![membership(id(1, 0), &[1]), blank(id(1, 1))],
            )
            .unwrap();
            // The power is cut after the entry's write and sync.
            disk.cut_power_after(disk.calls() + 2);
            append(
                &mut store,
                vec![transaction(id(1, 2), 10), membership(id(1, 3), &[1, 2])],
            )
            .unwrap_err();
            drop(store);
            disk.power_cycle(Survival::Nothing);
            disk
        };
        let (store, report) = workload::open_with(&before_the_mark, options()).unwrap();
        assert_eq!(store.durable(), Some(id(1, 3)), "{report}");
        let rotten = before_the_mark.fork();
        rotten.power_cycle(Survival::Nothing);
        let last = rotten.contents(&file(1)).unwrap().len() as u64 - 1;
        assert!(rotten.flip_bit(&file(1), last, 3));
        refused(&rotten, "rotten after a start");
    }
}

#[test]
fn a_doubt_is_recorded_before_truncation_at_every_crash_point() {
    let rotten = torn(|mut entry| {
        entry[100] ^= 1;
        entry
    });
    let calls = {
        let disk = rotten.fork();
        open(&disk).unwrap();
        disk.calls()
    };
    let length = rotten.contents(&file(2)).unwrap().len();
    for last in rotten.calls() + 1..=calls {
        for survival in [
            Survival::Nothing,
            Survival::Everything,
            Survival::Seeded(last),
        ] {
            let disk = rotten.fork();
            disk.cut_power_after(last);
            open(&disk).map(|_| ()).ok();
            disk.power_cycle(survival);
            // Either the damaged entry is still there and is found again, or the doubt is recorded.
            let cut = disk.contents(&file(2)).unwrap().len() < length;
            let (store, report) = open(&disk).unwrap();
            assert!(
                report.doubted,
                "call {last}, {survival:?}, cut before: {cut}"
            );
            assert_eq!(summary(&read_all(&store).unwrap()), "7 entries 0.0..=1.6");
        }
    }
}

#[test]
fn entries_that_rot_together_with_the_header_before_them_leave_a_doubt() {
    // One bad sector contains the header of the last file and its first entry.
    let disk = before_the_second_file();
    let mut contents = {
        let longer = disk.fork();
        let (mut store, _) = open(&longer).unwrap();
        append(&mut store, vec![transaction(id(1, 5), 300)]).unwrap();
        longer.contents(&file(2)).unwrap()
    };
    contents[40] ^= 1;
    let last = contents.len() - 1;
    contents[last] ^= 1;
    disk.set_contents(&file(2), contents);
    let report = opens_with(
        &disk,
        &["rotated, next file half made"],
        "file not in index",
        "5 entries 0.0..=1.4",
    );
    assert!(report.doubted && report.cut.is_some_and(|cut| cut.doubted));
}

#[test]
fn without_syncing_every_cut_leaves_a_doubt() {
    let disk = torn(|entry| entry[..40].to_vec());
    let options = StoreOptions {
        durability: Durability::Os,
        ..workload::options()
    };
    let (_, report) = workload::open_with(&disk, options).unwrap();
    assert!(report.doubted);
}

#[test]
fn another_rings_log_is_refused() {
    let disk = stopped();
    let mut options = workload::options();
    options.ring = raft_types::RingId::default();
    let error = workload::open_with(&disk, options.clone())
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, OpenError::ForeignRing { .. }), "{error}");

    // One file of another ring's log, among the files of this ring.
    let other = FaultyDisk::new();
    let (mut store, _) = workload::open_with(&other, options).unwrap();
    let entries = vec![membership(id(0, 0), &[1, 2, 3]), rotate(id(0, 1))];
    append(&mut store, entries).unwrap();
    append(&mut store, vec![blank(id(0, 2))]).unwrap();
    disk.set_contents(&file(2), other.contents(&file(2)).unwrap());
    let error = open(&disk).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::ForeignRing { .. }), "{error}");
}

#[test]
fn a_start_reports_its_verification_progress() {
    let disk = stopped();
    let (_store, report) = open(&disk).unwrap();
    let bytes = [1, 2].map(|number| disk.contents(&file(number)).unwrap().len() as u64);
    let verified = (report.verified_entries, report.verified_bytes);
    assert_eq!(verified, (7, bytes.iter().sum()));
}

#[test]
fn a_directory_that_cannot_be_listed_has_not_lost_its_files() {
    let disk = stopped();
    let listed = {
        let sound = disk.fork();
        let before = sound.calls();
        open(&sound).unwrap();
        let mut record = sound.record().into_iter();
        let call = record.find(|call| call.number > before && call.what.starts_with("list"));
        call.unwrap().number - before
    };
    disk.fail_call(disk.calls() + listed, CallFault::Io);
    let error = open(&disk).map(|_| ()).unwrap_err();
    assert!(
        error.to_string().contains("listing") && !error.is_corruption(),
        "{error}"
    );
}

/// A log may have more files than the few thousand that a process may open. So a start opens them in turn, as a running member does.
#[test]
fn a_start_has_few_files_open_however_many_the_log_has() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    for index in 0..120 {
        // The term changes within some of the files that a start does not read in full.
        let term = 1 + index / 7;
        save_vote(&mut store, term).unwrap();
        let entry = match index % 2 {
            0 => transaction(id(term, index), 10),
            _ => rotate(id(term, index)),
        };
        append(&mut store, vec![entry]).unwrap();
        save_committed(&mut store, id(term, index)).unwrap();
    }
    drop(store);
    for verify_at_start in [
        VerifyAtStart::All,
        VerifyAtStart::Recent,
        VerifyAtStart::New,
    ] {
        disk.restart_process();
        // The count of open files begins at zero here.
        disk.most_open_files();
        let options = StoreOptions {
            verify_at_start,
            ..workload::options()
        };
        let (store, report) = workload::open_with(&disk, options).unwrap();
        let most = disk.most_open_files();
        assert_eq!(report.files, 61);
        assert!(most <= 4, "{verify_at_start:?}: {most} files were open");
        drop(store);
    }
}

#[test]
fn a_gap_between_files_is_refused() {
    let disk = stopped();
    let (mut store, _) = open(&disk).unwrap();
    append(&mut store, vec![rotate(id(1, 7)), blank(id(1, 8))]).unwrap();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    disk.delete(&file(2));
    // This holds with or without an index that names the file.
    refuses(&disk, &["binlog.000002", "missing"]);
    disk.delete(&log_dir().join("binlog.index"));
    refuses(&disk, &["binlog.000002", "missing"]);
}

#[test]
fn a_damaged_record_of_the_hard_state_is_refused() {
    let disk = stopped();
    disk.meta().put("vote", b"\x01\0\0\0\0{}").unwrap();
    assert!(matches!(
        refuses(&disk, &["`vote`", "damaged"]),
        OpenError::MetaDamaged { .. }
    ));
}

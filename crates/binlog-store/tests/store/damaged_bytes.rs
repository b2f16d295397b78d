//! Flips one bit in every byte of every file, one at a time. Damage is never silent: the log either refuses to open and names the file, or
//! has exactly its original entries.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use crate::workload::{
    append, log_dir, log_files, open, open_with, options, read_all, save_committed, save_vote,
};
use binlog_store::{OpenError, VerifyAtStart};
use raft_types::OpId;
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{blank, membership, rotate, transaction};

fn id(term: u64, index: u64) -> OpId {
    OpId::new(term, index)
}

/// Three files, the last one with or without entries.
fn log(last_has_entries: bool) -> FaultyDisk {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    append(&mut store, vec![membership(id(0, 0), &[1, 2, 3])]).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(
        &mut store,
        vec![blank(id(1, 1)), transaction(id(1, 2), 60), rotate(id(1, 3))],
    )
    .unwrap();
    append(
        &mut store,
        vec![
            transaction(id(1, 4), 30),
            transaction(id(1, 5), 40),
            rotate(id(1, 6)),
        ],
    )
    .unwrap();
    if last_has_entries {
        append(
            &mut store,
            vec![
                transaction(id(1, 7), 30),
                transaction(id(1, 8), 30),
                blank(id(1, 9)),
            ],
        )
        .unwrap();
    }
    save_committed(&mut store, id(1, 5)).unwrap();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    disk
}

#[test]
fn a_flipped_bit_anywhere_is_reported_with_its_file() {
    for last_has_entries in [true, false] {
        let whole = log(last_has_entries);
        let entries = read_all(&open(&whole).unwrap().0).unwrap();
        let files = log_files(&whole);
        let mut flips = 0;
        for (name, bytes) in files.iter().filter(|(name, _)| *name != "binlog.index") {
            for offset in 0..bytes.len() as u64 {
                let disk = whole.fork();
                assert!(disk.flip_bit(&log_dir().join(name), offset, (offset % 8) as u8));
                flips += 1;
                match open(&disk) {
                    Err(error @ (OpenError::Corrupt { .. } | OpenError::EntriesMissing { .. })) => {
                        let lost_at_the_end = matches!(error, OpenError::EntriesMissing { .. });
                        let message = error.to_string();
                        assert!(
                            lost_at_the_end || message.contains(name.as_str()),
                            "{name} at {offset}: {message}"
                        );
                        assert!(error.is_corruption());
                    }
                    Err(OpenError::ForeignRing { .. }) => panic!("a checksum protects the ring id"),
                    Err(other) => panic!("{name} at {offset}: {other}"),
                    // If the file has no entries, its header is written again.
                    Ok((store, report)) => {
                        assert_eq!(
                            report.cases,
                            ["rotated, next file half made"],
                            "{name} at {offset}"
                        );
                        assert_eq!(read_all(&store).unwrap(), entries, "{name} at {offset}");
                        assert_eq!(log_files(&disk), files, "{name} at {offset}");
                    }
                }
            }
        }
        println!("{flips} bits turned");
    }
}

#[test]
fn a_damaged_index_is_rebuilt() {
    let whole = log(true);
    let index = log_dir().join("binlog.index");
    for offset in 0..whole.contents(&index).unwrap().len() as u64 {
        let disk = whole.fork();
        disk.flip_bit(&index, offset, 0);
        match open(&disk) {
            Ok(_) => assert_eq!(log_files(&disk), log_files(&whole), "at {offset}"),
            // The damaged name is a valid name of a missing file.
            Err(error) => assert!(
                matches!(error, OpenError::FileMissing { .. }),
                "at {offset}: {error}"
            ),
        }
    }
}

/// With [`VerifyAtStart::Recent`], damage in an old file is found when the file is read.
#[test]
fn damage_that_a_quick_start_skips_is_found_by_the_reader() {
    let disk = log(true);
    let first = log_dir().join("binlog.000001");
    assert!(disk.flip_bit(&first, disk.contents(&first).unwrap().len() as u64 - 250, 1));
    let quick = binlog_store::StoreOptions {
        verify_at_start: VerifyAtStart::Recent,
        cache_bytes: 1,
        ..options()
    };
    let (store, report) = open_with(&disk, quick).unwrap();
    assert!(report.verified_entries < 10, "{report}");
    let error = read_all(&store).unwrap_err().to_string();
    assert!(
        error.contains("binlog.000001") && error.contains("at offset"),
        "{error}"
    );
}

/// A damaged last entry is truncated if no durable mark covers it, and refused otherwise.
#[test]
fn the_last_entry_is_truncated_only_without_a_durable_mark() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open(&disk).unwrap();
    append(&mut store, vec![blank(id(0, 0))]).unwrap();
    append(&mut store, vec![transaction(id(0, 1), 30)]).unwrap();
    // The member crashes, so no durable mark is stored.
    disk.power_cycle(Survival::Nothing);
    drop(store);
    let file = log_dir().join("binlog.000001");
    let end = disk.contents(&file).unwrap().len() as u64;

    let crashed = disk.fork();
    assert!(crashed.flip_bit(&file, end - 10, 0));
    let (store, report) = open(&crashed).unwrap();
    assert!(report.cut.is_some());
    assert_eq!(read_all(&store).unwrap().len(), 1);

    // After a start and a clean stop, the durable mark covers the entry.
    drop(open(&disk).unwrap());
    assert!(disk.flip_bit(&file, end - 10, 0));
    assert!(matches!(
        open(&disk).map(|_| ()).unwrap_err(),
        OpenError::EntriesMissing { .. }
    ));
}

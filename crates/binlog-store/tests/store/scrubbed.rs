//! Files that were verified once need not be verified at the next start. The scrub finds later damage, and another member's bytes replace
//! the file, with a power cut after any call.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::workload;
use crate::workload::{
    append, log_dir, log_files, open, open_with, options, purge, save_committed, save_vote,
};
use binlog_store::{
    BinlogStore, FileNumber, LogHandle, LogPlace, ScrubStep, StoreOptions, VerifyAtStart,
};
use futures::executor::block_on;
use openraft::RaftLogReader;
use raft_types::{FilePart, OpId};
use testkit::disk::{CallFault, FaultyDisk, Survival};
use testkit::log_entries::{blank, membership, rotate, transaction};

const FAST: u64 = u64::MAX;

fn id(index: u64) -> OpId {
    OpId::new(1, index)
}

fn new() -> StoreOptions {
    StoreOptions {
        verify_at_start: VerifyAtStart::New,
        ..options()
    }
}

/// Appends a file of three entries that start at index `first`, and closes it.
fn file(store: &mut BinlogStore, first: u64) {
    let entries = vec![
        transaction(id(first), 200),
        transaction(id(first + 1), 300),
        rotate(id(first + 2)),
    ];
    append(store, entries).unwrap();
    save_committed(store, id(first + 2)).unwrap();
}

/// A log of four closed files and the current one; opening it has verified all of them.
fn log() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, new()).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![membership(id(0), &[1, 2, 3])]).unwrap();
    for first in [1, 4, 7, 10] {
        file(&mut store, first);
    }
    append(&mut store, vec![blank(id(13)), transaction(id(14), 50)]).unwrap();
    drop(store);
    disk.restart_process();
    drop(open_with(&disk, new()).unwrap());
    disk.restart_process();
    disk
}

fn verified_at_a_start(disk: &FaultyDisk, options: StoreOptions) -> u64 {
    let disk = disk.fork();
    let (_, report) = open_with(&disk, options).unwrap();
    report.verified_bytes
}

fn recent() -> StoreOptions {
    StoreOptions {
        verify_at_start: VerifyAtStart::Recent,
        ..options()
    }
}

#[test]
fn a_start_verifies_files_that_were_never_verified() {
    let disk = log();
    let all = verified_at_a_start(&disk, options());
    let least = verified_at_a_start(&disk, recent());
    assert!(least < all);
    assert_eq!(verified_at_a_start(&disk, new()), least);

    // Four more files are closed, and the member ends before they are verified.
    let (mut store, _) = open_with(&disk, new()).unwrap();
    for first in [15, 18, 21, 24] {
        file(&mut store, first);
    }
    drop(store);
    disk.restart_process();
    let least = verified_at_a_start(&disk, recent());
    let read = verified_at_a_start(&disk, new());
    assert!(least < read && read < verified_at_a_start(&disk, options()));

    // Alternatively, the scrub verifies them.
    let (store, _) = open_with(&disk, recent()).unwrap();
    assert!(store.scrub_progress().unverified_bytes > 0);
    let scrubbed: Vec<_> = std::iter::repeat_with(|| store.scrub_step(FAST, 0))
        .take_while(|step| *step != ScrubStep::Nothing)
        .collect();
    assert!(
        scrubbed
            .iter()
            .all(|step| matches!(step, ScrubStep::Good(_))),
        "{scrubbed:?}"
    );
    let progress = store.scrub_progress();
    assert_eq!((progress.unverified_bytes, progress.damaged), (0, 0));
    assert_eq!(progress.completed_at, Some(0));
    drop(store);
    disk.restart_process();
    assert_eq!(verified_at_a_start(&disk, new()), least);
}

/// If a file is not read whole, its header and the next file's show the terms, provided that it has only one term.
#[test]
fn a_start_that_steps_over_files_knows_the_terms_of_their_entries() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, new()).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![membership(id(0), &[1, 2, 3])]).unwrap();
    for first in [1, 4] {
        file(&mut store, first);
    }
    // The term changes within a file, then between two files, then within the last file.
    for (term, first, last) in [
        (1, 7, 7),
        (2, 8, 9),
        (2, 10, 12),
        (3, 13, 15),
        (3, 16, 16),
        (4, 17, 18),
    ] {
        save_vote(&mut store, term).unwrap();
        let ends = |index| matches!(index, 9 | 12 | 15);
        let entries = (first..=last).map(|index| match ends(index) {
            true => rotate(OpId::new(term, index)),
            false => transaction(OpId::new(term, index), 50),
        });
        append(&mut store, entries.collect()).unwrap();
        save_committed(&mut store, OpId::new(term, last)).unwrap();
    }
    let terms = |disk: &FaultyDisk, verify_at_start| {
        let options = StoreOptions {
            verify_at_start,
            ..options()
        };
        let disk = disk.fork();
        disk.restart_process();
        let (store, _) = open_with(&disk, options).unwrap();
        let runs = store.term_runs().into_iter();
        let runs: Vec<_> = runs.map(|run| (run.term, run.first, run.last)).collect();
        runs
    };
    let all = [
        VerifyAtStart::All,
        VerifyAtStart::New,
        VerifyAtStart::Recent,
    ];
    for verify in all {
        let whole = [(1, 0, 7), (2, 8, 12), (3, 13, 16), (4, 17, 18)];
        assert_eq!(terms(&disk, verify), whole, "{verify:?}");
    }
    purge(&mut store, id(3)).unwrap();
    for verify in all {
        let rest = [(1, 4, 7), (2, 8, 12), (3, 13, 16), (4, 17, 18)];
        assert_eq!(terms(&disk, verify), rest, "{verify:?}");
    }
}

/// Progress is reported after each file, and within a large file at the first entry end more than 8 MiB after the last report.
#[test]
fn a_start_tells_how_far_it_has_read() {
    const MIB: usize = 1 << 20;
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, new()).unwrap();
    save_vote(&mut store, 1).unwrap();
    append(&mut store, vec![membership(id(0), &[1, 2, 3])]).unwrap();
    file(&mut store, 1);
    let large = (4..=6).map(|index| transaction(id(index), 5 * MIB));
    append(&mut store, large.chain([rotate(id(7))]).collect()).unwrap();
    append(&mut store, vec![transaction(id(8), 50)]).unwrap();
    drop(store);
    disk.restart_process();

    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let options = StoreOptions {
        progress: Some(Arc::new(move |progress| {
            hears.lock().unwrap().push(progress)
        })),
        ..options()
    };
    open_with(&disk, options).unwrap();
    let sizes = log_files(&disk).into_iter();
    let sizes: Vec<u64> = sizes
        .filter(|(name, _)| name != "binlog.index")
        .map(|(_, bytes)| bytes.len() as u64)
        .collect();
    let total_bytes = sizes.iter().sum();
    let told = told.lock().unwrap().clone();
    let done: Vec<u64> = told.iter().map(|told| told.done_bytes).collect();
    assert!(
        told.iter().all(|told| told.total_bytes == total_bytes),
        "{told:?}"
    );
    let [first, within, second, all] = done[..] else {
        panic!("{told:?}");
    };
    assert_eq!(
        (first, second, all),
        (sizes[0], sizes[0] + sizes[1], total_bytes)
    );
    let within = within as usize - first as usize;
    assert!((10 * MIB..11 * MIB).contains(&within), "{within}");
}

/// The mark names the last entry of its file. If the log was truncated and continued with other entries, the file has another last entry.
#[test]
fn a_verified_mark_of_a_truncated_log_is_invalid() {
    let disk = log();
    let (mut store, _) = open_with(&disk, new()).unwrap();
    workload::cut_back(&mut store, Some(id(5))).unwrap();
    save_vote(&mut store, 2).unwrap();
    let later = |index| OpId::new(2, index);
    for first in [6, 9, 12, 15] {
        let entries = vec![
            transaction(later(first), 200),
            transaction(later(first + 1), 300),
            rotate(later(first + 2)),
        ];
        append(&mut store, entries).unwrap();
        save_committed(&mut store, later(first + 2)).unwrap();
    }
    drop(store);
    disk.restart_process();
    assert_eq!(
        verified_at_a_start(&disk, new()),
        verified_at_a_start(&disk, options())
    );
}

/// Flips a bit of the second file, which has been verified.
fn rot(disk: &FaultyDisk) -> FileNumber {
    let file = FileNumber::FIRST.next();
    let path = log_dir().join(file.name());
    let bytes = disk.contents(&path).unwrap();
    assert!(disk.flip_bit(&path, bytes.len() as u64 / 2, 3));
    file
}

/// Assembles the file from the parts that `give` returns.
fn repair(
    log: &LogHandle,
    file: FileNumber,
    give: impl Fn(FilePart) -> io::Result<bytes::Bytes>,
) -> io::Result<()> {
    let mut repair = log.begin_repair(file)?.expect("a closed file");
    while let Some(part) = repair.next_part() {
        repair.write(&give(part)?)?;
    }
    repair.finish()
}

#[test]
fn damage_is_found_and_repaired_with_another_members_bytes() {
    let disk = log();
    let other = disk.fork();
    let (other, _) = open_with(&other, new()).unwrap();
    let whole = log_files(&disk);
    let damaged = rot(&disk);
    assert!(open(&disk.fork()).is_err(), "a full read finds it");
    let (store, _) = open_with(&disk, new()).unwrap();

    let mut steps = Vec::new();
    loop {
        match store.scrub_step(FAST, 5) {
            ScrubStep::Nothing => break,
            step => steps.push(step),
        }
    }
    let found = steps
        .iter()
        .filter(|step| **step == ScrubStep::Damaged(damaged));
    assert_eq!((found.count(), steps.len()), (1, 4), "{steps:?}");
    let faults = store.read_faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].file, damaged);
    assert!(faults[0].why.contains(&damaged.name()), "{faults:?}");
    assert_eq!(store.failure(), None);

    // Bytes that are damaged as well, or belong to another file, change nothing.
    let before = log_files(&disk);
    let spoilt = |part: FilePart| {
        let mut bytes = block_on(other.part_of_file(part))?.to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        Ok(bytes.into())
    };
    let refused = repair(&store, damaged, spoilt).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    let foreign = |part: FilePart| {
        let part = FilePart {
            last: OpId::new(9, part.last.index),
            ..part
        };
        block_on(other.part_of_file(part))
    };
    let refused = repair(&store, damaged, foreign).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    assert_eq!(log_files(&disk), before);

    repair(&store, damaged, |part| block_on(other.part_of_file(part))).unwrap();
    assert_eq!(log_files(&disk), whole);
    assert_eq!(store.read_faults(), []);
    let progress = store.scrub_progress();
    assert_eq!((progress.damaged, progress.repaired), (1, 1));
    assert_eq!(
        workload::read_all(&store).unwrap(),
        workload::read_all(&other).unwrap()
    );
    drop(store);
    disk.restart_process();
    open(&disk).unwrap();
}

/// The applier also reads files that the scrub read long ago.
#[test]
fn damage_that_an_applier_meets_is_noted_and_replaced() {
    let disk = log();
    let other = disk.fork();
    let (other, _) = open_with(&other, new()).unwrap();
    let whole = log_files(&disk);
    let damaged = rot(&disk);
    let options = StoreOptions {
        cache_bytes: 10,
        ..new()
    };
    let (store, _) = open_with(&disk, options).unwrap();
    let mut reader = store.reader();
    let read = block_on(reader.limited_get_log_entries(4, 7));
    let told = read.unwrap_err().to_string();
    assert!(told.contains("which have it whole"), "{told}");
    let faults = store.read_faults();
    let files: Vec<_> = faults.iter().map(|fault| fault.file).collect();
    assert_eq!(files, [damaged]);
    repair(&store, damaged, |part| block_on(other.part_of_file(part))).unwrap();
    assert_eq!(log_files(&disk), whole);
    assert_eq!(store.read_faults(), []);
    block_on(reader.limited_get_log_entries(4, 7)).unwrap();
}

/// Two adjacent files are damaged. The current file can be repaired only after it is closed, but the closed file before it need not wait.
#[test]
fn a_file_is_replaced_although_the_next_ones_header_is_damaged() {
    let disk = log();
    let other = disk.fork();
    let (other, _) = open_with(&other, new()).unwrap();
    let whole = log_files(&disk);
    let (store, _) = open_with(&disk, new()).unwrap();
    let damaged = FileNumber::new(4).unwrap();
    let path = log_dir().join(damaged.name());
    let middle = disk.contents(&path).unwrap().len() as u64 / 2;
    assert!(disk.flip_bit(&path, middle, 3));
    assert!(disk.flip_bit(&log_dir().join(damaged.next().name()), 1, 3));
    repair(&store, damaged, |part| block_on(other.part_of_file(part))).unwrap();
    assert_eq!(disk.contents(&path).unwrap(), whole[&damaged.name()]);
}

/// The disk reports a failed sync only once. If the scrub kept the error to itself, the writer could assume that its own next sync, of a
/// vote, had succeeded.
#[test]
fn a_failed_sync_of_the_scrub_record_stops_the_writer() {
    const LATER: u64 = 1 << 40;
    let step = |disk: &FaultyDisk, fails: &[u64]| {
        for call in fails {
            disk.fail_call(*call, CallFault::Io);
        }
        let (store, _) = open_with(disk, new()).unwrap();
        let before = disk.calls();
        let step = store.scrub_step(FAST, LATER);
        assert!(matches!(step, ScrubStep::Good(_)), "{step:?}");
        (before, store.failure())
    };
    let disk = log();
    let rehearsal = disk.fork();
    let (before, failure) = step(&rehearsal, &[]);
    assert_eq!(failure, None);
    let calls = rehearsal.record().into_iter();
    let flush = calls.filter(|call| call.number > before && call.what == "meta flush");
    let flush: Vec<u64> = flush.map(|call| call.number).collect();
    let (_, failure) = step(&disk, &flush);
    let failure = failure.unwrap().to_string();
    assert!(failure.contains("which files were verified"), "{failure}");
}

/// A consumer receives files that the scrub read long ago and will not read again soon.
#[test]
fn damage_found_by_a_reader_is_verified_and_repaired() {
    let disk = log();
    let (other, _) = open_with(&disk.fork(), new()).unwrap();
    let (store, _) = open_with(&disk, new()).unwrap();
    let whole = FileNumber::FIRST;
    store.found_damaged(whole, "a reader was wrong");
    assert_eq!(store.verify_again(whole), ScrubStep::Good(whole));
    assert_eq!(store.read_faults(), []);

    let damaged = rot(&disk);
    store.found_damaged(damaged, "a bit has turned");
    assert_eq!(store.read_faults()[0].why, "a bit has turned");
    assert_eq!(store.verify_again(damaged), ScrubStep::Damaged(damaged));
    repair(&store, damaged, |part| block_on(other.part_of_file(part))).unwrap();
    assert_eq!(store.read_faults(), []);

    // The same holds if the disk returns a read error, until it returns the bytes.
    let place = LogPlace {
        file: damaged,
        offset: 4,
    };
    disk.fail_call(disk.calls() + 1, CallFault::Io);
    block_on(store.read_file(place, 100)).unwrap_err();
    assert_eq!(store.read_faults()[0].file, damaged);
    assert_eq!(store.verify_again(damaged), ScrubStep::Good(damaged));
    assert_eq!(store.read_faults(), []);
}

/// The end of a file is compared with the next file's header. If that header is damaged, the file before it still counts as intact.
#[test]
fn damage_at_the_start_of_a_file_is_not_attributed_to_the_previous_one() {
    let disk = log();
    let (other, _) = open_with(&disk.fork(), new()).unwrap();
    let (store, _) = open_with(&disk, new()).unwrap();
    let (first, second) = (FileNumber::FIRST, FileNumber::FIRST.next());
    assert!(disk.flip_bit(&log_dir().join(second.name()), 1, 3));

    let steps: Vec<_> = std::iter::repeat_with(|| store.scrub_step(FAST, 5))
        .take_while(|step| *step != ScrubStep::Nothing)
        .collect();
    let good = |number| ScrubStep::Good(FileNumber::new(number).unwrap());
    assert_eq!(steps, [ScrubStep::Damaged(second), good(3), good(4)]);
    let faulty: Vec<_> = store.read_faults().iter().map(|one| one.file).collect();
    assert_eq!(faulty, [second]);
    assert_eq!(store.verify_again(second), ScrubStep::Damaged(second));

    repair(&store, second, |part| block_on(other.part_of_file(part))).unwrap();
    assert_eq!(store.read_faults(), []);
    assert_eq!(store.verify_again(first), ScrubStep::Good(first));
}

#[test]
fn a_repair_is_atomic_at_every_crash_point() {
    let disk = log();
    let (other, _) = open_with(&disk.fork(), new()).unwrap();
    let whole = log_files(&disk);
    let file = rot(&disk);
    let damaged = log_files(&disk);
    let (mut old, mut done) = (0, false);
    for call in 1.. {
        for survival in [Survival::Nothing, Survival::Everything] {
            let disk = disk.fork();
            let (store, _) = open_with(&disk, new()).unwrap();
            disk.cut_power_after(disk.calls() + call);
            let repaired = repair(&store, file, |part| block_on(other.part_of_file(part)));
            done = repaired.is_ok() && !disk.is_off();
            drop(store);
            disk.power_cycle(survival);
            let (store, _) = open_with(&disk, new()).unwrap();
            let now = log_files(&disk);
            if now == damaged {
                old += 1;
                assert!(
                    repaired.is_err(),
                    "call {call}: the repair was reported as done"
                );
                let again = repair(&store, file, |part| block_on(other.part_of_file(part)));
                again.unwrap();
            }
            assert_eq!(log_files(&disk), whole, "call {call}");
        }
        if done {
            break;
        }
    }
    assert!(old > 3, "{old}");
}

/// The status of a member is requested often, and must not wait for its disk.
#[test]
fn scrub_progress_is_reported_while_the_disk_is_slow() {
    const SLOW: Duration = Duration::from_millis(400);
    let disk = log();
    let (store, _) = open_with(&disk, new()).unwrap();
    let log = store.handle();
    for call in 1..=100 {
        disk.fail_call(disk.calls() + call, CallFault::Slow(SLOW));
    }
    let scrubbed = log.clone();
    let scrub = std::thread::spawn(move || scrubbed.scrub_step(FAST, 1_000_000));
    let mut longest = Duration::ZERO;
    while !scrub.is_finished() {
        let asked = Instant::now();
        let _ = log.scrub_progress();
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(scrub.join().unwrap(), ScrubStep::Good(_)));
    assert!(longest < SLOW / 2, "{longest:?}");
    disk.forget_faults();
}

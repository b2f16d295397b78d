//! Bytes in memory and in files are identical, and a failure of the folder loses no byte.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::time::{Duration, Instant};

use spilling_bytes::{Gathered, SPILLED_FROM, SpillFolder, SpillingBytes};
use testkit::real_disks::LoopDisk;

/// Bytes that are different in each piece.
fn pattern(length: usize) -> Vec<u8> {
    let word = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..length)
        .map(|at| word(at / 8).to_le_bytes()[at % 8])
        .collect()
}

fn gathered(folder: &SpillFolder, bytes: &[u8], piece: usize, announced: usize) -> Gathered {
    let mut spilling = SpillingBytes::begin(folder, announced);
    for piece in bytes.chunks(piece) {
        spilling.push(piece);
    }
    assert_eq!(spilling.len(), bytes.len());
    spilling.finish().unwrap()
}

fn wait_until_none(folder: &SpillFolder) {
    let begun = Instant::now();
    while folder.bytes() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "a file is kept");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn small_and_large_payloads_keep_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let folder = SpillFolder::open(dir.path().join("spill"), 0);
    let all = pattern(SPILLED_FROM + (3 << 20) + 7);
    let lengths = [0, 1, 1 << 20, SPILLED_FROM - 1, SPILLED_FROM, all.len()];
    for length in lengths {
        for piece in [8192 + 1, 1 << 20, all.len()] {
            for announced in [0, length, 2 * length] {
                let bytes = &all[..length];
                let gathered = gathered(&folder, bytes, piece, announced);
                assert!(gathered.bytes == bytes, "{length} {piece} {announced}");
                assert_eq!(gathered.crc32c, crc32c::crc32c(bytes));
                let in_file = if length >= SPILLED_FROM { length } else { 0 };
                if announced <= length {
                    assert_eq!(folder.bytes(), in_file as u64, "{length} {piece}");
                }
                let part = gathered.bytes.slice(length / 2..);
                drop(gathered);
                assert!(part == bytes[length / 2..]);
                drop(part);
                wait_until_none(&folder);
            }
        }
    }
    assert_eq!(fs::read_dir(dir.path().join("spill")).unwrap().count(), 0);
}

#[test]
fn leftover_files_are_removed_at_open() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("payload-3"), "left").unwrap();
    fs::write(dir.path().join("foreign"), "kept").unwrap();
    SpillFolder::open(dir.path(), 0);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn payloads_stay_in_memory_without_folder_or_room() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let no_folder = SpillFolder::open(file.join("spill"), 0);
    assert!(no_folder.is_off());
    let no_room = SpillFolder::open(dir.path().join("spill"), u64::MAX / 2);
    let gone = SpillFolder::open(dir.path().join("gone"), 0);
    fs::remove_dir(dir.path().join("gone")).unwrap();
    let bytes = pattern(SPILLED_FROM + 5);
    for folder in [SpillFolder::default(), no_folder, no_room, gone] {
        for announced in [0, bytes.len()] {
            let gathered = gathered(&folder, &bytes, 100_000, announced);
            assert_eq!(folder.bytes(), 0);
            assert!(gathered.bytes == bytes);
            assert_eq!(gathered.crc32c, crc32c::crc32c(&bytes));
        }
    }
}

/// Needs root and a loop device, as all tests with real disks do.
#[test]
fn full_disk_during_spill_loses_no_byte() {
    let home = tempfile::tempdir().unwrap();
    let mounted = home.path().join("disk");
    fs::create_dir(&mounted).unwrap();
    let disk = LoopDisk::mount(&mounted, home.path(), 96 << 20).unwrap();
    let folder = SpillFolder::open(mounted.join("spill"), 0);
    let bytes = pattern(SPILLED_FROM + (4 << 20));
    let (first, rest) = bytes.split_at(SPILLED_FROM / 2);
    let mut spilling = SpillingBytes::begin(&folder, bytes.len());
    for piece in first.chunks(8192) {
        spilling.push(piece);
    }
    assert!(folder.bytes() > 0);
    disk.fill().unwrap();
    for piece in rest.chunks(8192) {
        spilling.push(piece);
    }
    assert_eq!(folder.bytes(), 0);
    let gathered = spilling.finish().unwrap();
    assert!(gathered.bytes == bytes);
    assert_eq!(gathered.crc32c, crc32c::crc32c(&bytes));

    // The disk has room for the file, but not also for the log's copy.
    disk.make_room().unwrap();
    let tight = SpillFolder::open(mounted.join("spill"), 64 << 20);
    assert!(self::gathered(&tight, &bytes, 8192, bytes.len()).bytes == bytes);
    let in_file = self::gathered(&folder, &bytes, 8192, bytes.len());
    assert_eq!(folder.bytes(), bytes.len() as u64);
    drop(in_file);
    wait_until_none(&folder);
}

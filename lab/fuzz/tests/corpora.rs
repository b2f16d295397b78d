//! Runs all stored inputs, and mutations of them, through their targets. This is one test, because targets measure the memory of the whole
//! process.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz_targets::{Target, targets};

/// The fixed seed of the mutations.
const SEED: u64 = 86;
/// Maximum number of mutations for each target.
const MUTATIONS: usize = 1000;
/// Maximum total size of a target's mutations, in bytes. Targets with large inputs therefore run fewer mutations.
const MUTATED_BYTES: usize = 4 << 20;

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// Returns the names in a folder, in order. A missing folder has no names.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let name = |entry: io::Result<fs::DirEntry>| entry.expect("a file's name").file_name();
    entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect()
}

/// Returns the inputs in a folder, each with its path.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = names(folder).into_iter().map(|name| folder.join(name));
    paths
        .map(|path| (path.clone(), fs::read(&path).expect("an input")))
        .collect()
}

/// Runs an input. Saves a failing input in `found/`, and returns an error with its path.
fn run(target: &Target, input: &[u8], origin: &str) -> Result<bool, String> {
    let read = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    read.map_err(|_| {
        let kept = folder("found").join(target.name);
        let path = kept.join(format!("{:08x}", crc32fast::hash(input)));
        fs::create_dir_all(&kept).expect("a folder for what failed");
        fs::write(&path, input).expect("room for what failed");
        format!(
            "target {} fails, as said above, with {origin}; it is kept in {}",
            target.name,
            path.display()
        )
    })
}

/// Runs a target's stored inputs, and mutations of them.
fn run_all(target: &Target, random: &mut fastrand::Rng) -> Result<(), String> {
    let corpus = inputs(&folder("corpus").join(target.name));
    let found = inputs(&folder("found").join(target.name));
    let mut accepted = 0;
    for (path, input) in corpus.iter().chain(&found) {
        accepted += usize::from(run(target, input, &path.display().to_string())?);
    }
    if accepted == 0 {
        return Err(format!("target {} accepts nothing", target.name));
    }
    let mut bytes = 0;
    for _ in 0..MUTATIONS {
        let mut one = || &corpus[random.usize(..corpus.len())];
        let ((path, input), (_, other)) = (one(), one());
        let input = mutated(random, input, other);
        bytes += input.len();
        if bytes > MUTATED_BYTES {
            break;
        }
        run(target, &input, &format!("a mutation of {}", path.display()))?;
    }
    Ok(())
}

/// Values at the limits of length and count fields.
const EDGES: [u64; 8] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes an input in one to four places, or inserts a part of another input.
fn mutated(random: &mut fastrand::Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=bytes.len());
        match random.u8(..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u8(..)),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => {
                let edge = random.choice(EDGES).unwrap_or_default().to_le_bytes();
                let width = random.choice([1, 2, 4, 8]).unwrap_or(1);
                for (to, from) in bytes.iter_mut().skip(at).zip(&edge[..width]) {
                    *to = *from;
                }
            }
            4 if !other.is_empty() => {
                let from = random.usize(..other.len());
                let to = random.usize(from..=other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn every_kept_input_and_its_mutations_are_read_or_refused() {
    let known: BTreeSet<String> = targets().map(|target| target.name.to_owned()).collect();
    assert_eq!(names(&folder("corpus")), known, "a corpus for each target");
    assert!(names(&folder("found")).is_subset(&known), "found/");

    let mut random = fastrand::Rng::with_seed(SEED);
    let all = targets().map(|target| run_all(target, &mut random));
    let failed: Vec<_> = all.filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

//! Where tests put their temporary files: in memory, since those of some hundreds of mysqlds are made and synced, each of which lives
//! for seconds. What a power cut leaves is tested on disks of the tests' own, and by the simulator.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;
use testkit::figures::available_memory;

/// Where Linux has a file system in memory.
const IN_MEMORY: &str = "/dev/shm";
/// How much of it has to be free, in bytes: ten times what the suite was seen to take.
const ROOM: u64 = 8 << 30;
/// How much memory has to be available, in bytes: for these files, a dozen mysqlds and as many members.
const MEMORY: u64 = 14 << 30;

/// What the names of its folders begin with, before the process id of who made them.
const PREFIX: &str = "witness-tests-";

/// A folder for temporary files, which goes with what is in it; in memory where there is much of that, else where the system has them.
pub(super) struct ScratchFolder(Option<TempDir>);

impl ScratchFolder {
    pub(super) fn new() -> Result<Self> {
        let has_room = free_bytes(Path::new(IN_MEMORY)).is_some_and(|free| free >= ROOM);
        if !has_room || available_memory().is_none_or(|available| available < MEMORY) {
            return Ok(Self(None));
        }
        remove_what_others_left();
        // A socket's path may have at most 107 bytes.
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let made = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(IN_MEMORY);
        made.map(|folder| Self(Some(folder)))
            .with_context(|| format!("cannot make a folder in {IN_MEMORY}"))
    }

    /// Lets a program have its temporary files there.
    pub(super) fn used_by(&self, command: &mut Command) {
        if let Some(folder) = &self.0 {
            command.env("TMPDIR", folder.path());
        }
    }
}

/// Who is killed leaves its folder, and with it the memory.
fn remove_what_others_left() {
    for entry in fs::read_dir(IN_MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(maker_in);
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker.to_string()).exists()) {
            // Somebody else's, who may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that made a folder of this name.
fn maker_in(name: &str) -> Option<u32> {
    let (maker, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    maker.parse().ok()
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let told = rustix::fs::statvfs(folder).ok()?;
    told.f_bavail.checked_mul(told.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_says_who_made_it() {
        assert_eq!(maker_in("witness-tests-4711-AbCdEf"), Some(4711));
        for other in [
            "witness-tests-",
            "witness-tests-x-1",
            "sem.4711-1",
            "4711-1",
        ] {
            assert_eq!(maker_in(other), None, "{other}");
        }
    }
}

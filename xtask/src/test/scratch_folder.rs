//! The temporary files of the tests. They are in memory, because the tests start hundreds of mysqlds, each for a short time, which create
//! and sync files. Power cuts are tested on disks of their own, and by the simulator.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;
use testkit::figures::available_memory;

/// The mount point of Linux's file system in memory.
const IN_MEMORY: &str = "/dev/shm";
/// Minimum free space in that file system, in bytes: ten times what the tests have been observed to use.
const ROOM: u64 = 8 << 30;
/// Minimum available memory, in bytes: for these files, a dozen mysqlds and as many members.
const MEMORY: u64 = 14 << 30;

/// The prefix of the folders' names. The process id of the creator follows.
const PREFIX: &str = "witness-tests-";

/// A folder for temporary files, which is deleted with its contents. It is in memory if there is enough memory; otherwise the default
/// folder of the system is used.
pub(super) struct ScratchFolder(Option<TempDir>);

impl ScratchFolder {
    pub(super) fn new() -> Result<Self> {
        let has_room = free_bytes(Path::new(IN_MEMORY)).is_some_and(|free| free >= ROOM);
        if !has_room || available_memory().is_none_or(|available| available < MEMORY) {
            return Ok(Self(None));
        }
        remove_what_others_left();
        // The name is short, because the path of a socket has at most 107 bytes.
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let made = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(IN_MEMORY);
        made.map(|folder| Self(Some(folder)))
            .with_context(|| format!("cannot make a folder in {IN_MEMORY}"))
    }

    /// Makes a program use the folder for its temporary files.
    pub(super) fn used_by(&self, command: &mut Command) {
        if let Some(folder) = &self.0 {
            command.env("TMPDIR", folder.path());
        }
    }
}

/// Deletes the folders of killed processes.
fn remove_what_others_left() {
    for entry in fs::read_dir(IN_MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(maker_in);
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker.to_string()).exists()) {
            // The folder is of another run, and another process may be deleting it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the process id of the creator in a folder's name.
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
    fn a_folder_names_its_maker() {
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

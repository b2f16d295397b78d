//! File systems that a harness mounts, and how those of a killed one are found again.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bounded_run;

const LIMIT: Duration = Duration::from_secs(30);
const MOUNTS: &str = "/proc/self/mounts";

/// Source and folder of everything that is mounted.
pub(crate) fn all() -> Result<Vec<(String, PathBuf)>> {
    let mounts = fs::read_to_string(MOUNTS).context("cannot read what is mounted")?;
    Ok(parse(&mounts))
}

fn parse(mounts: &str) -> Vec<(String, PathBuf)> {
    let mount = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), PathBuf::from(words.next()?)))
    };
    mounts.lines().filter_map(mount).collect()
}

pub(crate) fn unmount(folder: &Path) -> Result<()> {
    // Lazily: a program that was killed a moment ago may still have a file open. A loop device goes with its mount.
    run("umount", &[OsStr::new("-l"), folder.as_os_str()])
}

/// Runs a program of the system, for a while at most.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    bounded_run::run(program, command, Vec::new(), LIMIT)?
        .into_text(program)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_a_source_and_a_folder() {
        let mounts =
            "/dev/loop1 /tmp/a ext4 rw 0 0\nnonsense\nwitness-1-2-3 /tmp/x tmpfs rw,size=64k 0 0\n";
        let expected = [("/dev/loop1", "/tmp/a"), ("witness-1-2-3", "/tmp/x")];
        let expected = expected.map(|(source, folder)| (source.to_owned(), folder.into()));
        assert_eq!(parse(mounts), expected);
    }
}

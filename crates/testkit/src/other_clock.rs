//! Runs programs with a wrong system clock, by Debian's libfaketime.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::debian_package;

/// Returns a command prefix that shifts the time of day for the command and its children by `by`, such as `+1h` or `-90s`. The clock
/// runs at its usual rate, as on a host with a wrong time. Do not use it for mysqld: its timed waits would use a whole processor
/// with such a clock.
///
/// # Errors
/// If the package is not available.
pub fn wrapper(by: &str) -> Result<Vec<String>> {
    Ok(vec![
        "env".to_owned(),
        format!("LD_PRELOAD={}", library()?.display()),
        format!("FAKETIME={by}"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        "DONT_FAKE_MONOTONIC=1".to_owned(),
    ])
}

/// Returns the library's path. Its folder has the name of the machine's architecture.
fn library() -> Result<PathBuf> {
    let libraries = debian_package::unpacked("libfaketime")?.join("usr/lib");
    let folders =
        fs::read_dir(&libraries).with_context(|| format!("cannot read {}", libraries.display()))?;
    folders
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library| library.is_file())
        .with_context(|| format!("{} holds no libfaketimeMT.so.1", libraries.display()))
}

//! Programs whose clock is not that of this machine, by Debian's libfaketime.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::debian_package;

/// What stands in front of a command so that it, and what it starts, takes the time of day to be another by this: `+1h`, `-90s`. How
/// time goes by stays as it is, as on a host whose clock was set wrong. No mysqld is to get it: waiting by such a clock takes all of a
/// processor.
///
/// # Errors
/// When the package is not to be had.
pub fn wrapper(by: &str) -> Result<Vec<String>> {
    Ok(vec![
        "env".to_owned(),
        format!("LD_PRELOAD={}", library()?.display()),
        format!("FAKETIME={by}"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        "DONT_FAKE_MONOTONIC=1".to_owned(),
    ])
}

/// The library stands in a folder that is named after the machine's architecture.
fn library() -> Result<PathBuf> {
    let libraries = debian_package::unpacked("libfaketime")?.join("usr/lib");
    let folders =
        fs::read_dir(&libraries).with_context(|| format!("cannot read {}", libraries.display()))?;
    folders
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library| library.is_file())
        .with_context(|| format!("{} holds no libfaketimeMT.so.1", libraries.display()))
}

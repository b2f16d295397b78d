//! Programs with a wrong system clock, by Debian's libfaketime.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::debian_package;

/// A command prefix that shifts the time of day for the command and its children by `by`: `+1h`, `-90s`. Time still passes at its usual
/// rate, as on a host with a wrongly set clock. Do not use it for mysqld: timed waits on such a clock take a whole processor.
///
/// # Errors
/// When the package is not available.
pub fn wrapper(by: &str) -> Result<Vec<String>> {
    Ok(vec![
        "env".to_owned(),
        format!("LD_PRELOAD={}", library()?.display()),
        format!("FAKETIME={by}"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        "DONT_FAKE_MONOTONIC=1".to_owned(),
    ])
}

/// The library's folder is named after the machine's architecture.
fn library() -> Result<PathBuf> {
    let libraries = debian_package::unpacked("libfaketime")?.join("usr/lib");
    let folders =
        fs::read_dir(&libraries).with_context(|| format!("cannot read {}", libraries.display()))?;
    folders
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library| library.is_file())
        .with_context(|| format!("{} holds no libfaketimeMT.so.1", libraries.display()))
}

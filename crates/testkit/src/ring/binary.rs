//! The `witness` binary that a test or a comparison runs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bounded_run;

/// A cold build on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// How it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// With debug assertions, the engine's included.
    Dev,
    /// As it is shipped.
    Release,
}

/// Builds the binary if it is not up to date, and says where it is.
///
/// # Errors
/// When it does not compile.
pub fn witness_binary(profile: Profile) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::checkout()).args([
        "build",
        "--package",
        "witness-bin",
        "--bin",
        "witness",
        "--message-format=json",
    ]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    let messages = bounded_run::run("cargo build", cargo, Vec::new(), BUILD_LIMIT)?
        .into_text("cargo build")?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "witness")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo did not say where it put the binary")
}

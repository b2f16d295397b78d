//! Builds the programs of tests and comparisons if they are out of date.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bounded_run::{self, cargo};
use crate::figures;

/// The time limit of a build from scratch on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// The build profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// With debug assertions, including those of openraft.
    Dev,
    /// Optimized, with the debug assertions of [`Self::Dev`].
    Checked,
    /// The release profile.
    Dist,
}

impl Profile {
    /// Cargo's name for the profile.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Checked => "checked",
            Self::Dist => "dist",
        }
    }

    /// The profile's folder below the target folder.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Checked | Self::Dist => self.name(),
        }
    }
}

/// The variable that is set after a build of the whole workspace, as in `cargo xtask test`. The binary in the target folder is then used as
/// it is. A build of its package alone would select other features of its dependencies and recompile them.
pub const BUILT_VARIABLE: &str = "RING_BINARY_IS_BUILT";

/// Builds the `witness` binary if it is out of date, and returns its path. See [`BUILT_VARIABLE`].
///
/// # Errors
/// If it does not compile.
pub fn witness_binary(profile: Profile) -> Result<PathBuf> {
    build("witness-bin", "--bin", "witness", profile)
}

/// Builds the example `embedded_member`, a database member without a mysqld, if it is out of date. Returns its path. See
/// [`BUILT_VARIABLE`].
///
/// # Errors
/// If it does not compile.
pub fn embedded_member(profile: Profile) -> Result<PathBuf> {
    build("witness-tests", "--example", "embedded_member", profile)
}

/// Builds the example `primary_clients`, clients that search for the primary, if it is out of date. Returns its path. See
/// [`BUILT_VARIABLE`].
///
/// # Errors
/// If it does not compile.
pub fn primary_clients(profile: Profile) -> Result<PathBuf> {
    build("witness-tests", "--example", "primary_clients", profile)
}

/// Builds the simulator if it is out of date, and returns its path. See [`BUILT_VARIABLE`].
///
/// # Errors
/// If it does not compile.
pub fn simulator_binary(profile: Profile) -> Result<PathBuf> {
    build("simulator", "--bin", "simulator", profile)
}

/// Builds the fault injector if it is out of date, and returns its path. See [`BUILT_VARIABLE`].
///
/// # Errors
/// If it does not compile.
pub fn nemesis_binary(profile: Profile) -> Result<PathBuf> {
    build("nemesis", "--bin", "nemesis", profile)
}

/// Returns cargo's path of a program of the workspace.
#[must_use]
pub fn program(profile: Profile, file: &str) -> PathBuf {
    figures::target_folder().join(profile.folder()).join(file)
}

/// Builds a program if it is out of date, and returns its path.
fn build(package: &str, kind: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    let built = match kind {
        "--example" => program(profile, &format!("examples/{name}")),
        _ => program(profile, name),
    };
    if std::env::var_os(BUILT_VARIABLE).is_some() && built.is_file() {
        return Ok(built);
    }
    let mut cargo = cargo();
    cargo.args(["build", "--message-format=json", "--profile"]);
    cargo.args([profile.name(), "--package", package, kind, name]);
    if package == "witness-bin" {
        cargo.args(["--features", "cloud"]);
    }
    let messages = bounded_run::text("cargo build", cargo, BUILD_LIMIT)?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo did not say where it put the binary")
}

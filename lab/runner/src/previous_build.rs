//! Builds the members' program from another revision, once, in a separate work tree below the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::bounded_run::{self, cargo};
use testkit::cluster::Profile;
use testkit::figures::target_folder;

/// Time limit for a build from scratch on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
const GIT_LIMIT: Duration = Duration::from_secs(60);

/// Builds the program if it was not built before. Returns its path.
///
/// # Errors
/// The revision does not exist, or it does not compile.
pub(crate) fn witness_binary(revision: &str, build: Profile) -> Result<PathBuf> {
    let commit = format!("{revision}^{{commit}}");
    let id = git(&["rev-parse", "--verify", "--short=12", &commit])
        .with_context(|| format!("there is no revision {revision}"))?;
    let (id, folder) = (id.trim(), target_folder().join("previous"));
    let (profile, arguments): (_, &[&str]) = match build {
        // An old revision may lack the profile `checked`; `dev` has the same assertions.
        Profile::Dev | Profile::Checked => ("debug", &[]),
        Profile::Dist => ("dist", &["--profile", "dist"]),
    };
    let kept = folder.join(format!("witness-{id}-{profile}"));
    if kept.is_file() {
        return Ok(kept);
    }
    println!("building the program of {id}, which takes minutes the first time");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let sources = folder.join(format!("sources-{id}"));
    if !sources.exists() {
        let at = sources.display().to_string();
        git(&["worktree", "prune"])?;
        git(&["worktree", "add", "--detach", &at, id])?;
    }
    let built = compile(&sources, &folder.join("target"), arguments);
    let removed = git(&[
        "worktree",
        "remove",
        "--force",
        &sources.display().to_string(),
    ]);
    built?;
    removed?;
    let program = folder.join("target").join(profile).join("witness");
    std::fs::copy(&program, &kept).with_context(|| format!("cannot copy {}", program.display()))?;
    Ok(kept)
}

fn compile(sources: &Path, target: &Path, arguments: &[&str]) -> Result<()> {
    let mut cargo = cargo();
    cargo
        .args([
            "build",
            "--locked",
            "--package",
            "witness-bin",
            "--bin",
            "witness",
        ])
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(sources);
    bounded_run::text("cargo build", cargo, BUILD_LIMIT).map(drop)
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(testkit::checkout()).args(arguments);
    bounded_run::text("git", git, GIT_LIMIT)
}

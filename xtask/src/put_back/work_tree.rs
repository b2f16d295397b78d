//! The committed tree in a place of its own below the target folder, into which faults are put, and what is built of it. What is
//! built stays there, so that the next fault compiles what lies above it and no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::bounded_run::{self, cargo};
use testkit::figures::target_folder;

use crate::previous_build::git_in;

/// A cold build on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// No test that finds a fault takes longer. One that does may hang for the fault, or for a machine that has more to do.
const TEST_LIMIT: Duration = Duration::from_secs(300);

pub(crate) struct WorkTree {
    folder: PathBuf,
    sources: PathBuf,
}

/// What came of a test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tested {
    /// What it did not compile for.
    DoesNotCompile(String),
    Passed,
    Failed,
    /// No test has this name.
    NoSuchTest,
    /// It did not come to its end in time.
    DidNotEnd,
}

impl WorkTree {
    /// That of the checkout's commit, as it was committed.
    ///
    /// # Errors
    /// When git cannot make it.
    pub(crate) fn open() -> Result<Self> {
        let checkout = testkit::checkout();
        let id = git_in(&checkout, &["rev-parse", "--verify", "HEAD"])?;
        let folder = target_folder().join("put-back");
        let sources = folder.join("sources");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let tree = Self { folder, sources };
        if tree.sources.join(".git").exists() {
            tree.git(&["checkout", "--quiet", "--force", "--detach", id.trim()])?;
            tree.take_back()?;
        } else {
            let at = tree.sources.display().to_string();
            git_in(&checkout, &["worktree", "prune"])?;
            git_in(&checkout, &["worktree", "add", "--detach", &at, id.trim()])?;
        }
        Ok(tree)
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        git_in(&self.sources, arguments)
    }

    /// Puts a fault in.
    ///
    /// # Errors
    /// When the patch does not apply.
    pub(crate) fn put_in(&self, patch: &Path) -> Result<()> {
        self.git(&["apply", &patch.display().to_string()])?;
        Ok(())
    }

    /// Makes the tree again what was committed.
    ///
    /// # Errors
    /// When git cannot.
    pub(crate) fn take_back(&self) -> Result<()> {
        self.git(&["reset", "--quiet", "--hard"])?;
        self.git(&["clean", "--quiet", "--force", "-d"])?;
        Ok(())
    }

    /// Builds the simulator as the tree is now, and keeps it under this name: the program, or what it did not compile for.
    ///
    /// # Errors
    /// When cargo cannot be run.
    pub(crate) fn simulator(&self, name: &str) -> Result<Result<PathBuf, String>> {
        // With the features of the whole workspace, as whatever else was built here.
        let arguments = ["build", "--locked", "--workspace", "--bin", "simulator"];
        if let Err(words) = self.cargo(&arguments)? {
            return Ok(Err(words));
        }
        let program = self.target().join("debug/simulator");
        let kept = self.folder.join(name);
        fs::copy(&program, &kept).with_context(|| format!("cannot copy {}", program.display()))?;
        Ok(Ok(kept))
    }

    /// Runs a test as the tree is now, and says how long that took without the build.
    ///
    /// # Errors
    /// When cargo cannot be run.
    pub(crate) fn test(&self, arguments: &[String]) -> Result<(Tested, Duration)> {
        // With the simulator, so that dependencies have the features that they have in it, and are compiled once.
        let mut words = vec!["test", "--locked", "--package", "simulator"];
        words.extend(arguments.iter().map(String::as_str));
        let only_built = [words.as_slice(), &["--no-run"]].concat();
        if let Err(words) = self.cargo(&only_built)? {
            return Ok((Tested::DoesNotCompile(words), Duration::ZERO));
        }
        let began = Instant::now();
        let tested = match self.run_cargo(&words, TEST_LIMIT) {
            Ok(finished) => {
                let printed = String::from_utf8_lossy(&finished.stdout);
                judged(finished.status.success(), &printed)
            }
            Err(_) => Tested::DidNotEnd,
        };
        Ok((tested, began.elapsed()))
    }

    fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// Whether cargo did it, or the first error that it printed.
    fn cargo(&self, arguments: &[&str]) -> Result<Result<(), String>> {
        let finished = self.run_cargo(arguments, BUILD_LIMIT)?;
        if finished.status.success() {
            return Ok(Ok(()));
        }
        let printed = String::from_utf8_lossy(&finished.stderr);
        let error = printed.lines().find(|line| line.starts_with("error"));
        match error {
            Some(error) => Ok(Err(error.to_owned())),
            None => bail!("cargo {} failed: {printed}", arguments.join(" ")),
        }
    }

    fn run_cargo(&self, arguments: &[&str], limit: Duration) -> Result<bounded_run::Finished> {
        let mut cargo = cargo();
        cargo
            .args(arguments)
            .env("CARGO_TARGET_DIR", self.target())
            // Two builds differ by a few lines.
            .env("CARGO_INCREMENTAL", "1")
            .current_dir(&self.sources);
        bounded_run::run("cargo", cargo, Vec::new(), limit)
    }
}

/// What a run of tests means that has compiled.
fn judged(succeeded: bool, printed: &str) -> Tested {
    let began = |line: &str| line.starts_with("running ") && !line.starts_with("running 0 ");
    match (succeeded, printed.lines().any(began)) {
        (_, false) => Tested::NoSuchTest,
        (true, true) => Tested::Passed,
        (false, true) => Tested::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_does_not_run_has_found_nothing() {
        assert_eq!(judged(true, "running 0 tests\n"), Tested::NoSuchTest);
        let two_programs = "running 0 tests\n\nrunning 1 test\ntest a ... ok\n";
        assert_eq!(judged(true, two_programs), Tested::Passed);
        assert_eq!(judged(false, two_programs), Tested::Failed);
        assert_eq!(judged(false, ""), Tested::NoSuchTest);
    }
}

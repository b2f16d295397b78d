//! The committed tree in a place of its own below the target folder, into which faults are put, and what is built of it. What is
//! built stays there, so that the next fault compiles what lies above it and no more.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::bounded_run::{self, cargo};
use testkit::figures::target_folder;
use testkit::mysql_tree::MysqlTree;

use crate::previous_build::git_in;

/// A cold build on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// Many times what any test that finds a fault takes without it.
const TEST_LIMIT: Duration = Duration::from_secs(300);
/// A machine that has no image yet makes one first.
const TASK_LIMIT: Duration = Duration::from_secs(1800);

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
    /// Or it did not come to its end in time, which some faults are about.
    Failed,
    /// No test has this name.
    NoSuchTest,
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
        // Its tests find the checkout's mysqld there. Git ignores the folder, and cleans it away no more than the target folder.
        let (mysql, here) = (MysqlTree::folder(), tree.sources.join(".mysql"));
        if mysql.exists() && !here.exists() {
            symlink(&mysql, &here).with_context(|| format!("cannot make {}", here.display()))?;
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
        // A test that does not end has noticed the fault, and must not go on for itself behind cargo's end.
        let finished = run(with_all_that_it_starts(&self.cargo_of(&words), TEST_LIMIT))?;
        let printed = String::from_utf8_lossy(&finished.stdout);
        let tested = judged(finished.status.success(), &printed);
        Ok((tested, began.elapsed()))
    }

    /// Runs a task of the tree's own `xtask` with the program as the tree is now, and says how long that took without the build.
    ///
    /// # Errors
    /// When cargo or the task cannot be run.
    pub(crate) fn task(&self, arguments: &[String]) -> Result<(Tested, Duration)> {
        let programs = ["--bin", "witness", "--bin", "xtask", "--example", "manual"];
        let build = [&["build", "--locked", "--workspace"], &programs[..]].concat();
        if let Err(words) = self.cargo(&build)? {
            return Ok((Tested::DoesNotCompile(words), Duration::ZERO));
        }
        let built = self.target().join("debug");
        let mut task = Command::new(built.join("xtask"));
        task.args(arguments).arg("--built-in").arg(&built);
        task.current_dir(&self.sources);
        let began = Instant::now();
        let finished = bounded_run::run("the task", task, Vec::new(), TASK_LIMIT)?;
        let tested = match finished.status.success() {
            true => Tested::Passed,
            false => Tested::Failed,
        };
        Ok((tested, began.elapsed()))
    }

    fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// Whether cargo did it, or the first error that it printed.
    fn cargo(&self, arguments: &[&str]) -> Result<Result<(), String>> {
        let finished = run(self.cargo_of(arguments))?;
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

    fn cargo_of(&self, arguments: &[&str]) -> Command {
        let mut cargo = cargo();
        cargo
            .args(arguments)
            .env("CARGO_TARGET_DIR", self.target())
            // Two builds differ by a few lines.
            .env("CARGO_INCREMENTAL", "1")
            .current_dir(&self.sources);
        cargo
    }
}

fn run(cargo: Command) -> Result<bounded_run::Finished> {
    bounded_run::run("cargo", cargo, Vec::new(), BUILD_LIMIT)
}

/// The same command, which is killed behind `limit` with all that it has started.
fn with_all_that_it_starts(command: &Command, limit: Duration) -> Command {
    let mut killed = Command::new("timeout");
    killed.arg("--signal=KILL").arg(limit.as_secs().to_string());
    killed.arg(command.get_program()).args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => killed.env(variable, value),
            None => killed.env_remove(variable),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        killed.current_dir(folder);
    }
    killed
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

    #[test]
    fn what_does_not_end_is_killed_with_all_that_it_started() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & echo $!; wait"]);
        let killed = run(with_all_that_it_starts(&shell, Duration::from_secs(1))).unwrap();
        assert!(!killed.status.success());
        let started = String::from_utf8(killed.stdout).unwrap();
        let is_there = || Path::new("/proc").join(started.trim()).join("exe").exists();
        // Its parent is gone, and whoever has it now may take a moment.
        let gone = || !is_there();
        testkit::wait::eventually("it is gone", Duration::from_secs(5), gone).unwrap();
    }
}

//! Runs the test programs. Decides which of them run in parallel, and which failed tests run again.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use testkit::cluster::BUILT_VARIABLE;
use testkit::mysql_tree::QUICK_VARIABLE;

use super::cargo;
use super::checking_compiler::CheckingCompiler;
use super::scratch_folder::ScratchFolder;
use crate::second_chance::{Failure, second_chances, summary};

/// Test programs that run in parallel to the others. The first one starts whole rings, and tolerates a busy machine, because its time
/// limits are tens of seconds. The second one is added so that both lanes take equally long.
const WITH_OTHERS: [&str; 2] = ["concurrent", "facts_of_mysqld"];
/// Threads of these test programs. Their tests wait more than they compute: two of them leave a fifth of two cores idle.
const THREADS: &str = "3";
/// The test program whose tests must run alone. They measure time or memory, or fail if a busy machine causes an election.
const ALONE: &str = "alone";
/// Test programs that only compute, the longest first. They have no time limits below a second.
const COMPUTING: [&str; 9] = [
    "a_seed_is_reproducible",
    "decoding",
    "exhaustive",
    "format",
    "full_disks_recover",
    "parallel_equals_serial",
    "proxying_outlives_failovers",
    "store",
    "traces_are_the_models",
];
/// Further test programs that use a mysqld in all tests. In other programs, the name of such a test contains `mysqld`.
const WITH_MYSQLD: [&str; 2] = ["mysql_target", "tail_trim"];

/// Compiles, lints and documents everything, including the programs of later steps, and benches, which are not run. A separate build would
/// compile these again with other features.
pub(super) fn build() -> Result<()> {
    let all = ["--tests", "--benches", "--examples"];
    // Programs that no test runs.
    let programs = ["--bin", "lab", "--bin", "nemesis", "--bin", "xtask"];
    let mut command = cargo(&[&["build", "--workspace"][..], &all, &programs].concat());
    CheckingCompiler::find()?.used_by(&mut command);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build ended with {status}");
    Ok(())
}

/// Runs the tests that use no mysqld.
pub(super) fn run_quick() -> Result<()> {
    let others = other_programs()?;
    let others = others
        .iter()
        .filter(|name| !WITH_MYSQLD.contains(&name.as_str()));
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--lib", "--bins"]);
    command.args(others.flat_map(|name| ["--test", name]));
    command.args(["--", "--skip", "mysqld"]);
    // With this variable, a test fails if it uses a mysqld although its name does not contain `mysqld`.
    command.env(QUICK_VARIABLE, "1").env(BUILT_VARIABLE, "1");
    CheckingCompiler::find()?.used_by(&mut command);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo test ended with {status}");
    Ok(())
}

/// Runs all tests except those that run alone and those that only compute. Failed tests may run again, each alone. Reports all failures,
/// not only the first, because the step takes long.
pub(super) fn run_most(again: bool) -> Result<Vec<Failure>> {
    let others = other_programs()?;
    let folder = &ScratchFolder::new()?;
    let mut most: Vec<&str> = vec!["--lib", "--bins"];
    most.extend(others.iter().flat_map(|name| ["--test", name]));
    // Most slow tests wait for processes, clocks and disks. They run in parallel to the other tests.
    let (concurrent, rest) = std::thread::scope(|scope| {
        let concurrent = WITH_OTHERS.map(|name| ["--test", name]).concat();
        let concurrent = scope.spawn(move || run_programs(&concurrent, Some(folder), "│ "));
        let most = run_programs(&most, Some(folder), "");
        let rest = most.and_then(|most| Ok([most, run_programs(&["--doc"], None, "")?]));
        (concurrent.join(), rest)
    });
    let concurrent = concurrent.map_err(|_| anyhow!("running tests with others panicked"))??;
    let [most, examples] = rest?;
    judged(&[concurrent, most, examples], again)
}

/// Runs the tests that only compute. Failed tests may run again, as in [`run_most`].
pub(super) fn run_computing(again: bool) -> Result<Vec<Failure>> {
    let programs = COMPUTING.map(|name| ["--test", name]).concat();
    let folder = ScratchFolder::new()?;
    judged(&[run_programs(&programs, Some(&folder), "")?], again)
}

/// Runs the tests that run alone. Their temporary files are on a disk, because they measure. Failed tests may run again, as in
/// [`run_most`].
pub(super) fn run_alone(again: bool) -> Result<Vec<Failure>> {
    judged(&[run_programs(&["--test", ALONE], None, "")?], again)
}

/// Runs failed tests again, if they may. Returns the tests that passed in their second run. `runs` has the exit status and the output of
/// each run.
fn judged(runs: &[(ExitStatus, String)], again: bool) -> Result<Vec<Failure>> {
    let failed: Vec<_> = runs
        .iter()
        .filter(|(status, _)| !status.success())
        .collect();
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let printed = || failed.iter().map(|(_, printed)| printed.as_str());
    let Some(failures) = again.then(|| second_chances(printed())).flatten() else {
        bail!("tests failed\n{}", summary(printed()));
    };
    for failure in &failures {
        eprintln!("── once more, by itself: {} ──", failure.name);
        let mut alone = cargo(&failure.once_more());
        alone.env(BUILT_VARIABLE, "1");
        CheckingCompiler::find()?.used_by(&mut alone);
        let (status, printed) = heard(&mut alone, "")?;
        if !status.success() || !printed.contains("test result: ok. 1 passed") {
            bail!("tests failed; {} failed once more", failure.name);
        }
    }
    Ok(failures)
}

/// Runs these test programs sequentially, with the features of the whole build. Returns the exit status and the output.
fn run_programs(
    which: &[&str],
    folder: Option<&ScratchFolder>,
    prefix: &str,
) -> Result<(ExitStatus, String)> {
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast"];
    arguments.extend(which);
    let mut command = cargo(&arguments);
    command.env(BUILT_VARIABLE, "1");
    CheckingCompiler::find()?.used_by(&mut command);
    if let Some(folder) = folder {
        folder.used_by(&mut command);
    }
    if which.contains(&WITH_OTHERS[0]) {
        command.env("RUST_TEST_THREADS", THREADS);
    }
    heard(&mut command, prefix)
}

/// Returns the test programs that do not run in parallel or alone, and do not only compute.
fn other_programs() -> Result<Vec<String>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let said = cargo(&arguments).output().context("cannot run cargo")?;
    let said: Metadata = serde_json::from_slice(&said.stdout).context("cargo metadata")?;
    let targets = said
        .packages
        .into_iter()
        .flat_map(|package| package.targets);
    let programs = targets.filter(|target| target.kind == ["test"]);
    let names: BTreeSet<String> = programs.map(|target| target.name).collect();
    let by_themselves = WITH_OTHERS.into_iter().chain(COMPUTING).chain([ALONE]);
    for name in by_themselves.clone() {
        ensure!(names.contains(name), "there are no tests `{name}`");
    }
    let others = |name: &String| by_themselves.clone().all(|other| other != name);
    Ok(names.into_iter().filter(others).collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<PackageTargets>,
}

#[derive(Deserialize)]
struct PackageTargets {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Runs a command. Prints its output with a prefix on each line, and returns it with the exit status.
fn heard(command: &mut Command, prefix: &str) -> Result<(ExitStatus, String)> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let errors = writer.try_clone().context("cannot make a pipe")?;
    let spawned = command.stdout(writer).stderr(errors).spawn();
    // The pipe ends only after the command's copies of the writing end are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.context("cannot run cargo")?;
    let mut printed = Vec::new();
    let mut reader = BufReader::new(reader);
    loop {
        let before = printed.len();
        if reader.read_until(b'\n', &mut printed)? == 0 {
            break;
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(prefix.as_bytes())?;
        stdout.write_all(&printed[before..])?;
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok((status, String::from_utf8_lossy(&printed).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// A test file outside of every program would not be compiled, so that its tests would never run.
    #[test]
    fn every_file_of_tests_is_in_a_program() {
        let checkout = testkit::checkout();
        let mut packages: Vec<PathBuf> = entries(&checkout.join("crates"));
        packages.extend(entries(&checkout.join("lab")));
        packages.extend(entries(&checkout));
        let mut modules = 0;
        for package in packages {
            for program in entries(&package.join("tests")) {
                if program.join("main.rs").is_file() {
                    modules += assert_all_are_modules(&program, "main.rs");
                }
            }
        }
        assert!(modules > 100, "{modules}");
    }

    fn assert_all_are_modules(folder: &Path, root: &str) -> usize {
        let text = fs::read_to_string(folder.join(root)).unwrap();
        let mut modules = 0;
        for entry in entries(folder) {
            let name = entry.file_stem().unwrap().to_string_lossy().into_owned();
            let inside = entry.join("mod.rs").is_file();
            let is_file =
                entry.extension().is_some_and(|end| end == "rs") && !entry.ends_with(root);
            if inside || is_file {
                let named = text
                    .lines()
                    .any(|line| line.ends_with(&format!("mod {name};")));
                assert!(named, "{entry:?} is not in {:?}", folder.join(root));
                modules += 1;
            }
            if inside {
                modules += assert_all_are_modules(&entry, "mod.rs");
            }
        }
        modules
    }

    /// Returns the entries of a folder. A missing folder has none.
    fn entries(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

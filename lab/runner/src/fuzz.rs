//! `cargo lab fuzz`: runs libFuzzer on the targets of `lab/fuzz/` in turn. Adds new inputs to the corpus of a target, and failing inputs to
//! `lab/fuzz/found/`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use testkit::bounded_run::{self, Finished};
use testkit::figures::target_folder;
use testkit::stop_on_interrupt;

#[derive(Args)]
pub(crate) struct Options {
    /// For how long, all targets together; building and sorting what was found come on top
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// This target alone
    #[arg(long, value_name = "TARGET")]
    only: Option<String>,
}

/// Compiler flags that make a program report its code coverage to libFuzzer. Stable Rust supports them without a sanitizer's runtime.
const FLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Time limit for the first build of all crates with these flags.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * 3600);
/// The longest turn of a target, so that each target has several turns in an hour.
const LONGEST_TURN: Duration = Duration::from_secs(120);
/// Additional time limit for a turn to end. Merging its inputs has the same limit.
const GRACE: Duration = Duration::from_secs(300);
/// Time limit for minimizing a failing input, in seconds.
const MINIMISE: u64 = 20;
/// libFuzzer's limits for an input: an input that needs more time (in seconds) or memory (in MiB) fails.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=2048"];
/// Maximum size of a generated input, in bytes.
const LARGEST: &str = "-max_len=16384";
/// Maximum number of inputs in a target's corpus in the checkout, and their maximum size in bytes. All found inputs stay in the target
/// folder for the next run on this machine.
const MOST_KEPT: usize = 16;
const LARGEST_KEPT: u64 = 2 << 10;

/// Runs `cargo lab fuzz`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = stop_on_interrupt()?;
    let targets = targets(options.only.as_deref())?;
    let program = build()?;
    let mut failures = Vec::new();
    // The time of the build does not count.
    let whole = Duration::from_secs_f64(options.minutes * 60.0);
    let share = whole.div_f64(targets.len() as f64).min(LONGEST_TURN);
    let mut spent = Duration::ZERO;
    for name in targets.iter().cycle() {
        if spent >= whole {
            break;
        }
        let target = Target::of(name, &program)?;
        let began = Instant::now();
        let (told, failed) = target.turn(share.min(whole - spent))?;
        spent += began.elapsed();
        if stop.load(Ordering::Relaxed) {
            // Ctrl-C has also interrupted the running turn, so that its result is not used.
            break;
        }
        println!("{told}");
        target.keep_new()?;
        failures.extend(failed);
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!(
        "{} inputs failed; they are in lab/fuzz/found, and `{REPLAY}` runs them:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// The command that runs all stored inputs.
const REPLAY: &str = "cargo test -p fuzz-targets";

fn fuzz_folder() -> PathBuf {
    testkit::checkout().join("lab/fuzz")
}

/// Returns the targets: all names with a corpus. A test of `fuzz-targets` checks that each target has a corpus.
fn targets(only: Option<&str>) -> Result<Vec<String>> {
    let folder = fuzz_folder().join("corpus");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    match only {
        None => Ok(names),
        Some(only) if names.iter().any(|name| name == only) => Ok(vec![only.to_owned()]),
        Some(only) => bail!(
            "there is no target `{only}`; the targets are: {}",
            names.join(", ")
        ),
    }
}

/// Builds the libFuzzer program with all targets.
fn build() -> Result<PathBuf> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
    let found = Command::new(&compiler).arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        bail!(
            "`{}` does not run, and libFuzzer is compiled by a C++ compiler: install one (Debian: `apt-get install g++`), or name it \
             in $CXX. `{REPLAY}` runs the inputs that are kept without it",
            compiler.display()
        );
    }
    let host = host()?;
    let folder = target_folder().join("fuzz");
    let mut cargo = bounded_run::cargo();
    cargo
        .current_dir(fuzz_folder().join("libfuzzer"))
        .args(["build", "--release"])
        // With an explicit `--target`, cargo does not use the flags for build scripts and macros.
        .args(["--target", &host, "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", FLAGS);
    eprintln!(
        "building the targets with marks of coverage, which takes some minutes the first time"
    );
    let built = bounded_run::run("cargo build", cargo, Vec::new(), BUILD_LIMIT)?;
    built.into_text(
        "building the targets for libFuzzer (it needs a Rust with LLVM as its code generator, such as rustup's)",
    )?;
    Ok(folder.join(host).join("release/libfuzzer"))
}

/// Returns the target triple of this machine.
fn host() -> Result<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg("-vV");
    let told = bounded_run::text("rustc -vV", rustc, GRACE)?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

/// A target and its folders.
struct Target<'a> {
    name: &'a str,
    program: &'a Path,
    /// The target's corpus in the checkout.
    corpus: PathBuf,
    found: PathBuf,
    /// All inputs with new coverage that were found on this machine.
    inputs: PathBuf,
}

impl<'a> Target<'a> {
    fn of(name: &'a str, program: &'a Path) -> Result<Self> {
        let target = Self {
            name,
            program,
            corpus: fuzz_folder().join("corpus").join(name),
            found: fuzz_folder().join("found").join(name),
            inputs: target_folder().join("fuzz/inputs").join(name),
        };
        fs::create_dir_all(&target.inputs)?;
        Ok(target)
    }

    /// Runs libFuzzer with these arguments. The time limit is `limit` plus `GRACE`.
    fn libfuzzer(&self, limit: Duration, arguments: &[OsString]) -> Result<Finished> {
        let mut command = Command::new(self.program);
        command
            .env("WITNESS_FUZZ_TARGET", self.name)
            .args(LIMITS)
            .args(arguments);
        let what = format!("libFuzzer over {}", self.name);
        bounded_run::run(what, command, Vec::new(), limit + GRACE)
    }

    /// Searches for `time`, or until an input fails. Returns a summary, and the failures.
    fn turn(&self, time: Duration) -> Result<(String, Vec<String>)> {
        let began = Instant::now();
        let seed = fastrand::u32(1..);
        let failing = tempfile::tempdir()?;
        let finished = self.libfuzzer(
            time,
            &[
                format!("-seed={seed}").into(),
                format!("-max_total_time={}", time.as_secs().max(1)).into(),
                LARGEST.into(),
                "-print_final_stats=1".into(),
                option("-artifact_prefix=", &failing.path().join("")),
                self.inputs.clone().into(),
                self.corpus.clone().into(),
            ],
        )?;
        let printed = String::from_utf8_lossy(&finished.stderr);
        let mut failures = Vec::new();
        for entry in fs::read_dir(failing.path())? {
            let path = entry?.path();
            let kept = self.keep_failing(&path)?;
            failures.push(format!(
                "{}: {} ({})",
                self.name,
                words(&printed),
                kept.display()
            ));
        }
        if failures.is_empty() && !finished.status.success() {
            bail!(
                "libFuzzer over {} ended with {}:\n{printed}",
                self.name,
                finished.status
            );
        }
        let ended = match failures.is_empty() {
            true => "none failed".to_owned(),
            false => failures.join("; "),
        };
        let (name, count) = (self.name, executed(&printed));
        let seconds = began.elapsed().as_secs_f64();
        let told = format!("{name}: {count} inputs in {seconds:.0} s; {ended}");
        Ok((told, failures))
    }

    /// Saves a failing input after minimizing it. Returns the input's path relative to the checkout.
    fn keep_failing(&self, input: &Path) -> Result<PathBuf> {
        let name = input.file_name().context("an input has a name")?;
        let kept = self.found.join(name);
        fs::create_dir_all(&self.found)?;
        fs::copy(input, &kept)?;
        // Inputs that only exceed the time limit are not minimized, because each attempt would take as long.
        if name.to_string_lossy().starts_with("crash-") {
            let limit = Duration::from_secs(MINIMISE);
            self.libfuzzer(
                limit,
                &[
                    "-minimize_crash=1".into(),
                    format!("-max_total_time={MINIMISE}").into(),
                    option("-exact_artifact_path=", &kept),
                    input.as_os_str().to_owned(),
                ],
            )?;
        }
        Ok(kept
            .strip_prefix(testkit::checkout())
            .unwrap_or(&kept)
            .to_owned())
    }

    /// Adds small inputs with new coverage to the corpus in the checkout.
    fn keep_new(&self) -> Result<()> {
        let mut kept = contents(&self.corpus)?;
        if kept.len() >= MOST_KEPT {
            return Ok(());
        }
        // The existing inputs are merged first, so that only inputs with new coverage are added.
        let merged = tempfile::tempdir()?;
        for entry in fs::read_dir(&self.corpus)? {
            let path = entry?.path();
            let name = path.file_name().context("an input has a name")?;
            fs::copy(&path, merged.path().join(name))?;
        }
        let merge = [
            "-merge=1".into(),
            merged.path().into(),
            self.inputs.clone().into(),
        ];
        let finished = self.libfuzzer(LONGEST_TURN, &merge)?;
        if !finished.status.success() {
            let printed = String::from_utf8_lossy(&finished.stderr).into_owned();
            bail!(
                "libFuzzer could not sort the inputs of {}:\n{printed}",
                self.name
            );
        }
        let mut new: Vec<_> = contents(merged.path())?
            .difference(&kept)
            .filter(|input| input.len() as u64 <= LARGEST_KEPT)
            .cloned()
            .collect();
        new.sort_by_key(Vec::len);
        for input in new {
            if kept.len() >= MOST_KEPT {
                break;
            }
            let name = format!("found-{:08x}", crc32fast::hash(&input));
            fs::write(self.corpus.join(name), &input)?;
            kept.insert(input);
        }
        Ok(())
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

fn contents(folder: &Path) -> Result<BTreeSet<Vec<u8>>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries.map(|entry| Ok(fs::read(entry?.path())?)).collect()
}

/// Returns the number of inputs that were run, from libFuzzer's last lines.
fn executed(printed: &str) -> u64 {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Describes a failure in one line: the message of the panic, or libFuzzer's error.
fn words(printed: &str) -> String {
    let mut lines = printed.lines();
    let panicked = lines.find_map(|line| Some(line.split_once(" panicked at ")?.1));
    let words = match panicked {
        Some(place) => format!("{place} {}", lines.next().unwrap_or_default()),
        None => {
            let mut lines = printed.lines();
            let error = lines.find(|line| line.contains("ERROR: libFuzzer"));
            error.unwrap_or("it failed").to_owned()
        }
    };
    // Removes the checkout's path, which is valid on this machine only.
    let checkout = format!("{}/", testkit::checkout().display());
    let words = words.replace(&checkout, "");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfuzzers_output_is_parsed() {
        let printed = "INFO: Seed: 1\nthread '<unnamed>' (7) panicked at src/x.rs:3:5:\nno  such\nnote: y\n\
                       ==7== ERROR: libFuzzer: deadly signal\nstat::number_of_executed_units: 4711\n";
        assert_eq!(executed(printed), 4711);
        assert_eq!(words(printed), "src/x.rs:3:5: no such");
        let slow = "==7== ERROR: libFuzzer: timeout after 11 seconds\n";
        assert_eq!(words(slow), slow.trim());
        assert_eq!(executed(slow), 0);
    }

    #[test]
    fn targets_are_those_with_a_corpus() {
        let all = targets(None).unwrap();
        assert!(all.contains(&"log-file".to_owned()));
        assert_eq!(targets(Some("log-file")).unwrap(), ["log-file"]);
        let unknown = targets(Some("x")).unwrap_err().to_string();
        assert!(unknown.contains("log-file"), "{unknown}");
    }
}

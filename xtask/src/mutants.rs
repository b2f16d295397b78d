//! `cargo xtask mutants`: cargo-mutants changes one thing at a time in the code that decides what is kept and who counts, and runs
//! the tests that stand beside it. A change that no test notices is a hole in the tests, or means nothing; which of them mean
//! nothing, and why, `docs/mutants.md` says.

mod checkout_copy;
mod explained;
mod outcomes;
mod table;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use testkit::bounded_run::{self, wait_within};
use testkit::figures::target_folder;
use testkit::stop_on_interrupt;

use explained::Explanations;
use outcomes::{Mutant, Outcome, Outcomes};
use table::{Counts, Table};

#[derive(Args)]
pub(crate) struct Options {
    /// This subject alone
    #[arg(long, value_name = "SUBJECT")]
    only: Option<String>,
    /// End after so many minutes; the same command goes on from there
    #[arg(long)]
    minutes: Option<f64>,
    /// Forget what earlier runs found, and run every mutant
    #[arg(long)]
    again: bool,
    /// Run nothing; say what earlier runs found
    #[arg(long, conflicts_with_all = ["minutes", "again"])]
    list: bool,
}

/// The version whose mutants were looked at. Another one has others.
const VERSION: &str = "27.1.0";
/// What was found, in the checkout.
const KEPT: &str = "docs/mutants.jsonl";
/// Compiling it may take so long, and ending it in good order.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_secs(60);
/// Who stops this program alone, and not what it has started, waits so long.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// What a mutant's tests may take, and compiling it, in seconds: several times what they take on a machine that is busy. Tests that
/// hang have noticed the mutant.
const TEST_LIMIT: &str = "120";
const BUILD_LIMIT: &str = "1800";
/// More than there are cores: tests of a ring mostly wait for its timers.
const TESTS_AT_ONCE: &str = "6";
/// A mutant is killed by one test, and most are: the harness begins no other one behind it. That is an option of the harness that is
/// not stable.
const FAIL_FAST: [&str; 2] = ["-Zunstable-options", "--fail-fast"];

/// Code that is mutated, and the tests that have to notice.
struct Subject {
    name: &'static str,
    package: &'static str,
    /// What is mutated: globs from the checkout on.
    files: &'static [&'static str],
    /// Test programs of the package; its unit tests come first.
    programs: &'static [&'static str],
    /// Parts of the names of tests that take seconds each: of a program's tests they are the last.
    slow: &'static [&'static str],
}

/// What the tests of the log take seconds for, most of them: cuts of the power at every point, faults at every call, the engine's own
/// suite.
const SLOW_OF_THE_LOG: &[&str] = &[
    "wherever_the_power_goes",
    "crash_points",
    "disk_faults",
    "engine_conformance",
    "full_disk",
    "grouped_writes",
    "histories",
    "purged_files_go",
    "same_bytes",
];

/// In the order in which they are run.
const SUBJECTS: &[Subject] = &[
    Subject {
        name: "quorum",
        package: "consensus",
        files: &[
            "crates/consensus/src/quorum/*.rs",
            "crates/consensus/src/purge_floor.rs",
        ],
        programs: &[],
        slow: &[],
    },
    Subject {
        name: "repair",
        package: "consensus",
        files: &[
            "crates/consensus/src/repair/*.rs",
            "crates/consensus/src/election/doubted_tail.rs",
            "crates/consensus/src/election/stand_in.rs",
            "crates/consensus/src/reconfiguration/membership_step.rs",
        ],
        programs: &["ring"],
        slow: &[],
    },
    Subject {
        name: "trim",
        package: "mysqld-controller",
        files: &[
            "crates/mysqld-controller/src/tail_trim/plan.rs",
            "crates/mysqld-controller/src/tail_trim/last_file.rs",
            "crates/mysqld-controller/src/tail_trim/history.rs",
        ],
        programs: &[],
        slow: &[],
    },
    Subject {
        name: "applier",
        package: "applier",
        files: &[
            "crates/applier/src/scheduler/*.rs",
            "crates/applier/src/keys/*.rs",
            "crates/applier/src/batch.rs",
        ],
        programs: &["decoding", "parallel_equals_serial"],
        slow: &[],
    },
    Subject {
        name: "recovery",
        package: "binlog-store",
        files: &["crates/binlog-store/src/recovery/*.rs"],
        programs: &["store"],
        slow: SLOW_OF_THE_LOG,
    },
    Subject {
        name: "scan",
        package: "binlog-store",
        files: &["crates/binlog-store/src/scan/*.rs"],
        programs: &["store"],
        slow: SLOW_OF_THE_LOG,
    },
    Subject {
        name: "store",
        package: "binlog-store",
        files: &[
            "crates/binlog-store/src/writer/truncation.rs",
            "crates/binlog-store/src/writer/purging.rs",
            "crates/binlog-store/src/purge/*.rs",
            "crates/binlog-store/src/meta/*.rs",
            "crates/binlog-store/src/cut_tail.rs",
        ],
        programs: &["store"],
        slow: SLOW_OF_THE_LOG,
    },
];

/// `cargo xtask mutants`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let subjects = chosen(options.only.as_deref())?;
    let explanations = Explanations::of_the_checkout()?;
    let stale = explanations.stale(&testkit::checkout());
    if !stale.is_empty() {
        bail!(
            "docs/mutants.md explains code that is not there any more:\n{}",
            stale.join("\n")
        );
    }
    let stop = stop_on_interrupt()?;
    let _alone = alone()?;
    let tool = install()?;
    let copy = working_folder().join("checkout");
    checkout_copy::bring_up_to_date(&testkit::checkout(), &copy)?;
    let end = options
        .minutes
        .map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
    let mut table = Table::of_the_checkout()?;
    let mut open = Vec::new();
    for subject in subjects {
        let work = Work {
            subject,
            tool: &tool,
            copy: &copy,
            folder: working_folder().join(subject.name),
        };
        let report = work.done(options, &explanations, end, &stop)?;
        println!("{report}");
        if !options.list {
            let command = format!("cargo xtask mutants --only {}", subject.name);
            table.put(subject.name, &report.counts, &command)?;
        }
        open.extend(report.open);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if open.is_empty() {
        return Ok(());
    }
    bail!(
        "no test notices these {} mutants, and docs/mutants.md does not explain them:\n{}",
        open.len(),
        open.join("\n")
    );
}

/// Two at a time would mutate one copy of the checkout, and each would find the other's mutants.
fn alone() -> Result<File> {
    let folder = working_folder();
    fs::create_dir_all(&folder)?;
    let path = folder.join("lock");
    let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    lock.try_lock()
        .with_context(|| format!("{}: another `cargo xtask mutants` runs", path.display()))?;
    Ok(lock)
}

fn working_folder() -> PathBuf {
    target_folder().join("mutants")
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Subject>> {
    let Some(only) = only else {
        return Ok(SUBJECTS.iter().collect());
    };
    match SUBJECTS.iter().find(|subject| subject.name == only) {
        Some(subject) => Ok(vec![subject]),
        None => {
            let names: Vec<_> = SUBJECTS.iter().map(|subject| subject.name).collect();
            bail!(
                "there is no subject `{only}`; the subjects are: {}",
                names.join(", ")
            );
        }
    }
}

/// The folder with `cargo-mutants`, which is compiled where it is missing.
fn install() -> Result<PathBuf> {
    let root = working_folder().join(format!("cargo-mutants-{VERSION}"));
    let folder = root.join("bin");
    if !folder.join("cargo-mutants").is_file() {
        eprintln!("compiling cargo-mutants {VERSION}, which takes some minutes");
        let mut cargo = bounded_run::cargo();
        cargo
            .args(["install", "cargo-mutants", "--locked", "--version", VERSION])
            .arg("--root")
            .arg(&root);
        let installed = bounded_run::run("cargo install", cargo, Vec::new(), INSTALL_LIMIT)?;
        installed.into_text("installing cargo-mutants")?;
    }
    Ok(folder)
}

/// One subject, being worked on.
struct Work<'a> {
    subject: &'a Subject,
    /// The folder with `cargo-mutants`.
    tool: &'a Path,
    /// The copy of the checkout in which things are changed.
    copy: &'a Path,
    /// Where it writes what it found.
    folder: PathBuf,
}

impl Work<'_> {
    /// Runs what has not been run, and says what is known then.
    fn done(
        &self,
        options: &Options,
        explanations: &Explanations,
        end: Option<Instant>,
        stop: &AtomicBool,
    ) -> Result<Report> {
        let kept = testkit::checkout().join(KEPT);
        let mut outcomes = Outcomes::read(&kept)?;
        let mutants = self.mutants()?;
        if !options.list {
            // A test may have been written since.
            let is_open = |mutant: &Mutant, outcome| {
                outcome == Outcome::Survived && explanations.of(mutant).is_none()
            };
            outcomes.forget(&mutants, |mutant, outcome| {
                options.again || is_open(mutant, outcome)
            });
        }
        let left = end.map_or(LONGEST, |end| end.saturating_duration_since(Instant::now()));
        let is_done = mutants.iter().all(|mutant| outcomes.of(mutant).is_some());
        if !options.list && !is_done && !left.is_zero() && !stop.load(Ordering::Relaxed) {
            let found = self.folder.join("mutants.out");
            outcomes::say_what_to_leave_out(&found, &mutants, &outcomes)?;
            self.run(left, stop)?;
            outcomes.add_from(&found, self.copy)?;
            outcomes.write(&kept)?;
        }
        Ok(Report::of(self.subject, &mutants, &outcomes, explanations))
    }

    fn command(&self) -> Command {
        let mut cargo = bounded_run::cargo();
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [self.tool.to_owned()]
            .into_iter()
            .chain(env::split_paths(&path));
        let path = env::join_paths(folders).unwrap_or(path);
        cargo
            .env("PATH", path)
            .args(["mutants", "--no-config", "--in-place", "--dir"])
            .arg(self.copy)
            .args(["--package", self.subject.package]);
        for file in self.subject.files {
            cargo.args(["--file", file]);
        }
        cargo
    }

    /// All that there are.
    fn mutants(&self) -> Result<Vec<Mutant>> {
        let mut cargo = self.command();
        cargo.args(["--list", "--json"]);
        let listed = bounded_run::run("cargo mutants --list", cargo, Vec::new(), GRACE)?;
        let text = listed.into_text("listing the mutants")?;
        outcomes::listed(&text, self.copy)
    }

    /// Runs them for at most so long, and until somebody asks to stop.
    fn run(&self, limit: Duration, stop: &AtomicBool) -> Result<()> {
        let mut cargo = self.command();
        cargo
            .arg("--output")
            .arg(&self.folder)
            .args(["--iterate", "--no-shuffle", "--profile", "mutants"])
            .args(["--timeout", TEST_LIMIT, "--build-timeout", BUILD_LIMIT])
            .args(self.subject.cargo_arguments())
            // Tests that need a mysqld have it in their names.
            .args(["--", "--", "--skip", "mysqld"])
            .args(["--test-threads", TESTS_AT_ONCE])
            .args(FAIL_FAST)
            .env("CARGO_TARGET_DIR", working_folder().join("build"))
            .env("CARGO_INCREMENTAL", "1");
        let mut child = cargo.spawn().context("cargo mutants does not start")?;
        let end = Instant::now() + limit;
        while wait_within(&mut child, STOPS_WITHIN)?.is_none() {
            if Instant::now() < end && !stop.load(Ordering::Relaxed) {
                continue;
            }
            // It puts back what it has changed, and its tests end with it.
            kill_process(Pid::from_child(&child), Signal::INT)?;
            if wait_within(&mut child, GRACE)?.is_none() {
                child.kill()?;
                child.wait()?;
            }
            return Ok(());
        }
        // Survivors and timeouts have codes of their own. Without a mutant, all tests have to succeed.
        const BASELINE_FAILED: i32 = 4;
        const USAGE: i32 = 1;
        match child.wait()?.code() {
            Some(BASELINE_FAILED) => bail!(
                "the tests of {} fail without any mutant: see {}",
                self.subject.package,
                self.folder.join("mutants.out/log/baseline.log").display()
            ),
            Some(USAGE) if !self.folder.join("mutants.out/outcomes.json").is_file() => {
                bail!("cargo mutants could not begin")
            }
            _ => Ok(()),
        }
    }
}

impl Subject {
    /// What cargo compiles and runs of the package's tests.
    fn cargo_arguments(&self) -> Vec<OsString> {
        let mut all = vec![
            format!("--config=target.'cfg(all())'.runner={}", self.runner()),
            "--locked".to_owned(),
            "--lib".to_owned(),
        ];
        for program in self.programs {
            all.extend(["--test".to_owned(), (*program).to_owned()]);
        }
        let each = all.into_iter();
        each.map(|argument| format!("--cargo-arg={argument}").into())
            .collect()
    }

    /// What cargo starts in front of a test program, as it reads it in its configuration: it lets the harness take
    /// [what is not stable](FAIL_FAST), and runs the slow tests behind the others.
    fn runner(&self) -> String {
        let mut script = "export RUSTC_BOOTSTRAP=1; \"$@\"".to_owned();
        if !self.slow.is_empty() {
            let skipped: String = self
                .slow
                .iter()
                .map(|slow| format!(" --skip {slow}"))
                .collect();
            script += &format!("{skipped} && \"$@\" {}", self.slow.join(" "));
        }
        format!("['sh', '-c', '{script}', 'sh']")
    }
}

/// What is known of a subject.
struct Report {
    subject: &'static str,
    counts: Counts,
    /// Survivors that nothing explains.
    open: Vec<String>,
    explained: Vec<String>,
    /// Explanations of mutants that a test notices by now.
    obsolete: Vec<String>,
}

impl Report {
    fn of(
        subject: &Subject,
        mutants: &[Mutant],
        outcomes: &Outcomes,
        explanations: &Explanations,
    ) -> Self {
        let mut report = Self {
            subject: subject.name,
            counts: Counts::default(),
            open: Vec::new(),
            explained: Vec::new(),
            obsolete: Vec::new(),
        };
        let counts = &mut report.counts;
        counts.mutants = mutants.len();
        for mutant in mutants {
            let why = explanations.of(mutant);
            match outcomes.of(mutant) {
                Some(Outcome::Survived) => match why {
                    Some(why) => {
                        counts.explained += 1;
                        report.explained.push(format!("{mutant}: {why}"));
                    }
                    None => {
                        counts.open += 1;
                        report.open.push(mutant.to_string());
                    }
                },
                Some(outcome) => {
                    *match outcome {
                        Outcome::Killed => &mut counts.killed,
                        Outcome::TimedOut => &mut counts.timed_out,
                        Outcome::Unviable | Outcome::Survived => &mut counts.unviable,
                    } += 1;
                    if why.is_some() {
                        report.obsolete.push(mutant.to_string());
                    }
                }
                None => counts.not_run += 1,
            }
        }
        report
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.subject, self.counts)?;
        for (title, lines) in [
            ("survivors", &self.open),
            ("survivors that docs/mutants.md explains", &self.explained),
            ("explained there, although a test notices", &self.obsolete),
        ] {
            if !lines.is_empty() {
                write!(f, "\n  {title}:\n    {}", lines.join("\n    "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_names_files_and_tests_that_are_there() {
        for subject in SUBJECTS {
            for glob in subject.files {
                let path = testkit::checkout().join(glob.trim_end_matches("*.rs"));
                assert!(path.exists(), "{}: {glob}", subject.name);
            }
            let tests = testkit::checkout().join("crates").join(subject.package);
            for program in subject.programs {
                let path = tests.join("tests").join(program).join("main.rs");
                assert!(path.is_file(), "{}: {program}", subject.name);
            }
        }
        for subject in SUBJECTS.iter().filter(|subject| !subject.slow.is_empty()) {
            let crate_folder = testkit::checkout().join("crates").join(subject.package);
            let of_a_program = |program: &&str| {
                let files = fs::read_dir(crate_folder.join("tests").join(program)).unwrap();
                files.map(|file| file.unwrap().path()).collect::<Vec<_>>()
            };
            let files: Vec<_> = subject.programs.iter().flat_map(of_a_program).collect();
            for slow in subject.slow {
                let names_it = |file: &PathBuf| {
                    file.file_stem().is_some_and(|stem| stem == *slow)
                        || fs::read_to_string(file).unwrap().contains(slow)
                };
                assert!(files.iter().any(names_it), "{}: {slow}", subject.name);
            }
        }
        let unknown = chosen(Some("x")).map(|_| ()).unwrap_err().to_string();
        assert!(unknown.contains("quorum, repair"), "{unknown}");
    }

    #[test]
    fn slow_tests_are_run_behind_the_others() {
        let subject = |slow| Subject {
            name: "log",
            package: "binlog-store",
            files: &[],
            programs: &[],
            slow,
        };
        assert_eq!(
            subject(&["at_each_point", "suite"]).runner(),
            "['sh', '-c', 'export RUSTC_BOOTSTRAP=1; \"$@\" --skip at_each_point --skip suite && \"$@\" at_each_point suite', 'sh']"
        );
        assert_eq!(
            subject(&[]).runner(),
            "['sh', '-c', 'export RUSTC_BOOTSTRAP=1; \"$@\"', 'sh']"
        );
    }
}

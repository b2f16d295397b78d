//! `cargo xtask test`: everything that has to hold before a change goes in, step by step.
//!
//! The first step that fails ends it. `.ci/run` calls it on a machine that has nothing but Rust and Debian. Which tests are run
//! once more before the step of the tests has failed, [`crate::second_chance`] says.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use serde::Deserialize;
use testkit::cluster::BUILT_VARIABLE;
use testkit::mysql_tree::QUICK_VARIABLE;

use crate::second_chance::{Failure, second_chances};
use crate::sim::{Build, Seeds};
use crate::{containers, kept_seeds, mysql, nemesis, packages, sim};

/// How many seeds of the simulator a change has to pass.
const SEEDS: u64 = 100;
/// Within how many something broken has to be found.
const FOUND_WITHIN: u64 = 300;
/// How many in which a quorum is lost and repaired.
const LOST_QUORUMS: u64 = 64;
/// How many in which another scenario is played.
const PLAYED: u64 = 8;
/// How many where a seed takes several seconds.
const PLAYED_SLOWLY: u64 = 4;
/// How many that nobody has seen before, and in which each of the scenarios is played.
const FRESH: u64 = 50;
const FRESH_PLAYED: u64 = 4;
/// A scenario of which a seed has failed whose cause is not proven: see docs/evidence.md.
const UNCURED: &str = "mysqlds";

/// What is broken on purpose: the step's name, the first seed that is run, which is the first that finds it where that is far, and
/// the simulator's word for it.
pub(crate) const BROKEN: [(&str, u64, &str); 25] = [
    ("broken barrier", 97, "narrow-without-the-barrier"),
    ("broken majority", 1, "commit-on-a-minority"),
    ("broken disk", 1, "acknowledge-before-the-disk"),
    ("broken recovery", 1, "trust-a-cut-tail"),
    ("broken flush", 1, "answer-before-the-flush"),
    ("broken hard state", 24, "skip-the-metadata-sync"),
    ("broken vote", 1, "vote-without-the-log-check"),
    ("broken proxy", 229, "proxy-ignores-the-term"),
    ("broken bytes", 1, "reword-memberships"),
    ("broken term", 38, "repair-without-a-clock"),
    ("broken proof", 6, "believe-any-set"),
    ("broken admission", 21, "trust-a-wiped-disk"),
    ("broken numbers", 7, "forget-used-numbers"),
    ("broken lease", 209, "forget-the-lease"),
    ("broken promise", 1, "refuse-for-the-living"),
    ("broken removal", 1, "remove-by-region"),
    ("broken count", 1, "count-a-learner"),
    ("broken purge", 1, "purge-past-regions"),
    ("broken reads", 3, "stop-at-a-bad-read"),
    ("broken policy", 1, "believe-the-file"),
    ("broken queue", 1, "wait-in-the-loop"),
    ("broken answer", 1, "answer-before-the-ack"),
    ("broken trim", 1, "keep-the-tail"),
    ("broken connections", 3, "trust-open-connections"),
    ("broken format", 1, "claim-any-format"),
];

/// The package of the whole-system tests, which all use a mysqld.
const WHOLE_SYSTEM: &str = "witness-tests";
/// Programs of tests that get along with whatever else runs: what they wait for has tens of seconds. Of these, those of the whole
/// system, and as many others that the programs beside them take as long.
const BESIDE_OTHERS: [&str; 3] = ["two_at_once", "beside_a_mysqld", "facts_of_mysqld"];
/// The program of the whole-system tests that do not: they measure a time or the memory, or must not see an election because something else runs.
const ALONE: &str = "one_at_a_time";

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the tests that use a mysqld: the whole-system ones, and those with `mysqld` in their name
    #[arg(long)]
    quick: bool,
    /// Run no test a second time: what fails once has failed
    #[arg(long)]
    strict: bool,
    /// Begin with this step, as behind a run that ended with it
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Runs cargo with these arguments and variables.
    Cargo {
        arguments: Vec<&'static str>,
        variables: Vec<(&'static str, &'static str)>,
    },
    /// Runs all tests.
    Tests {
        /// Whether those with real processes get a second chance.
        again: bool,
    },
    /// Finds or unpacks a mysqld.
    Mysql,
    /// Runs these seeds of the simulator that the tests have built; with something broken on purpose, one of them has to fail.
    Simulate {
        seeds: Range<u64>,
        scenario: Option<&'static str>,
        mutation: Option<&'static str>,
    },
    /// Runs the seeds of the simulator that failed once.
    KeptSeeds,
    /// Runs seeds that nobody has seen, and keeps one that fails.
    FreshSeeds,
    /// Does a few faults to a ring with real mysqlds, all of whose programs are built.
    Nemesis,
    /// Installs, uses and removes packages of the programs that are built, in a container.
    Packages,
    /// Does faults to a ring in three regions of containers with the programs that are built.
    Containers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: &'static str,
    action: Action,
}

/// Runs the steps in order and sums them up.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut done: Vec<(&str, Duration)> = Vec::new();
    let mut unsteady = Vec::new();
    let started = Instant::now();
    let mut steps = steps(options.quick, !options.strict);
    if let Some(from) = &options.from {
        let place = steps.iter().position(|step| step.name == from);
        let Some(place) = place else {
            let names: Vec<_> = steps.iter().map(|step| step.name).collect();
            bail!(
                "there is no step `{from}`; the steps are: {}",
                names.join(", ")
            );
        };
        steps.drain(..place);
    }
    for step in steps {
        eprintln!("── {} ──", step.name);
        let began = Instant::now();
        let result = perform(&step.action);
        done.push((step.name, began.elapsed()));
        match result {
            Ok(failures) => unsteady.extend(failures),
            Err(error) => {
                print_times(&done, started.elapsed());
                return Err(error.context(format!("step `{}` failed", step.name)));
            }
        }
    }
    print_times(&done, started.elapsed());
    for test in &unsteady {
        println!(
            "unsteady: {} of {} failed, and passed by itself: {}",
            test.name,
            test.program.join(" "),
            test.first_words()
        );
    }
    println!(
        "all {} steps passed{}",
        done.len(),
        if options.quick {
            " (without the tests that use a mysqld)"
        } else {
            ""
        }
    );
    Ok(())
}

fn steps(quick: bool, again: bool) -> Vec<Step> {
    let cargo = |name, arguments: &[&'static str]| Step {
        name,
        action: Action::Cargo {
            arguments: arguments.to_vec(),
            variables: Vec::new(),
        },
    };
    let mut steps = vec![
        cargo("format", &["fmt", "--all", "--check"]),
        cargo(
            "lints",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        ),
    ];
    if quick {
        steps.push(Step {
            name: "tests",
            action: Action::Cargo {
                arguments: vec![
                    "test",
                    "--workspace",
                    "--no-fail-fast",
                    "--exclude",
                    WHOLE_SYSTEM,
                    "--",
                    "--skip",
                    "mysqld",
                ],
                // A test that uses a mysqld and does not say so in its name fails.
                variables: vec![(QUICK_VARIABLE, "1")],
            },
        });
    } else {
        steps.push(Step {
            name: "mysql",
            action: Action::Mysql,
        });
        // All at once, also what only the steps behind the tests run: alone it would be compiled anew, with other features.
        steps.push(cargo(
            "programs",
            &[
                "build",
                "--workspace",
                "--tests",
                "--examples",
                "--bin",
                "nemesis",
            ],
        ));
        steps.push(Step {
            name: "tests",
            action: Action::Tests { again },
        });
    }
    let simulate = |name, seeds, scenario, mutation| Step {
        name,
        action: Action::Simulate {
            seeds,
            scenario,
            mutation,
        },
    };
    steps.push(simulate("simulator", 1..1 + SEEDS, None, None));
    let lost = Some("lost-quorum");
    steps.push(simulate("lost quorum", 1..1 + LOST_QUORUMS, lost, None));
    for scenario in [
        "removals",
        "learners",
        "purges",
        "cold-damage",
        "mysqlds",
        "policies",
        "slow-disk",
        "transport",
        "upgrades",
    ] {
        let played = match scenario {
            "mysqlds" | "transport" | "upgrades" => PLAYED_SLOWLY,
            _ => PLAYED,
        };
        let seeds = 1..1 + played;
        steps.push(simulate(scenario, seeds, Some(scenario), None));
    }
    for (name, action) in [
        ("kept seeds", Action::KeptSeeds),
        ("fresh seeds", Action::FreshSeeds),
    ] {
        steps.push(Step { name, action });
    }
    for (name, first, mutation) in BROKEN {
        let seeds = first..first + FOUND_WITHIN;
        steps.push(simulate(name, seeds, None, Some(mutation)));
    }
    if !quick {
        steps.push(Step {
            name: "nemesis",
            action: Action::Nemesis,
        });
        steps.push(Step {
            name: "packages",
            action: Action::Packages,
        });
        steps.push(Step {
            name: "containers",
            action: Action::Containers,
        });
    }
    steps.push(Step {
        name: "documentation",
        action: Action::Cargo {
            arguments: vec![
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
            ],
            variables: vec![("RUSTDOCFLAGS", "-D warnings")],
        },
    });
    steps
}

/// Performs it, and says which tests passed at their second chance only.
fn perform(action: &Action) -> Result<Vec<Failure>> {
    match action {
        Action::Tests { again } => return run_tests(*again),
        Action::Mysql => {
            let tree = mysql::provide(false)?;
            let missing = tree.missing();
            if !missing.is_empty() {
                bail!(
                    "{} comes without {}, which the tests use",
                    tree.mysqld.display(),
                    missing.join(" and ")
                );
            }
            eprintln!("MySQL {} at {}", tree.version, tree.mysqld.display());
            match mysql::provide_oldest(false) {
                Ok(oldest) => eprintln!("MySQL {} at {}", oldest.version, oldest.mysqld.display()),
                // The tests that need it fail, and say so.
                Err(error) => eprintln!("warning: {error:#}"),
            }
        }
        Action::Simulate {
            seeds,
            scenario,
            mutation,
        } => sim::run_seeds(
            &sim::program(Build::Dev, "simulator"),
            &built_seeds(seeds.clone(), *scenario, *mutation),
        )?,
        Action::KeptSeeds => {
            for kept in kept_seeds::all()? {
                let seeds = built_seeds(kept.seed..kept.seed + 1, kept.scenario.as_deref(), None);
                let played = sim::run_seeds(&sim::program(Build::Dev, "simulator"), &seeds);
                played.with_context(|| format!("a seed that failed once: {kept}"))?;
            }
        }
        Action::FreshSeeds => run_fresh_seeds()?,
        Action::Nemesis => nemesis::run_short()?,
        Action::Packages => packages::run_short(&sim::program(Build::Dev, "witness"))?,
        Action::Containers => containers::run_short(&sim::program(Build::Dev, "witness"))?,
        Action::Cargo {
            arguments,
            variables,
        } => {
            let status = cargo(arguments)
                .envs(variables.iter().copied())
                .status()
                .context("cannot run cargo")?;
            if !status.success() {
                bail!("cargo {} ended with {status}", arguments.join(" "));
            }
        }
    }
    Ok(Vec::new())
}

/// Seeds of the simulator that the tests have built.
fn built_seeds(range: Range<u64>, scenario: Option<&str>, mutation: Option<&str>) -> Seeds {
    Seeds {
        range,
        until: None,
        jobs: 2,
        build: Build::Dev,
        scenario: scenario.map(str::to_owned),
        mutation: mutation.map(str::to_owned),
    }
}

/// Other ones each time: what the fixed seeds do not find, one of them may.
fn run_fresh_seeds() -> Result<()> {
    let simulator = sim::program(Build::Dev, "simulator");
    let first = sim::fresh_seed();
    // Where the cause of a failure is not proven, fresh seeds might fail for it again.
    let scenarios = sim::SCENARIOS
        .into_iter()
        .filter(|one| *one != UNCURED)
        .map(|one| (Some(one), FRESH_PLAYED));
    for (scenario, count) in [(None, FRESH)].into_iter().chain(scenarios) {
        println!("{}, from seed {first}", scenario.unwrap_or("mixed"));
        let seeds = built_seeds(first..first + count, scenario, None);
        sim::run_and_keep(&simulator, &seeds)?;
    }
    Ok(())
}

/// Runs all tests, and those that failed and get a second chance once more, each by itself. A long step tells all that fails,
/// not the first thing only.
fn run_tests(again: bool) -> Result<Vec<Failure>> {
    let others = other_programs()?;
    let mut most: Vec<&str> = vec!["--lib", "--bins"];
    most.extend(others.iter().flat_map(|name| ["--test", name]));
    // Most of what takes long waits, for processes, clocks and disks, and does so beside the others.
    let (beside, rest) = std::thread::scope(|scope| {
        let beside = BESIDE_OTHERS.map(|name| ["--test", name]).concat();
        let beside = scope.spawn(move || run_programs(&beside, "│ "));
        let rest =
            run_programs(&most, "").and_then(|most| Ok([most, run_programs(&["--doc"], "")?]));
        (beside.join(), rest)
    });
    let beside = beside.map_err(|_| anyhow!("running tests beside others panicked"))??;
    let [most, examples] = rest?;
    let alone = run_programs(&["--test", ALONE], "")?;
    let runs = [beside, most, examples, alone];
    let failed: Vec<_> = runs
        .iter()
        .filter(|(status, _)| !status.success())
        .collect();
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let printed = failed.iter().map(|(_, printed)| printed.as_str());
    let Some(failures) = again.then(|| second_chances(printed)).flatten() else {
        bail!("tests failed");
    };
    for failure in &failures {
        eprintln!("── once more, by itself: {} ──", failure.name);
        let mut alone = cargo(&failure.once_more());
        alone.env(BUILT_VARIABLE, "1");
        let (status, printed) = heard(&mut alone, "")?;
        if !status.success() || !printed.contains("test result: ok. 1 passed") {
            bail!("tests failed; {} failed once more", failure.name);
        }
    }
    Ok(failures)
}

/// Runs these programs of tests one after the other, as they are built with everything else; how that ended, and what was printed.
fn run_programs(which: &[&str], prefix: &str) -> Result<(ExitStatus, String)> {
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast"];
    arguments.extend(which);
    heard(cargo(&arguments).env(BUILT_VARIABLE, "1"), prefix)
}

/// The programs of tests but for those that run beside them or behind them.
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
    let by_themselves = BESIDE_OTHERS.into_iter().chain([ALONE]);
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

/// Runs it, and passes on what it prints, each line behind a prefix, while it is kept.
fn heard(command: &mut Command, prefix: &str) -> Result<(ExitStatus, String)> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let errors = writer.try_clone().context("cannot make a pipe")?;
    let spawned = command.stdout(writer).stderr(errors).spawn();
    // Until it is closed here too, it has no end.
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

fn cargo(arguments: &[&str]) -> Command {
    let mut command = testkit::bounded_run::cargo();
    command.args(arguments).stdin(Stdio::null());
    command
}

fn print_times(done: &[(&str, Duration)], total: Duration) {
    println!("── times ──");
    for (name, time) in done.iter().copied().chain([("total", total)]) {
        println!("{name:<16}{:>8.1} s", time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::path::PathBuf;

    use super::*;

    fn names(quick: bool) -> Vec<&'static str> {
        steps(quick, true)
            .into_iter()
            .map(|step| step.name)
            .collect()
    }

    #[test]
    fn everything_is_checked_with_a_mysqld_before_the_tests() {
        assert_eq!(
            names(false),
            [
                "format",
                "lints",
                "mysql",
                "programs",
                "tests",
                "simulator",
                "lost quorum",
                "removals",
                "learners",
                "purges",
                "cold-damage",
                "mysqlds",
                "policies",
                "slow-disk",
                "transport",
                "upgrades",
                "kept seeds",
                "fresh seeds",
                "broken barrier",
                "broken majority",
                "broken disk",
                "broken recovery",
                "broken flush",
                "broken hard state",
                "broken vote",
                "broken proxy",
                "broken bytes",
                "broken term",
                "broken proof",
                "broken admission",
                "broken numbers",
                "broken lease",
                "broken promise",
                "broken removal",
                "broken count",
                "broken purge",
                "broken reads",
                "broken policy",
                "broken queue",
                "broken answer",
                "broken trim",
                "broken connections",
                "broken format",
                "nemesis",
                "packages",
                "containers",
                "documentation"
            ]
        );
    }

    #[test]
    fn quick_leaves_out_the_mysqld_and_only_that() {
        let mut full = names(false);
        full.retain(|name| {
            !["mysql", "programs", "nemesis", "packages", "containers"].contains(name)
        });
        assert_eq!(names(true), full);
        let tests = steps(true, true)
            .into_iter()
            .find(|step| step.name == "tests")
            .unwrap();
        let Action::Cargo {
            arguments,
            variables,
        } = tests.action
        else {
            panic!("the tests run under cargo")
        };
        assert!(
            arguments.ends_with(&["--skip", "mysqld"])
                && variables.contains(&(QUICK_VARIABLE, "1"))
        );
    }

    /// A file of tests that no program names is not compiled, and its tests never run.
    #[test]
    fn every_file_of_tests_is_in_a_program() {
        let checkout = testkit::checkout();
        let mut packages: Vec<PathBuf> = entries(&checkout.join("crates"));
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

    /// What is in a folder; nothing, when there is none.
    fn entries(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

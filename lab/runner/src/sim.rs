//! `cargo lab sim`: runs seeds of the simulated ring. Each seed runs in a separate process, so that it is reproducible, and a panic or hang
//! ends only that process. For a failing seed, prints the last events and the command that replays it.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use testkit::bounded_run;
use testkit::cluster::{Profile, simulator_binary};
use testkit::statistics::nearest_rank;

#[derive(Args)]
pub(crate) struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 1000, conflicts_with = "seed")]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1, conflicts_with = "seed")]
    from: u64,
    /// This seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: print everything that happens
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How many concurrently
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// `dev` has the engine's own assertions, `checked` has them and is optimized, `dist` is what is shipped
    #[arg(long, value_parser = build, default_value = "dev")]
    build: Profile,
    /// Play this, whatever the seeds draw
    #[arg(long, value_parser = PossibleValuesParser::new(SCENARIOS))]
    scenario: Option<String>,
    /// Break something on purpose; then a seed has to fail. `cargo lab sim --mutate help` names what can be broken
    #[arg(long)]
    mutate: Option<String>,
}

/// Parses the name of a build on the command line.
///
/// # Errors
/// The name is unknown. The error lists all names.
pub(crate) fn build(name: &str) -> Result<Profile> {
    let all = [Profile::Dev, Profile::Checked, Profile::Dist];
    let found = all.into_iter().find(|profile| profile.name() == name);
    found.context("the builds are dev, checked and dist")
}

/// The scenarios that can be run instead of what the seeds draw.
pub(crate) const SCENARIOS: [&str; 15] = [
    "cold-damage",
    "conversions",
    "failovers",
    "full-disks",
    "learners",
    "lost-quorum",
    "mysqld-operations",
    "mysqlds",
    "policies",
    "provisioning",
    "purges",
    "removals",
    "slow-disk",
    "transport",
    "upgrades",
];

/// Time limit for a seed. A longer run counts as hanging.
const LONGEST_RUN: Duration = Duration::from_secs(300);

/// A range of seeds to run, with the options of the command line.
pub(crate) struct Seeds {
    pub(crate) range: Range<u64>,
    /// After this moment no further seed starts.
    pub(crate) until: Option<Instant>,
    pub(crate) jobs: usize,
    pub(crate) build: Profile,
    pub(crate) scenario: Option<String>,
    pub(crate) mutation: Option<String>,
}

/// The part of the simulator's output that is read.
#[derive(Debug, Deserialize)]
struct Said {
    checker: Option<String>,
    words: Option<String>,
    healed_ms: Option<u64>,
    counts: Counts,
}

#[derive(Debug, Default, Deserialize)]
struct Counts {
    acknowledged: u64,
    faults: u64,
}

/// A seed that failed.
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) words: String,
    pub(crate) last_events: String,
}

/// The totals of many seeds.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) runs: u64,
    pub(crate) acknowledged: u64,
    pub(crate) faults: u64,
    healed_ms: Vec<u64>,
}

/// Runs `cargo lab sim`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let simulator = simulator_binary(options.build)?;
    if let Some(seed) = options.seed {
        return show(&simulator, seed, options);
    }
    let seeds = Seeds {
        range: options.from..options.from.saturating_add(options.seeds),
        until: None,
        jobs: options.jobs.max(1),
        build: options.build,
        scenario: options.scenario.clone(),
        mutation: options.mutate.clone(),
    };
    run_seeds(&simulator, &seeds)
}

/// Runs seeds and prints the result. Returns an error if a seed failed; with a mutation, if no seed failed.
fn run_seeds(simulator: &Path, seeds: &Seeds) -> Result<()> {
    let began = Instant::now();
    let (sum, failure) = run_all(simulator, seeds)?;
    let rate = sum.runs as f64 / began.elapsed().as_secs_f64();
    let took = began.elapsed().as_secs_f64();
    match (failure, &seeds.mutation) {
        (None, None) => {
            println!(
                "{} seeds without a violation in {took:.1} s ({rate:.1} a second): {} transactions acknowledged, {} faults{}",
                sum.runs,
                sum.acknowledged,
                sum.faults,
                healing(sum.healed_ms)
            );
            Ok(())
        }
        (Some(failure), None) => {
            eprint!("{}", failure.last_events);
            bail!(
                "seed {} fails: {}\nreplay it: {}",
                failure.seed,
                failure.words,
                replay(failure.seed, seeds)
            );
        }
        (Some(failure), Some(mutation)) => {
            println!(
                "`{mutation}` was caught by seed {} ({} of {} seeds run): {}\nreplay it: {}",
                failure.seed,
                sum.runs,
                seeds.range.end - seeds.range.start,
                failure.words,
                replay(failure.seed, seeds)
            );
            Ok(())
        }
        (None, Some(mutation)) => bail!(
            "`{mutation}` was not caught within {} seeds: the checkers are blind to it",
            sum.runs
        ),
    }
}

fn healing(mut healed_ms: Vec<u64>) -> String {
    healed_ms.sort_unstable();
    let at = |percent| nearest_rank(&healed_ms, percent);
    match (at(50), at(99), at(100)) {
        (Some(half), Some(most), Some(longest)) => format!(
            "; first commit after everything was repaired: half within {half} ms, 99 % within {most} ms, all within {longest} ms"
        ),
        _ => String::new(),
    }
}

/// Returns a random first seed, small enough that many more seeds follow it.
pub(crate) fn fresh_seed() -> u64 {
    fastrand::u64(1 << 20..1 << 40)
}

/// Returns the command that replays a seed.
pub(crate) fn replay(seed: u64, seeds: &Seeds) -> String {
    let mut command = format!("cargo lab sim --seed {seed} --trace");
    if seeds.build != Profile::Dev {
        command += &format!(" --build {}", seeds.build.name());
    }
    for word in choices(seeds.scenario.as_deref(), seeds.mutation.as_deref()) {
        command += &format!(" {word}");
    }
    command
}

/// Returns the arguments for the scenario and the mutation.
fn choices<'a>(scenario: Option<&'a str>, mutation: Option<&'a str>) -> Vec<&'a str> {
    let scenario = scenario.map(|name| ["--scenario", name]);
    let mutation = mutation.map(|name| ["--mutate", name]);
    scenario.into_iter().chain(mutation).flatten().collect()
}

fn command(simulator: &Path, seed: u64, scenario: Option<&str>, mutation: Option<&str>) -> Command {
    let mut command = Command::new(simulator);
    command.arg("--seed").arg(seed.to_string());
    command.args(choices(scenario, mutation));
    command
}

/// Runs one seed and prints its output.
fn show(simulator: &Path, seed: u64, options: &Options) -> Result<()> {
    let (scenario, mutation) = (options.scenario.as_deref(), options.mutate.as_deref());
    let mut command = command(simulator, seed, scenario, mutation);
    if options.trace {
        command.arg("--trace");
    }
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", simulator.display()))?;
    if !status.success() {
        bail!("seed {seed} fails");
    }
    Ok(())
}

/// Runs seeds until one fails, or the time is over.
pub(crate) fn run_all(simulator: &Path, seeds: &Seeds) -> Result<(Sum, Option<Failure>)> {
    // The number of seeds is unknown if they run until a given time.
    let (progress, style) = match seeds.until {
        Some(_) => (ProgressBar::no_length(), "{spinner} {pos} seeds, {per_sec}"),
        None => (
            ProgressBar::new(seeds.range.end - seeds.range.start),
            "{bar:30} {pos} of {len} seeds, {per_sec}, {eta} left",
        ),
    };
    progress.set_style(ProgressStyle::with_template(style)?);
    let (next, over) = (AtomicU64::new(seeds.range.start), AtomicBool::new(false));
    let (report, reports) = mpsc::sync_channel(seeds.jobs);
    let mut sum = Sum::default();
    let mut failure: Option<Failure> = None;
    let outcome = thread::scope(|scope| {
        for _ in 0..seeds.jobs {
            let (report, next, over) = (report.clone(), &next, &over);
            scope.spawn(move || {
                let in_time = || seeds.until.is_none_or(|until| Instant::now() < until);
                while !over.load(Ordering::Relaxed) && in_time() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.range.end {
                        return;
                    }
                    let done = run_one(simulator, seed, seeds);
                    if report.send(done).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        let mut error = None;
        for done in reports {
            progress.inc(1);
            match done {
                Ok(Ok(said)) => {
                    sum.acknowledged += said.counts.acknowledged;
                    sum.faults += said.counts.faults;
                    sum.healed_ms.extend(said.healed_ms);
                }
                Ok(Err(failed)) => {
                    over.store(true, Ordering::Relaxed);
                    if failure
                        .as_ref()
                        .is_none_or(|first| failed.seed < first.seed)
                    {
                        failure = Some(failed);
                    }
                }
                Err(stopped) => {
                    over.store(true, Ordering::Relaxed);
                    error = Some(stopped);
                }
            }
            sum.runs += 1;
        }
        error.map_or(Ok(()), Err)
    });
    progress.finish_and_clear();
    outcome?;
    Ok((sum, failure))
}

/// Runs one seed. Returns its output, or how it failed. An error means that the seed could not be run.
fn run_one(simulator: &Path, seed: u64, seeds: &Seeds) -> Result<Result<Said, Failure>> {
    let (scenario, mutation) = (seeds.scenario.as_deref(), seeds.mutation.as_deref());
    let command = command(simulator, seed, scenario, mutation);
    let failed = |words, last_events| {
        Err(Failure {
            seed,
            words,
            last_events,
        })
    };
    let finished = bounded_run::run(format!("seed {seed}"), command, Vec::new(), LONGEST_RUN);
    let finished = match finished {
        Ok(finished) => finished,
        Err(error) => return Ok(failed(format!("{error:#}"), String::new())),
    };
    let stdout = String::from_utf8_lossy(&finished.stdout);
    let last_events = String::from_utf8_lossy(&finished.stderr).into_owned();
    let Some(line) = stdout.lines().last() else {
        bail!("seed {seed} said nothing: {}", last_events.trim());
    };
    let said: Said = serde_json::from_str(line)
        .with_context(|| format!("seed {seed} said something else: {line}"))?;
    match &said.checker {
        None => Ok(Ok(said)),
        Some(checker) => {
            let words = format!("{checker}: {}", said.words.as_deref().unwrap_or_default());
            Ok(failed(words, last_events))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replay_command_contains_all_choices() {
        let mut seeds = Seeds {
            range: 1..301,
            until: None,
            jobs: 2,
            build: Profile::Dev,
            scenario: None,
            mutation: None,
        };
        assert_eq!(replay(7, &seeds), "cargo lab sim --seed 7 --trace");
        seeds.build = Profile::Dist;
        seeds.mutation = Some("commit-on-a-minority".to_owned());
        assert_eq!(
            replay(7, &seeds),
            "cargo lab sim --seed 7 --trace --build dist --mutate commit-on-a-minority"
        );
        seeds.scenario = Some("lost-quorum".to_owned());
        assert!(replay(7, &seeds).contains(" --scenario lost-quorum --mutate "));
    }

    #[test]
    fn nothing_healed_has_no_percentiles() {
        assert_eq!(healing(Vec::new()), "");
        assert!(healing(vec![5, 1]).contains("all within 5 ms"));
    }
}

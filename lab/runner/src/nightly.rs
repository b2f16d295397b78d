//! `cargo lab nightly`: runs new seeds of the simulator and of the nemesis for a given time. The simulator uses the processor time that the
//! nemesis leaves: its rings wait most of the time. Failures are saved and do not end the run. Prints the counts at the end.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Deserialize;
use testkit::bounded_run;
use testkit::cluster::{Profile, nemesis_binary, simulator_binary, witness_binary};
use testkit::figures::target_folder;
use testkit::stop_on_interrupt;

use crate::sim::{self, SCENARIOS, Seeds};

/// The program that a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Program {
    /// Seeds of the simulated ring
    Simulator,
    /// Faults at random against a ring with real mysqlds
    Nemesis,
}

/// The result of one turn.
#[derive(Clone, Debug)]
struct Run {
    program: Program,
    /// The scenario of the simulator, the fault of the nemesis, or `mixed`.
    played: String,
    first_seed: u64,
    /// Number of seeds of the simulator, or of cycles of the nemesis.
    count: u64,
    /// Number of acknowledged transactions, each of which was verified afterwards.
    acknowledged: u64,
    faults: u64,
    seconds: f64,
    failures: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Run one of them alone; the nemesis needs root and a mysqld
    #[arg(long, value_enum)]
    only: Option<Program>,
    /// Seeds of these scenarios only, by turns; may be given more than once. `mixed` draws everything from the seed
    #[arg(long, value_parser = PossibleValuesParser::new([MIXED].into_iter().chain(SCENARIOS)))]
    scenario: Vec<String>,
    /// Faults of this kind only, where the nemesis has its turn
    #[arg(long)]
    fault: Option<String>,
    /// How many seeds of the simulator concurrently
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// How many rings of the nemesis concurrently, each with three mysqlds
    #[arg(long, default_value_t = 1)]
    rings: usize,
}

/// The name of runs that draw everything from the seed, instead of one scenario or fault.
const MIXED: &str = "mixed";
/// Duration of a turn of the simulator.
const TURN: Duration = Duration::from_secs(120);
/// How long the nemesis injects faults into one ring, in minutes. The start of the ring and the final comparison need additional time.
const NEMESIS_MINUTES: f64 = 5.0;
/// Time limit for a run of the nemesis. A longer run counts as hanging.
const NEMESIS_LIMIT: Duration = Duration::from_secs(1800);
/// The nice value of the simulator. The members and servers of the nemesis have priority, because their faults are timed.
const NICE: i32 = 19;

/// Runs `cargo lab nightly`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = stop_on_interrupt()?;
    let runs = Mutex::new(Vec::new());
    let simulator = match options.only {
        Some(Program::Nemesis) => None,
        _ => Some(simulator_binary(Profile::Checked)?),
    };
    let programs = match options.only {
        Some(Program::Simulator) => None,
        // This build is optimized, so that several rings fit on a machine, and has openraft's debug assertions.
        _ => Some((
            witness_binary(Profile::Checked)?,
            nemesis_binary(Profile::Checked)?,
        )),
    };
    // The time of the builds does not count.
    let night = Night {
        until: Instant::now() + Duration::from_secs_f64(options.minutes * 60.0),
        stop: &stop,
        cannot_run: &AtomicBool::new(false),
        runs: &runs,
    };
    thread::scope(|scope| {
        let mut parts = Vec::new();
        if let Some(simulator) = &simulator {
            parts.push(scope.spawn(|| {
                rustix::process::nice(NICE).context("cannot lower the priority")?;
                night.fill(|number| {
                    let scenario = turn(number, &options.scenario, |scenario| {
                        night.so_far(Program::Simulator, scenario)
                    });
                    let until = night.until.min(Instant::now() + TURN);
                    seeds(simulator, scenario, until, options.jobs)
                })
            }));
        }
        if let Some((witness, nemesis)) = &programs {
            for ring in 1..=options.rings {
                let kind = options.fault.as_deref();
                parts.push(
                    scope.spawn(move || night.fill(|_| faults(witness, nemesis, kind, ring))),
                );
            }
        }
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect::<Result<Vec<()>>>()
    })?;
    let runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    for program in [Program::Simulator, Program::Nemesis] {
        let of_program = runs.iter().filter(|run| run.program == program);
        let count: u64 = of_program.clone().map(|run| run.count).sum();
        let failed: usize = of_program.map(|run| run.failures.len()).sum();
        println!("{program:?}: {count} played, {failed} failed");
    }
    let failures: Vec<&str> = runs
        .iter()
        .flat_map(|run| run.failures.iter().map(String::as_str))
        .collect();
    if failures.is_empty() {
        return Ok(());
    }
    bail!(
        "{} seeds failed; what they printed is in {}:\n{}",
        failures.len(),
        folder().display(),
        failures.join("\n")
    );
}

/// The state that all concurrent runs share.
#[derive(Clone, Copy)]
struct Night<'a> {
    until: Instant,
    stop: &'a AtomicBool,
    /// Set if the simulator or the nemesis cannot run at all. Then the other one ends, too.
    cannot_run: &'a AtomicBool,
    runs: &'a Mutex<Vec<Run>>,
}

impl Night<'_> {
    /// Repeats `run` until the time is over or a run cannot be started.
    fn fill(&self, mut run: impl FnMut(usize) -> Result<Run>) -> Result<()> {
        let is_over = || {
            let ended = [self.stop, self.cannot_run];
            Instant::now() >= self.until || ended.iter().any(|ended| ended.load(Ordering::Relaxed))
        };
        for number in (0..).take_while(|_| !is_over()) {
            let done = run(number);
            if self.stop.load(Ordering::Relaxed) {
                // Ctrl-C has also interrupted the current run, so that its result is not used.
                break;
            }
            let done = done.inspect_err(|_| self.cannot_run.store(true, Ordering::Relaxed))?;
            println!("{}", told(&done));
            self.runs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(done);
        }
        Ok(())
    }

    fn so_far(&self, program: Program, played: &str) -> u64 {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let same = runs
            .iter()
            .filter(|run| run.program == program && run.played == played);
        same.map(|run| run.count).sum()
    }
}

/// Returns the scenario for turn `number` of the simulator. `None`: the seeds draw everything, which is every second turn. The scenario is
/// the one with the fewest seeds so far, because rarely run scenarios find the most. If `chosen` is not empty, only its names are used.
fn turn(
    number: usize,
    chosen: &[String],
    seeds_so_far: impl Fn(&str) -> u64,
) -> Option<&'static str> {
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|one| one == name);
    let scenario = SCENARIOS
        .into_iter()
        .filter(|scenario| is_chosen(scenario))
        .min_by_key(|scenario| seeds_so_far(scenario));
    let is_mixed = is_chosen(MIXED) && number.is_multiple_of(2);
    scenario.filter(|_| !is_mixed)
}

/// The folder for the output of failed runs.
fn folder() -> PathBuf {
    target_folder().join("nightly")
}

fn keep_printed(name: &str, printed: &str) -> Result<()> {
    fs::create_dir_all(folder())?;
    fs::write(folder().join(name), printed)?;
    Ok(())
}

/// Runs new seeds of one scenario until one fails, or until `until`.
fn seeds(simulator: &Path, scenario: Option<&str>, until: Instant, jobs: usize) -> Result<Run> {
    let began = Instant::now();
    let first_seed = sim::fresh_seed();
    let seeds = Seeds {
        range: first_seed..u64::MAX,
        until: Some(until),
        jobs,
        build: Profile::Checked,
        scenario: scenario.map(str::to_owned),
        mutation: None,
    };
    let (sum, failure) = sim::run_all(simulator, &seeds)?;
    let played = scenario.unwrap_or(MIXED);
    let mut failures = Vec::new();
    if let Some(failure) = failure {
        keep_printed(
            &format!("{played}-{}.txt", failure.seed),
            &failure.last_events,
        )?;
        let replay = sim::replay(failure.seed, &seeds);
        failures.push(format!("{}\n    {replay}", failure.words));
    }
    Ok(Run {
        program: Program::Simulator,
        played: played.to_owned(),
        first_seed,
        count: sum.runs,
        acknowledged: sum.acknowledged,
        faults: sum.faults,
        seconds: began.elapsed().as_secs_f64(),
        failures,
    })
}

/// The part of the nemesis's figures that is read.
#[derive(Default, Deserialize)]
struct Said {
    cycles: u64,
    acknowledged: u64,
}

/// Runs one ring with real mysqlds under the faults of a new seed. `ring` is its number among the concurrent rings.
fn faults(witness: &Path, program: &Path, kind: Option<&str>, ring: usize) -> Result<Run> {
    let began = Instant::now();
    // The seed is as small as seeds that the nemesis draws itself.
    let seed = sim::fresh_seed() >> 8;
    let figures = format!("nemesis-{ring}");
    let mut command = Command::new(program);
    command.arg("--witness").arg(witness);
    command.args(["--figures", &figures]);
    command.arg(format!("--seed={seed}"));
    command.arg(format!("--minutes={NEMESIS_MINUTES}"));
    command.args(kind.map(|kind| format!("--only={kind}")));
    let what = format!("the nemesis with seed {seed}");
    let finished = bounded_run::run(what, command, Vec::new(), NEMESIS_LIMIT)?;
    let printed = String::from_utf8_lossy(&finished.stderr).into_owned();
    let mut run = Run {
        program: Program::Nemesis,
        played: kind.unwrap_or(MIXED).to_owned(),
        first_seed: seed,
        count: 0,
        acknowledged: 0,
        faults: 0,
        seconds: 0.0,
        failures: Vec::new(),
    };
    if finished.status.success() {
        let path = target_folder().join(format!("figures/{figures}.json"));
        let text = fs::read(&path).with_context(|| format!("no {}", path.display()))?;
        let said: Said = serde_json::from_slice(&text)?;
        run.count = said.cycles;
        run.faults = said.cycles;
        run.acknowledged = said.acknowledged;
    } else {
        keep_printed(&format!("nemesis-{seed}.txt"), &printed)?;
        let error = printed.split("error: ").last().unwrap_or_default();
        let only = kind.map(|kind| format!(" --only {kind}"));
        run.failures.push(format!(
            "{}\n    cargo lab nemesis --build checked --seed {seed} --minutes {NEMESIS_MINUTES}{}",
            error.trim(),
            only.unwrap_or_default()
        ));
    }
    run.seconds = began.elapsed().as_secs_f64();
    Ok(run)
}

fn told(run: &Run) -> String {
    let program = format!("{:?}", run.program).to_lowercase();
    let ended = match run.failures.as_slice() {
        [] => "nothing failed".to_owned(),
        failures => failures.join("; "),
    };
    format!(
        "{program}, {}, from seed {}: {} in {:.0} s, {} transactions acknowledged, {} faults; {ended}",
        run.played, run.first_seed, run.count, run.seconds, run.acknowledged, run.faults
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn running_parts_count_if_another_part_cannot_run() {
        let runs = Mutex::new(Vec::new());
        let night = Night {
            until: Instant::now() + Duration::from_secs(60),
            stop: &AtomicBool::new(false),
            cannot_run: &AtomicBool::new(false),
            runs: &runs,
        };
        night
            .fill(|_| {
                night.fill(|_| bail!("no mysqld")).unwrap_err();
                Ok(Run {
                    program: Program::Simulator,
                    played: MIXED.to_owned(),
                    first_seed: 7,
                    count: 3,
                    acknowledged: 0,
                    faults: 0,
                    seconds: 1.0,
                    failures: Vec::new(),
                })
            })
            .unwrap();
        assert_eq!(night.so_far(Program::Simulator, MIXED), 3);
    }

    #[test]
    fn every_scenario_has_its_turn() {
        let mut played = BTreeMap::<_, u64>::new();
        for number in 0..2 * SCENARIOS.len() {
            let now = turn(number, &[], |scenario| {
                played.get(&Some(scenario)).copied().unwrap_or_default()
            });
            *played.entry(now).or_default() += 1;
        }
        for scenario in SCENARIOS {
            assert_eq!(played[&Some(scenario)], 1);
        }
        assert_eq!(played[&None], SCENARIOS.len() as u64);
    }

    #[test]
    fn the_least_played_part_is_next() {
        let so_far = |scenario: &str| if scenario == "provisioning" { 3 } else { 7000 };
        assert_eq!(turn(1, &[], so_far), Some("provisioning"));
    }

    #[test]
    fn a_chosen_part_has_all_turns() {
        let chosen = ["purges", "mysqlds"].map(str::to_owned);
        let so_far = |scenario: &str| if scenario == "purges" { 2 } else { 5 };
        for number in 0..3 {
            assert_eq!(turn(number, &chosen, so_far), Some("purges"));
            assert_eq!(turn(number, &[MIXED.to_owned()], so_far), None);
        }
        let both = ["purges", MIXED].map(str::to_owned);
        assert_eq!(turn(0, &both, so_far), None);
        assert_eq!(turn(1, &both, so_far), Some("purges"));
    }
}

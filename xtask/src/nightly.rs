//! `cargo xtask nightly`: fills the time that it is given with seeds of the simulator and of the nemesis that nobody has seen, by
//! turns. What fails is kept and does not end the night; how much was run goes to [`crate::evidence`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Deserialize;
use testkit::bounded_run;
use testkit::cluster::{Profile, nemesis_binary, witness_binary};
use testkit::figures::{revision, target_folder};
use testkit::stop_on_interrupt;

use crate::evidence::{Evidence, Found, Program, Run};
use crate::kept_seeds::{self, MIXED, today};
use crate::nemesis;
use crate::sim::{self, Build, SCENARIOS, Seeds};

#[derive(Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Run one of them alone; the nemesis needs root and a mysqld
    #[arg(long, value_enum)]
    only: Option<Program>,
    /// Seeds of these scenarios only, by turns, where the simulator has its turn; may be given more than once
    #[arg(long, value_parser = PossibleValuesParser::new(SCENARIOS))]
    scenario: Vec<String>,
    /// Faults of this kind only, where the nemesis has its turn
    #[arg(long)]
    fault: Option<String>,
    /// How many seeds of the simulator at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// How long the simulator plays one thing at a time.
const TURN: Duration = Duration::from_secs(120);
/// How long the nemesis works on one ring. Bringing it up and comparing everything at the end come on top.
const NEMESIS_MINUTES: f64 = 5.0;
/// After so long a nemesis hangs.
const NEMESIS_LIMIT: Duration = Duration::from_secs(1800);

/// `cargo xtask nightly`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = stop_on_interrupt()?;
    let mut evidence = Evidence::of_the_checkout()?;
    let simulator = match options.only {
        Some(Program::Nemesis) => None,
        _ => Some(sim::build(Build::Checked)?),
    };
    let programs = match options.only {
        Some(Program::Simulator) => None,
        _ => Some((witness_binary(Profile::Dev)?, nemesis_binary(Profile::Dev)?)),
    };
    // Building takes none of it.
    let until = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    for number in 0.. {
        if Instant::now() >= until || stop.load(Ordering::Relaxed) {
            break;
        }
        let (program, scenario) = turn(number, options.only, &options.scenario, |scenario| {
            evidence.count(Program::Simulator, scenario)
        });
        let done = match (program, &programs, &simulator) {
            (Program::Nemesis, Some((witness, nemesis)), _) => {
                faults(witness, nemesis, options.fault.as_deref())
            }
            (Program::Simulator, _, Some(simulator)) => {
                let until = until.min(Instant::now() + TURN);
                seeds(simulator, scenario, until, options.jobs)
            }
            (program, ..) => bail!("{program:?} was not built"),
        };
        if stop.load(Ordering::Relaxed) {
            // Ctrl-C reaches what runs as well: it has come to nothing.
            break;
        }
        let done = done?;
        println!("{}", told(&done));
        evidence.add(done)?;
    }
    let failures = evidence.now().iter().flat_map(|run| &run.failures);
    let lines: Vec<_> = failures
        .map(|found| format!("{}\n    {}", found.words, found.replay))
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    bail!(
        "{} seeds failed; what they printed is in {}:\n{}",
        lines.len(),
        folder().display(),
        lines.join("\n")
    );
}

/// What is run in this turn, of all that are counted from zero: the simulator draws everything in one turn, plays a scenario in the
/// next, and the nemesis has every third turn, which is about half of the time. Where `chosen` names scenarios, the simulator plays
/// no others. A scenario's turn is that of which the fewest seeds were played so far: what was hardly tried has the most to show.
fn turn(
    number: usize,
    only: Option<Program>,
    chosen: &[String],
    seeds_so_far: impl Fn(&str) -> u64,
) -> (Program, Option<&'static str>) {
    let is_chosen = |scenario: &&str| chosen.is_empty() || chosen.iter().any(|one| one == scenario);
    let scenario = SCENARIOS
        .into_iter()
        .filter(is_chosen)
        .min_by_key(|scenario| seeds_so_far(scenario));
    let turns = [
        chosen.is_empty().then_some((Program::Simulator, None)),
        Some((Program::Simulator, scenario)),
        Some((Program::Nemesis, None)),
    ];
    let turns: Vec<_> = turns
        .into_iter()
        .flatten()
        .filter(|(program, _)| only.is_none_or(|only| only == *program))
        .collect();
    turns[number % turns.len()]
}

/// Where what failed leaves what it printed.
fn folder() -> PathBuf {
    target_folder().join("nightly")
}

fn keep_printed(name: &str, printed: &str) -> Result<()> {
    fs::create_dir_all(folder())?;
    fs::write(folder().join(name), printed)?;
    Ok(())
}

/// Fresh seeds of one scenario, until one fails or this moment comes.
fn seeds(simulator: &Path, scenario: Option<&str>, until: Instant, jobs: usize) -> Result<Run> {
    let began = Instant::now();
    let first_seed = sim::fresh_seed();
    let seeds = Seeds {
        range: first_seed..u64::MAX,
        until: Some(until),
        jobs,
        build: Build::Checked,
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
        kept_seeds::keep(&failure.kept(&seeds))?;
        failures.push(Found {
            seed: failure.seed,
            words: failure.words,
            replay: sim::replay(failure.seed, &seeds),
        });
    }
    Ok(Run {
        date: today(),
        revision: revision(&testkit::checkout()),
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

/// What the nemesis says in its figures; it says more.
#[derive(Default, Deserialize)]
struct Said {
    cycles: u64,
    acknowledged: u64,
}

/// One ring with real mysqlds, under the faults of a fresh seed.
fn faults(witness: &Path, program: &Path, kind: Option<&str>) -> Result<Run> {
    let began = Instant::now();
    // As small as those that it draws by itself.
    let seed = sim::fresh_seed() >> 8;
    let options = nemesis::Options::of(seed, NEMESIS_MINUTES, kind);
    let command = nemesis::command(&options, witness.to_owned(), program.to_owned());
    let what = format!("the nemesis with seed {seed}");
    let finished = bounded_run::run(what, command, Vec::new(), NEMESIS_LIMIT)?;
    let printed = String::from_utf8_lossy(&finished.stderr).into_owned();
    let mut run = Run {
        date: today(),
        revision: revision(&testkit::checkout()),
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
        let path = target_folder().join("figures/nemesis.json");
        let text = fs::read(&path).with_context(|| format!("no {}", path.display()))?;
        let said: Said = serde_json::from_slice(&text)?;
        run.count = said.cycles;
        run.faults = said.cycles;
        run.acknowledged = said.acknowledged;
    } else {
        keep_printed(&format!("nemesis-{seed}.txt"), &printed)?;
        let error = printed.split("error: ").last().unwrap_or_default();
        run.failures.push(Found {
            seed,
            words: error.trim().to_owned(),
            replay: format!(
                "cargo xtask nemesis --seed {seed} --minutes {NEMESIS_MINUTES}{}",
                kind.map(|kind| format!(" --only {kind}"))
                    .unwrap_or_default()
            ),
        });
    }
    run.seconds = began.elapsed().as_secs_f64();
    Ok(run)
}

fn told(run: &Run) -> String {
    let program = match run.program {
        Program::Simulator => "simulator",
        Program::Nemesis => "nemesis",
        Program::Fuzzer => "fuzzer",
    };
    let ended = match run.failures.as_slice() {
        [] => "nothing failed".to_owned(),
        found => found
            .iter()
            .map(|one| one.words.clone())
            .collect::<Vec<_>>()
            .join("; "),
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
    fn every_scenario_and_the_nemesis_have_their_turns() {
        let mut played = BTreeMap::<_, u64>::new();
        for number in 0..3 * SCENARIOS.len() {
            let now = turn(number, None, &[], |scenario| {
                let seeds = played.get(&(Program::Simulator, Some(scenario)));
                seeds.copied().unwrap_or_default()
            });
            *played.entry(now).or_default() += 1;
        }
        for scenario in SCENARIOS {
            assert_eq!(played[&(Program::Simulator, Some(scenario))], 1);
        }
        let turns = SCENARIOS.len() as u64;
        assert_eq!(played[&(Program::Simulator, None)], turns);
        assert_eq!(played[&(Program::Nemesis, None)], turns);
        for number in 0..4 {
            let alone = turn(number, Some(Program::Nemesis), &[], |_| 0);
            assert_eq!(alone, (Program::Nemesis, None));
        }
    }

    #[test]
    fn what_was_played_least_is_next() {
        let so_far = |scenario: &str| if scenario == "provisioning" { 3 } else { 7000 };
        let next = turn(1, Some(Program::Simulator), &[], so_far);
        assert_eq!(next, (Program::Simulator, Some("provisioning")));
    }

    #[test]
    fn chosen_scenarios_have_all_turns_of_the_simulator() {
        let chosen = ["purges".to_owned(), "mysqlds".to_owned()];
        let so_far = |scenario: &str| if scenario == "purges" { 2 } else { 5 };
        for number in 0..3 {
            let alone = turn(number, Some(Program::Simulator), &chosen, so_far);
            assert_eq!(alone, (Program::Simulator, Some("purges")));
        }
        let second = turn(1, None, &chosen, so_far);
        assert_eq!(second, (Program::Nemesis, None));
    }
}

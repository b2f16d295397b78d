//! Runs one seed of the simulator and prints the outcome. A process can run only one seed, because the runtime's choices depend on a
//! counter of the process. `cargo lab sim` runs many seeds.

mod checkers;
mod dice;
mod event;
mod faults;
mod member;
mod mutation;
mod network;
mod operations;
mod panics;
mod record;
mod scenario;
mod shape;
mod shared;
mod sql_clients;
mod tick;
mod trace_file;
mod workload;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde::Serialize;

use crate::mutation::Mutation;
use crate::record::{Counts, Trace};
use crate::scenario::Scenario;
use crate::trace_file::TraceFile;
use crate::world::World;

#[derive(Parser)]
#[command(name = "simulator", about = "Runs one seed of the simulated ring")]
struct Arguments {
    /// The seed
    #[arg(long)]
    seed: u64,
    /// Break the ring deliberately
    #[arg(long, value_enum)]
    mutate: Option<Mutation>,
    /// Play this scenario, whatever the seed draws
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,
    /// Print all events, including every message
    #[arg(long)]
    trace: bool,
    /// Write the members' actions into this file, to check them against the model's rules
    #[arg(long)]
    write_trace: Option<PathBuf>,
    /// Print the members' logs at this level, for instance `debug` or `openraft=info`
    #[arg(long)]
    engine_log: Option<String>,
}

/// The outcome of a run. It is printed as JSON on one line.
#[derive(Serialize)]
struct Outcome {
    seed: u64,
    /// The violated property and the message; null if there is no violation.
    checker: Option<&'static str>,
    words: Option<String>,
    at_ms: Option<u64>,
    hash: String,
    counts: Counts,
    healed_ms: Option<u64>,
    virtual_ms: u64,
    wall_ms: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(level) = &arguments.engine_log {
        tracing_subscriber::fmt()
            .with_env_filter(level)
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    panics::note_all();
    member::remove_folders();
    // The run needs a new thread, which draws its random numbers after the seed is set.
    let run = std::thread::spawn(move || run(&arguments));
    let run = run.join();
    member::remove_folders();
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(_) => {
            for panic in panics::take() {
                eprintln!("the simulator itself failed: {panic}");
            }
            ExitCode::from(2)
        }
    }
}

/// Runs a seed. Returns whether no property was violated.
fn run(arguments: &Arguments) -> bool {
    let began = Instant::now();
    let seed = arguments.seed;
    sim_entropy::seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
    fastrand::seed(seed ^ 0xc11e_5eed);
    let trace = Trace::new(arguments.trace);
    let mut world = World::new(seed, arguments.mutate, arguments.scenario, trace);
    if let Some(path) = &arguments.write_trace {
        match TraceFile::create(path) {
            Ok(file) => world.record().write_to(file),
            Err(error) => {
                eprintln!("no trace can be written to {}: {error}", path.display());
                return false;
            }
        }
    }
    world.run();
    let record = world.record();
    let violation = record.violation();
    if let Some(violation) = &violation {
        for event in record.last_events() {
            eprintln!("{event}");
        }
        eprintln!(
            "seed {seed}, {}: {}: {}",
            violation.at, violation.checker, violation.words
        );
    }
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let outcome = Outcome {
        seed,
        checker: violation.as_ref().map(|violation| violation.checker),
        at_ms: violation
            .as_ref()
            .map(|violation| millis(violation.at.elapsed())),
        words: violation.as_ref().map(|violation| violation.words.clone()),
        hash: record.hash(),
        counts: record.counts(),
        healed_ms: record.healed().map(millis),
        virtual_ms: millis(world.now().elapsed()),
        wall_ms: millis(began.elapsed()),
    };
    match serde_json::to_string(&outcome) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("the outcome cannot be printed: {error}"),
    }
    violation.is_none()
}

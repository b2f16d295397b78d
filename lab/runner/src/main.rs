//! `cargo lab`: runs the simulator, the nemesis and the fuzzer for a requested time, and comparisons with stock MySQL.

mod compare;
mod fuzz;
mod nemesis;
mod nightly;
mod previous_build;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo lab", about = "Long tests and measurements of witness")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run seeds of the simulated ring
    Sim(sim::Options),
    /// Inject random faults into a ring with real mysqlds
    Nemesis(nemesis::Options),
    /// Run new seeds of the simulator and new faults of the nemesis for a given time, and print the counts
    Nightly(nightly::Options),
    /// Run libFuzzer over everything that reads from a socket or a file
    Fuzz(fuzz::Options),
    /// Measure witness next to stock MySQL
    #[command(subcommand)]
    Compare(compare::Comparison),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Sim(options) => sim::run(&options),
        Task::Nemesis(options) => nemesis::run(&options),
        Task::Nightly(options) => nightly::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Compare(comparison) => compare::run(&comparison),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

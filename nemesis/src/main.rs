//! A ring of real members and real mysqlds in three regions, clients that follow its primary, and faults at random from a
//! seed; at the end, and now and then, what the clients were told is held against what every server has.
//!
//! `cargo xtask nemesis` builds the members and runs it.

mod audit;
mod campaign;
mod clients;
mod cycle_log;
mod fault;
mod findings;
mod guide;
mod ledger;
mod readers;
mod stage;
mod strike;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Faults at random against a ring with real mysqlds.
#[derive(Debug, Parser)]
#[command(name = "nemesis")]
struct Arguments {
    /// The members' program
    #[arg(long)]
    witness: PathBuf,
    /// What faults there are, and when; 0: another one every time
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Stop after so many faults
    #[arg(long)]
    cycles: Option<u32>,
    /// Faults of these kinds only
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<fault::Kind>,
    /// The longest SIGSTOP, in seconds
    #[arg(long, default_value_t = 60.0)]
    longest_stop: f64,
    /// Break something on purpose; then the run has to fail
    #[arg(long, value_enum)]
    mutate: Option<Mutation>,
    /// One way, between two members of a region, in milliseconds
    #[arg(long, default_value_t = 0.1)]
    inside_ms: f64,
    /// One way, between two regions, in milliseconds
    #[arg(long, default_value_t = 30.0)]
    across_ms: f64,
}

/// What can be broken, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mutation {
    /// A primary that was cut off goes on answering readers: `mysql.fence_after` is a day
    NoFence,
}

fn main() -> ExitCode {
    match campaign::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

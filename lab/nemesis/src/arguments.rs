//! The command line of a run.

use std::path::PathBuf;

use clap::Parser;

use crate::fault::Kind;

/// Random faults against a ring with real mysqlds.
#[derive(Debug, Parser)]
#[command(name = "nemesis")]
pub(crate) struct Arguments {
    /// The members' program
    #[arg(long)]
    pub(crate) witness: PathBuf,
    /// The seed of the faults; 0: random
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Stop after so many minutes
    #[arg(long)]
    pub(crate) minutes: Option<f64>,
    /// Stop after so many faults
    #[arg(long)]
    pub(crate) cycles: Option<u32>,
    /// Begin a fault every so many seconds, after every member has recovered; in between, leadership, memory and descriptors must not
    /// change
    #[arg(long)]
    pub(crate) every: Option<f64>,
    /// Only faults of these kinds
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Kind>,
    /// The longest SIGSTOP, in seconds
    #[arg(long, default_value_t = 60.0)]
    pub(crate) longest_stop: f64,
    /// Break something on purpose; then the run must fail
    #[arg(long, value_enum)]
    pub(crate) mutate: Option<Mutation>,
    /// Another build of the members' program: they run it first, and the fault `change-version` switches between the two
    #[arg(long)]
    pub(crate) previous: Option<PathBuf>,
    /// The name of the file with its figures
    #[arg(long, default_value = "nemesis")]
    pub(crate) figures: String,
    /// One-way delay between two members of a region, in milliseconds
    #[arg(long, default_value_t = 0.1)]
    pub(crate) inside_ms: f64,
    /// One-way delay between two regions, in milliseconds
    #[arg(long, default_value_t = 30.0)]
    pub(crate) across_ms: f64,
}

/// Rules to break, to check that a run detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mutation {
    /// A primary that was cut off still answers readers: `mysql.fence_after` is a day
    NoFence,
}

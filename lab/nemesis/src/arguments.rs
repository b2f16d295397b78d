//! What a run is told on the command line.

use std::path::PathBuf;

use clap::Parser;

use crate::fault::Kind;

/// Faults at random against a ring with real mysqlds.
#[derive(Debug, Parser)]
#[command(name = "nemesis")]
pub(crate) struct Arguments {
    /// The members' program
    #[arg(long)]
    pub(crate) witness: PathBuf,
    /// What faults there are, and when; 0: another one every time
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Stop after so many minutes
    #[arg(long)]
    pub(crate) minutes: Option<f64>,
    /// Stop after so many faults
    #[arg(long)]
    pub(crate) cycles: Option<u32>,
    /// Begin a fault every so many seconds, and not before everybody has recovered; in between, leadership, memory and descriptors have
    /// to stay as they are
    #[arg(long)]
    pub(crate) every: Option<f64>,
    /// Faults of these kinds only
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Kind>,
    /// The longest SIGSTOP, in seconds
    #[arg(long, default_value_t = 60.0)]
    pub(crate) longest_stop: f64,
    /// Break something on purpose; then the run has to fail
    #[arg(long, value_enum)]
    pub(crate) mutate: Option<Mutation>,
    /// Another build of the members' program: they run it at first, and the fault `change-version` has them change to and fro
    #[arg(long)]
    pub(crate) previous: Option<PathBuf>,
    /// The name of the file with its figures
    #[arg(long, default_value = "nemesis")]
    pub(crate) figures: String,
    /// One way, between two members of a region, in milliseconds
    #[arg(long, default_value_t = 0.1)]
    pub(crate) inside_ms: f64,
    /// One way, between two regions, in milliseconds
    #[arg(long, default_value_t = 30.0)]
    pub(crate) across_ms: f64,
}

/// What can be broken, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mutation {
    /// A primary that was cut off goes on answering readers: `mysql.fence_after` is a day
    NoFence,
}

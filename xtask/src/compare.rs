//! `cargo xtask compare`: this project beside stock MySQL, measured in one run on one machine.

mod commit_latency;
mod data;
mod disk;
mod measurement;
mod processor_time;
mod setup;
mod summary;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Comparison {
    /// sysbench oltp_write_only against stock replication and against this ring
    CommitLatency(commit_latency::Options),
}

/// Runs one comparison.
pub(crate) fn run(comparison: &Comparison) -> Result<()> {
    match comparison {
        Comparison::CommitLatency(options) => commit_latency::run(options),
    }
}

//! `cargo lab compare`: this project beside stock MySQL and beside what others have published.

mod apply;
mod commit_latency;
mod data;
mod disk;
mod distance;
mod failover;
mod idle;
mod lag;
mod large_transaction;
mod measurement;
mod processor_time;
mod restore;
mod servers;
mod setup;
mod summary;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Comparison {
    /// sysbench oltp_write_only against stock replication and against this ring
    CommitLatency(commit_latency::Options),
    /// Crashes and promotions of a ring over three regions, beside Table 2 of MyRaft; needs root
    Failover(failover::Options),
    /// How fast a far member that was away catches up, over a long way that loses packets; needs root
    Distance(distance::Options),
    /// The same binlogs applied by MySQL's own replica and by this applier
    Apply(apply::Options),
    /// An archive restored, and its log applied by mysqlbinlog | mysql
    Restore(restore::Options),
    /// How far followers are behind a primary that is written to at a rate, and up to which rate they keep up
    Lag(lag::Options),
    /// How long one large transaction holds small commits up, and what it takes of memory
    LargeTransaction(large_transaction::Options),
    /// What members of rings in which nothing is written take: memory and processor time
    Idle(idle::Options),
}

/// Runs one comparison.
pub(crate) fn run(comparison: &Comparison) -> Result<()> {
    match comparison {
        Comparison::CommitLatency(options) => commit_latency::run(options),
        Comparison::Failover(options) => failover::run(options),
        Comparison::Distance(options) => distance::run(options),
        Comparison::Apply(options) => apply::run(options),
        Comparison::Restore(options) => restore::run(options),
        Comparison::Lag(options) => lag::run(options),
        Comparison::LargeTransaction(options) => large_transaction::run(options),
        Comparison::Idle(options) => idle::run(options),
    }
}

//! `cargo lab compare`: compares this project with stock MySQL and with published results of other projects.

mod apply;
mod commit_latency;
mod disk;
mod distance;
mod failover;
mod idle;
mod lag;
mod large_transaction;
mod processor_time;
mod restore;
mod servers;
mod setup;
mod summary;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::Value;
use tempfile::TempDir;
use testkit::cluster::{Profile, witness_binary};
use testkit::figures::{Figures, target_folder};
use testkit::mysqld::workload::Workload;
use testkit::statistics::Spread;

#[derive(Subcommand)]
pub(crate) enum Comparison {
    /// sysbench oltp_write_only against stock replication and against this ring
    CommitLatency(commit_latency::Options),
    /// Crashes and promotions of a ring over three regions, next to Table 2 of MyRaft; needs root
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
    /// Memory and processor time of members of idle rings
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

/// Builds the packaged program, and begins the figures of a comparison.
fn begin(name: &str) -> Result<(PathBuf, Figures)> {
    eprintln!("compare: building the program of packages");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("cargo lab {}", arguments.join(" "));
    Ok((
        witness_binary(Profile::Dist)?,
        Figures::new(name, &command)?,
    ))
}

/// Sets all entries of an object.
fn set_all(figures: &mut Figures, entries: &Value) -> Result<()> {
    let mut entries = entries.as_object().into_iter().flatten();
    entries.try_for_each(|(key, value)| figures.set(key, value))
}

/// Writes the figures, and prints the file's path.
fn finish(figures: &Figures) -> Result<()> {
    println!("figures: {}", figures.write()?.display());
    Ok(())
}

/// Creates a folder on the disk to measure; by default in the build's target folder.
fn work_folder(folder: Option<&Path>) -> Result<TempDir> {
    let folder = folder.map_or_else(target_folder, Path::to_owned);
    let made = tempfile::Builder::new()
        .prefix("compare-")
        .tempdir_in(&folder);
    made.with_context(|| format!("cannot make a folder in {}", folder.display()))
}

fn spread(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    Spread::of(&values.into_iter().collect::<Vec<_>>())
}

/// Returns the order of measurements for each round. Each round measures everything, and starts with another item. So a machine that
/// becomes slower during the run favours no item.
fn rounds<T: Clone>(all: &[T], count: usize) -> Vec<Vec<T>> {
    let order = |round: usize| {
        let mut order = all.to_vec();
        order.rotate_left(round % all.len().max(1));
        order
    };
    (0..count).map(order).collect()
}

/// Returns the workloads in `named`; if it is empty, all of `all`.
fn chosen(named: &[Workload], all: &[Workload]) -> Vec<Workload> {
    match named {
        [] => all.to_vec(),
        chosen => chosen.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::rounds;
    use super::setup::Setup;

    #[test]
    fn every_round_has_every_setup_and_starts_with_another() {
        let setups = Setup::value_variants();
        let all = setups.len();
        let rounds = rounds(setups, all + 1);
        assert_eq!(rounds.len(), all + 1);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort();
            assert_eq!(sorted, setups);
        }
        let firsts: Vec<Setup> = rounds.iter().map(|round| round[0]).collect();
        assert_eq!(firsts[..all], *setups);
        assert_eq!(firsts[all], setups[0]);
    }
}

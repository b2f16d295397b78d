//! `cargo lab compare apply`: compares how fast MySQL's own replica and this applier apply the same binlogs to a fresh mysqld.
//!
//! Neither waits for a network: the native replica has the whole log in its relay log before its time begins, and this applier reads the
//! source's binlog files. Every target starts as a copy of the same stopped server, with the same durability settings. Afterwards each
//! target's tables are compared with the source's.

mod bed;
mod contender;
mod summary;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::workload::{Load, Workload};

use crate::compare::apply::bed::{Bed, Targets};
use crate::compare::apply::contender::{Applier, Contender, Policy};
use crate::compare::apply::summary::{Sample, Summary};
use crate::compare::{begin, chosen, finish, rounds, set_all};

const FIGURES: &str = "apply";

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds; every round measures everybody once on every workload
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Transactions of each workload
    #[arg(long, default_value_t = 20_000)]
    transactions: u64,
    /// Concurrent clients that write on the source
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 8])]
    workers: Vec<u32>,
    /// Policies of this applier
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Policy::Rows, Policy::RowsOneByOne])]
    policies: Vec<Policy>,
    /// Workloads (default: all)
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    workloads: Vec<Workload>,
    /// This applier's targets write what is applied into their binlogs, as the promotable replica does
    #[arg(long)]
    target_binlog: bool,
    /// The targets force their logs once a second, and not at each commit: for a follower with a log that is safe elsewhere
    #[arg(long)]
    relaxed: bool,
}

/// Parses the name of a workload on the command line.
///
/// # Errors
/// The name is unknown. The error lists all names.
pub(super) fn workload(key: &str) -> Result<Workload> {
    let mut all = Workload::ALL.into_iter();
    let found = all.find(|workload| workload.key() == key);
    found.with_context(|| {
        format!(
            "the workloads are {}",
            Workload::ALL.map(Workload::key).join(", ")
        )
    })
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    let tree = MysqlTree::locate()?;
    let (witness, mut figures) = begin(FIGURES)?;
    let contenders = options.contenders();
    let workloads = chosen(&options.workloads, &Workload::ALL);
    let mut samples = Vec::new();
    let mut settings = BTreeMap::new();
    for workload in workloads {
        eprintln!("compare: {}: writing the log", workload.key());
        let load = Load {
            transactions: options.transactions,
            clients: options.clients,
            seed: 1,
        };
        let bed = Bed::make(&tree, workload, load, options.targets())?;
        for order in rounds(&contenders, options.rounds as usize) {
            for contender in order {
                eprintln!("compare: {}: {}", workload.key(), contender.key());
                let outcome = bed
                    .measure(contender, &witness)
                    .with_context(|| format!("{} on {}", contender.key(), workload.key()))?;
                samples.push(Sample {
                    workload,
                    contender,
                    outcome,
                });
            }
        }
        settings.insert(workload.key(), bed.settings()?);
    }
    let summary = Summary::of(&samples);
    let entries = json!({
        "transactions": options.transactions, "clients": options.clients, "target_binlog": options.target_binlog,
        "relaxed": options.relaxed, "settings": settings, "workloads": summary.figures(),
        "best_ratio_to_promotable_native": summary.best_ratios(Applier::Native),
        "best_ratio_to_native_unlogged": summary.best_ratios(Applier::NativeUnlogged),
    });
    set_all(&mut figures, &entries)?;
    println!("{}", summary.table());
    finish(&figures)
}

impl Options {
    fn targets(&self) -> Targets {
        Targets {
            binlog: self.target_binlog,
            relaxed: self.relaxed,
        }
    }

    /// Returns all measured appliers: for each number of workers, the native replica with and without a binlog, and this applier.
    fn contenders(&self) -> Vec<Contender> {
        let own = self.policies.iter().copied().map(Applier::Own);
        let appliers: Vec<Applier> = [Applier::Native, Applier::NativeUnlogged]
            .into_iter()
            .chain(own)
            .collect();
        let of = |&workers: &u32| {
            let appliers = appliers.iter();
            appliers.map(move |&applier| Contender { applier, workers })
        };
        self.workers.iter().flat_map(of).collect()
    }
}

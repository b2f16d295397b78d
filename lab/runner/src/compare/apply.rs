//! `cargo lab compare apply`: the same binlogs applied to a fresh mysqld by MySQL's own replica and by this applier.
//!
//! The native replica has the whole log in its relay log before its time begins, and this applier reads the source's binlog
//! files, so that neither waits for a network. Every target begins as a copy of the same stopped server, with the same
//! settings for durability, and is compared with the source afterwards, table by table.

mod bed;
mod contender;
mod summary;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::workload::{Load, Workload};

use crate::compare::apply::bed::{Bed, Targets};
use crate::compare::apply::contender::{Contender, Policy};
use crate::compare::apply::summary::{Peer, Sample, Summary};
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
    #[arg(long, value_delimiter = ',', value_enum)]
    workloads: Vec<Named>,
    /// This applier's targets write what is applied into their binlogs, as the promotable replica does
    #[arg(long)]
    target_binlog: bool,
    /// The targets force their logs once a second, and not at each commit: for a follower with a log that is safe elsewhere
    #[arg(long)]
    relaxed: bool,
}

/// A workload on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named(Workload);

impl Named {
    pub(super) fn workload(self) -> Workload {
        self.0
    }
}

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Named; 6] = [
            Named(Workload::ALL[0]),
            Named(Workload::ALL[1]),
            Named(Workload::ALL[2]),
            Named(Workload::ALL[3]),
            Named(Workload::ALL[4]),
            Named(Workload::ALL[5]),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.key()))
    }
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    let tree = MysqlTree::locate()?;
    let (witness, mut figures) = begin(FIGURES)?;
    let contenders = options.contenders();
    let workloads = chosen(&options.workloads, &Workload::ALL);
    let runs = contenders.len() * workloads.len() * options.rounds as usize;
    let bar = ProgressBar::new(runs as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {eta} {msg}",
    )?);
    let mut samples = Vec::new();
    let mut settings = BTreeMap::new();
    for workload in workloads {
        bar.set_message(format!("{}: writing the log", workload.key()));
        let load = Load {
            transactions: options.transactions,
            clients: options.clients,
            seed: 1,
        };
        let bed = Bed::make(&tree, workload, load, options.targets())?;
        for order in rounds(&contenders, options.rounds as usize) {
            for contender in order {
                bar.set_message(format!("{}: {}", workload.key(), contender.key()));
                let outcome = bed
                    .measure(contender, &witness)
                    .with_context(|| format!("{} on {}", contender.key(), workload.key()))?;
                samples.push(Sample {
                    workload,
                    contender,
                    outcome,
                });
                bar.inc(1);
            }
        }
        settings.insert(workload.key(), bed.settings()?);
    }
    bar.finish_and_clear();
    let summary = Summary::of(&samples);
    let entries = json!({
        "transactions": options.transactions, "clients": options.clients, "target_binlog": options.target_binlog,
        "relaxed": options.relaxed, "settings": settings, "workloads": summary.figures(),
        "best_ratio_to_promotable_native": summary.best_ratios(Peer::Native),
        "best_ratio_to_native_unlogged": summary.best_ratios(Peer::NativeUnlogged),
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

    /// All members: for each number of workers the native replica, logged and not, next to this applier.
    fn contenders(&self) -> Vec<Contender> {
        let of = |&workers: &u32| {
            let own = self.policies.iter();
            let own = own.map(move |&policy| Contender::Own { policy, workers });
            [
                Contender::Native { workers },
                Contender::NativeUnlogged { workers },
            ]
            .into_iter()
            .chain(own)
        };
        self.workers.iter().flat_map(of).collect()
    }
}

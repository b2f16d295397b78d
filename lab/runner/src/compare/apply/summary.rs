//! The medians of a comparison, as a table and as figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value, json};
use testkit::mysqld::workload::Workload;
use testkit::statistics::Spread;

use super::bed::Outcome;
use super::contender::{Applier, Contender};
use crate::compare::spread;
use crate::compare::summary::ratio_text;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) workload: Workload,
    pub(super) contender: Contender,
    pub(super) outcome: Outcome,
}

/// All measurements of one applier on one workload.
#[derive(Clone, Copy, Debug)]
struct Cell {
    transactions_per_second: Spread,
    peak_memory_mib: Spread,
}

/// The results by workload and applier.
pub(super) struct Summary(BTreeMap<(Workload, Contender), Cell>);

impl Summary {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let cell = |sample: &Sample| {
            let key = (sample.workload, sample.contender);
            let same = samples.iter();
            let same = same.filter(|other| (other.workload, other.contender) == key);
            let of =
                |value: fn(&Outcome) -> f64| spread(same.clone().map(|one| value(&one.outcome)));
            let cell = Cell {
                transactions_per_second: of(|one| one.transactions_per_second)?,
                peak_memory_mib: of(|one| one.peak_memory_mib)?,
            };
            Some((key, cell))
        };
        Self(samples.iter().filter_map(cell).collect())
    }

    /// Returns the ratio of the highest throughput of this applier to that of a peer, each at its best number of workers.
    fn best_ratio(&self, workload: Workload, peer: Applier) -> Option<f64> {
        let best = |is: &dyn Fn(Applier) -> bool| {
            let of = self.0.iter();
            let of = of.filter(|((on, by), _)| *on == workload && is(by.applier));
            of.map(|(_, cell)| cell.transactions_per_second.median)
                .max_by(f64::total_cmp)
        };
        let own = best(&|one| matches!(one, Applier::Own(_)))?;
        Some(own / best(&|one| one == peer)?)
    }

    fn workloads(&self) -> BTreeSet<Workload> {
        self.0.keys().map(|(workload, _)| *workload).collect()
    }

    /// Returns throughput in transactions per second, and memory, by workload and applier.
    pub(super) fn figures(&self) -> Value {
        let mut figures = Map::new();
        for ((workload, contender), cell) in &self.0 {
            let of = figures.entry(workload.key()).or_insert_with(|| json!({}));
            of[contender.key()] = json!({
                "transactions_per_second": cell.transactions_per_second,
                "peak_memory_mib": cell.peak_memory_mib,
            });
        }
        figures.into()
    }

    /// Returns, by workload, the ratio of the best throughput of this applier to that of a peer.
    pub(super) fn best_ratios(&self, peer: Applier) -> Value {
        let ratio = |workload: Workload| {
            let ratio = self.best_ratio(workload, peer)?;
            Some((workload.key().to_owned(), Value::from(ratio)))
        };
        let ratios = self.workloads().into_iter().filter_map(ratio);
        ratios.collect::<Map<_, _>>().into()
    }

    pub(super) fn table(&self) -> String {
        let mut table = format!(
            "{:<18} {:<18} {:>9} {:>19} {:>9}\n",
            "workload", "applier", "tx/s", "[min max]", "MiB"
        );
        for ((workload, contender), cell) in &self.0 {
            let speed = cell.transactions_per_second;
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "{:<18} {:<18} {:>9.0} {:>19} {:>9.0}",
                workload.key(),
                contender.key(),
                speed.median,
                format!("[{:.0} {:.0}]", speed.min, speed.max),
                cell.peak_memory_mib.median,
            );
        }
        table.push_str("\nbest of this applier / best of MySQL's own replica\n");
        for workload in self.workloads() {
            let ratio = |peer| ratio_text(self.best_ratio(workload, peer));
            let _ = writeln!(
                table,
                "{:<18} {} of one that may be promoted, {} of one that does not log",
                workload.key(),
                ratio(Applier::Native),
                ratio(Applier::NativeUnlogged),
            );
        }
        table
    }
}

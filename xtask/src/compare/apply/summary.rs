//! The medians of a comparison, as a table and as figures.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};
use testkit::mysqld::workload::Workload;
use testkit::statistics::Spread;

use super::bed::Outcome;
use super::contender::Contender;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) workload: Workload,
    pub(super) contender: Contender,
    pub(super) outcome: Outcome,
}

/// Of one contender on one workload.
#[derive(Clone, Copy, Debug)]
struct Cell {
    transactions_per_second: Spread,
    peak_memory_mib: Spread,
}

/// See the module.
pub(super) struct Summary(BTreeMap<Workload, BTreeMap<Contender, Cell>>);

impl Summary {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let mut outcomes: BTreeMap<Workload, BTreeMap<Contender, Vec<Outcome>>> = BTreeMap::new();
        for sample in samples {
            let workload = outcomes.entry(sample.workload).or_default();
            workload
                .entry(sample.contender)
                .or_default()
                .push(sample.outcome);
        }
        let cell = |outcomes: &[Outcome]| {
            let spread =
                |of: fn(&Outcome) -> f64| Spread::of(&outcomes.iter().map(of).collect::<Vec<_>>());
            Some(Cell {
                transactions_per_second: spread(|outcome| outcome.transactions_per_second)?,
                peak_memory_mib: spread(|outcome| outcome.peak_memory_mib)?,
            })
        };
        let cells = |of: BTreeMap<Contender, Vec<Outcome>>| {
            of.into_iter()
                .filter_map(|(contender, outcomes)| Some((contender, cell(&outcomes)?)))
                .collect()
        };
        Self(
            outcomes
                .into_iter()
                .map(|(workload, of)| (workload, cells(of)))
                .collect(),
        )
    }

    /// To the native replica with the same number of workers on the same workload.
    fn ratio(&self, workload: Workload, contender: Contender) -> Option<f64> {
        let workload = self.0.get(&workload)?;
        let workers = contender.workers();
        let native = workload.get(&Contender::Native { workers })?;
        let own = workload.get(&contender)?;
        Some(own.transactions_per_second.median / native.transactions_per_second.median)
    }

    fn cells(&self) -> impl Iterator<Item = (Workload, Contender, Cell)> + '_ {
        self.0.iter().flat_map(|(workload, of)| {
            of.iter()
                .map(|(contender, cell)| (*workload, *contender, *cell))
        })
    }

    /// Transactions per second and memory by workload and contender.
    pub(super) fn figures(&self) -> Value {
        let mut figures = Map::new();
        for (workload, contender, cell) in self.cells() {
            let of = figures.entry(workload.key()).or_insert_with(|| json!({}));
            of[contender.key()] = json!({
                "transactions_per_second": cell.transactions_per_second,
                "peak_memory_mib": cell.peak_memory_mib,
            });
        }
        figures.into()
    }

    /// By workload, and by policy and workers.
    pub(super) fn ratios(&self) -> Value {
        let mut figures = Map::new();
        for (workload, contender, _) in self.cells() {
            if let (Contender::Own { .. }, Some(ratio)) =
                (contender, self.ratio(workload, contender))
            {
                let of = figures.entry(workload.key()).or_insert_with(|| json!({}));
                of[contender.key()] = ratio.into();
            }
        }
        figures.into()
    }

    pub(super) fn table(&self) -> String {
        let mut table = format!(
            "{:<18} {:<16} {:>9} {:>19} {:>10} {:>9}\n",
            "workload", "applier", "tx/s", "[min max]", "to native", "MiB"
        );
        for (workload, contender, cell) in self.cells() {
            let speed = cell.transactions_per_second;
            let ratio = self.ratio(workload, contender);
            // Writing to a string does not fail.
            let _ = writeln!(
                table,
                "{:<18} {:<16} {:>9.0} {:>19} {:>10} {:>9.0}",
                workload.key(),
                contender.key(),
                speed.median,
                format!("[{:.0} {:.0}]", speed.min, speed.max),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                cell.peak_memory_mib.median,
            );
        }
        table
    }
}

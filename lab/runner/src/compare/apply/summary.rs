//! The medians of a comparison, as a table and as figures.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};
use testkit::mysqld::workload::Workload;
use testkit::statistics::Spread;

use super::bed::Outcome;
use super::contender::Contender;
use crate::compare::spread;

/// The other contenders.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Native,
    NativeUnlogged,
}

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
            let of_contender = workload.entry(sample.contender).or_default();
            of_contender.push(sample.outcome);
        }
        let cell = |outcomes: &[Outcome]| {
            let all = outcomes.iter();
            Some(Cell {
                transactions_per_second: spread(
                    all.clone().map(|one| one.transactions_per_second),
                )?,
                peak_memory_mib: spread(all.map(|one| one.peak_memory_mib))?,
            })
        };
        let cells = |of: BTreeMap<Contender, Vec<Outcome>>| {
            of.into_iter()
                .filter_map(|(contender, outcomes)| Some((contender, cell(&outcomes)?)))
                .collect()
        };
        let outcomes = outcomes.into_iter();
        Self(
            outcomes
                .map(|(workload, of)| (workload, cells(of)))
                .collect(),
        )
    }

    /// Transactions per second of this applier at its best number of workers, to those of a peer at its own best.
    fn best_ratio(&self, workload: Workload, peer: Peer) -> Option<f64> {
        let best = |is: fn(Contender) -> bool| {
            let of = self.0.get(&workload)?.iter();
            let of = of.filter(|(contender, _)| is(**contender));
            of.map(|(_, cell)| cell.transactions_per_second.median)
                .max_by(f64::total_cmp)
        };
        let own = best(|one| matches!(one, Contender::Own { .. }))?;
        let peer = match peer {
            Peer::Native => best(|one| matches!(one, Contender::Native { .. }))?,
            Peer::NativeUnlogged => best(|one| matches!(one, Contender::NativeUnlogged { .. }))?,
        };
        Some(own / peer)
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

    /// By workload: the best of this applier to the best of a peer.
    pub(super) fn best_ratios(&self, peer: Peer) -> Value {
        let ratio = |workload: &Workload| {
            let ratio = self.best_ratio(*workload, peer)?;
            Some((workload.key().to_owned(), Value::from(ratio)))
        };
        self.0
            .keys()
            .filter_map(ratio)
            .collect::<Map<_, _>>()
            .into()
    }

    pub(super) fn table(&self) -> String {
        let mut table = format!(
            "{:<18} {:<18} {:>9} {:>19} {:>9}\n",
            "workload", "applier", "tx/s", "[min max]", "MiB"
        );
        for (workload, contender, cell) in self.cells() {
            let speed = cell.transactions_per_second;
            // Writing to a string does not fail.
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
        for workload in self.0.keys() {
            let ratio = |peer| {
                let ratio = self.best_ratio(*workload, peer);
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            let _ = writeln!(
                table,
                "{:<18} {} of one that may be promoted, {} of one that does not log",
                workload.key(),
                ratio(Peer::Native),
                ratio(Peer::NativeUnlogged),
            );
        }
        table
    }
}

//! Computes medians, ratios and the printed table from samples. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use testkit::mysqld::sysbench::SysbenchReport;
use testkit::statistics::Spread;

use super::processor_time::CoresUsed;
use super::setup::Setup;
use super::spread as spread_of;

/// One sysbench run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) setup: Setup,
    pub(super) threads: u32,
    pub(super) report: SysbenchReport,
    /// The processor use during the run, if the system reports it.
    pub(super) cores: Option<CoresUsed>,
}

/// The results of one setup with one number of threads, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    transactions_per_second: Spread,
    latency_mean_ms: Spread,
    latency_p50_ms: Spread,
    latency_p95_ms: Spread,
    latency_p99_ms: Spread,
    latency_max_ms: Spread,
    /// Processor cores used by the setup's processes and sysbench, and by all other processes.
    cores_used: Option<Spread>,
    cores_used_by_others: Option<Spread>,
    /// Ratios of this setup's mean latency to those of the measured setups without a ring. Each is a ratio of medians over all rounds.
    ratio_mean_to: BTreeMap<Setup, f64>,
    /// The ratios of mean latencies within each round. Their spread shows the precision of a single run.
    ratio_mean_by_round_to: BTreeMap<Setup, Spread>,
}

/// All cells, by setup and number of threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    cells: BTreeMap<Setup, BTreeMap<u32, Cell>>,
}

impl Summary {
    /// Summarizes samples. The samples of a setup are in the order of the rounds.
    pub(super) fn of(samples: &[Sample]) -> Self {
        let mut cells: BTreeMap<Setup, BTreeMap<u32, Cell>> = BTreeMap::new();
        for sample in samples {
            let by_threads = cells.entry(sample.setup).or_default();
            if !by_threads.contains_key(&sample.threads)
                && let Some(cell) = cell(samples, sample.setup, sample.threads)
            {
                by_threads.insert(sample.threads, cell);
            }
        }
        Self { cells }
    }

    /// The cells of one setup by number of threads.
    pub(super) fn of_setup(&self, setup: Setup) -> Option<&BTreeMap<u32, Cell>> {
        self.cells.get(&setup)
    }

    /// The ratios of one setup to another by number of threads, as far as both were measured.
    pub(super) fn ratios(&self, setup: Setup, to: Setup) -> BTreeMap<u32, f64> {
        let cells = self.cells.get(&setup).into_iter().flatten();
        cells
            .filter_map(|(threads, cell)| Some((*threads, *cell.ratio_mean_to.get(&to)?)))
            .collect()
    }

    /// The highest median of the processor use by other processes during a cell's measurements, in cores.
    pub(super) fn cores_of_others(&self) -> Option<f64> {
        let cells = self.cells.values().flat_map(BTreeMap::values);
        cells
            .filter_map(|cell| Some(cell.cores_used_by_others?.median))
            .max_by(f64::total_cmp)
    }

    /// Returns the table for the terminal: medians, with the range of the mean in brackets.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:<8}{:<18}{:>9}{:>10}  {:<16}{:>8}{:>9}{:>12}{:>8}{:>9}{:>8}\n",
            "threads",
            "setup",
            "tps",
            "mean ms",
            "[range]",
            "p50 ms",
            "p99 ms",
            "÷ semi-sync",
            "÷ lean",
            "÷ synced",
            "÷ group"
        );
        let mut threads: Vec<u32> = self
            .cells
            .values()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        threads.sort_unstable();
        threads.dedup();
        for threads in threads {
            for (setup, by_threads) in &self.cells {
                let Some(cell) = by_threads.get(&threads) else {
                    continue;
                };
                let mean = cell.latency_mean_ms;
                let ratio_to = |setup| ratio_text(cell.ratio_mean_to.get(&setup).copied());
                let _ = writeln!(
                    text,
                    "{threads:<8}{:<18}{:>9.0}{:>10.3}  {:<16}{:>8.3}{:>9.3}{:>12}{:>8}{:>9}{:>8}",
                    setup.key(),
                    cell.transactions_per_second.median,
                    mean.median,
                    format!("[{:.3} {:.3}]", mean.min, mean.max),
                    cell.latency_p50_ms.median,
                    cell.latency_p99_ms.median,
                    ratio_to(Setup::SemiSync),
                    ratio_to(Setup::LeanSemiSync),
                    ratio_to(Setup::SyncedSemiSync),
                    ratio_to(Setup::GroupReplication),
                );
            }
        }
        text
    }
}

fn cell(samples: &[Sample], setup: Setup, threads: u32) -> Option<Cell> {
    let of = |setup: Setup, value: fn(&SysbenchReport) -> f64| -> Vec<f64> {
        let samples = samples.iter();
        let of_setup = samples.filter(|sample| (sample.setup, sample.threads) == (setup, threads));
        of_setup.map(|sample| value(&sample.report)).collect()
    };
    let spread = |value| Spread::of(&of(setup, value));
    let own = samples.iter();
    let own = own.filter(|sample| (sample.setup, sample.threads) == (setup, threads));
    let cores: Vec<CoresUsed> = own.filter_map(|sample| sample.cores).collect();
    let means = |setup| of(setup, |report| report.latency_mean_ms);
    let ratio = |stock| Some(Spread::of(&means(setup))?.median / Spread::of(&means(stock))?.median);
    let by_round = |stock| {
        let (ours, theirs) = (means(setup), means(stock));
        spread_of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    };
    Some(Cell {
        transactions_per_second: spread(|report| report.transactions_per_second)?,
        latency_mean_ms: spread(|report| report.latency_mean_ms)?,
        latency_p50_ms: spread(|report| report.latency_p50_ms)?,
        latency_p95_ms: spread(|report| report.latency_p95_ms)?,
        latency_p99_ms: spread(|report| report.latency_p99_ms)?,
        latency_max_ms: spread(|report| report.latency_max_ms)?,
        cores_used: spread_of(cores.iter().map(|cores| cores.ours)),
        cores_used_by_others: spread_of(cores.iter().map(|cores| cores.others)),
        ratio_mean_to: to_others(&ratio),
        ratio_mean_by_round_to: to_others(&by_round),
    })
}

fn to_others<T>(relate: &dyn Fn(Setup) -> Option<T>) -> BTreeMap<Setup, T> {
    let others = Setup::OF_OTHERS.into_iter();
    others
        .filter_map(|setup| Some((setup, relate(setup)?)))
        .collect()
}

pub(super) fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(setup: Setup, threads: u32, mean_ms: f64) -> Sample {
        let report = SysbenchReport {
            transactions: 100,
            transactions_per_second: 1000.0 / mean_ms,
            latency_mean_ms: mean_ms,
            latency_p50_ms: mean_ms,
            latency_p95_ms: mean_ms,
            latency_p99_ms: mean_ms,
            latency_max_ms: mean_ms,
        };
        let cores = Some(CoresUsed {
            ours: 1.5,
            others: mean_ms,
        });
        Sample {
            setup,
            threads,
            report,
            cores,
        }
    }

    #[test]
    fn ratios_are_of_medians_and_by_threads() {
        let samples = [
            sample(Setup::SemiSync, 1, 2.0),
            sample(Setup::SemiSync, 1, 4.0),
            sample(Setup::SemiSync, 1, 3.0),
            sample(Setup::RingFsync, 1, 1.5),
            sample(Setup::RingFsync, 1, 9.0),
            sample(Setup::RingFsync, 1, 1.0),
            sample(Setup::SemiSync, 8, 10.0),
            sample(Setup::RingFsync, 8, 5.0),
        ];
        let summary = Summary::of(&samples);
        let ratios = summary.ratios(Setup::RingFsync, Setup::SemiSync);
        assert_eq!(ratios, BTreeMap::from([(1, 0.5), (8, 0.5)]));
        assert!(
            summary
                .ratios(Setup::RingFsync, Setup::LeanSemiSync)
                .is_empty(),
            "lean was not measured"
        );
        let cell = &summary.of_setup(Setup::RingFsync).unwrap()[&1];
        let by_round = cell.ratio_mean_by_round_to[&Setup::SemiSync];
        assert_eq!(
            (by_round.median, by_round.min, by_round.max),
            (0.75, 1.0 / 3.0, 2.25)
        );
        assert_eq!(cell.latency_mean_ms.max, 9.0);
        assert_eq!(summary.cores_of_others(), Some(10.0));
    }

    #[test]
    fn the_table_has_a_line_for_every_cell() {
        let samples = [
            sample(Setup::RingOs, 8, 1.0),
            sample(Setup::LeanSemiSync, 1, 2.0),
            sample(Setup::LeanSemiSync, 8, 4.0),
        ];
        let table = Summary::of(&samples).table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].contains("lean_semi_sync") && lines[1].contains("1.00"),
            "{table}"
        );
        assert!(
            lines[3].contains("ring_os") && lines[3].contains("0.25"),
            "{table}"
        );
    }
}

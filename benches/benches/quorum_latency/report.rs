//! From samples to medians, ratios, the printed table and the figures. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;

use super::distances::Distances;
use super::load::{Load, Sample};
use super::setup::Setup;

/// One load on one setup in one round.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) setup: Setup,
    pub(crate) distances: Distances,
    pub(crate) load: Load,
    pub(crate) sample: Sample,
    pub(crate) durable_write_ms: f64,
}

/// One line of the table: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) distances: Distances,
    pub(crate) load: String,
    pub(crate) setup: Setup,
    pub(crate) latency_p50_ms: Spread,
    pub(crate) latency_p99_ms: Spread,
    pub(crate) commits_per_s: Spread,
    /// The round trip that a commit has to wait for, and one durable write.
    pub(crate) physical_limit_ms: f64,
    /// Of the rounds' medians to those of the region alone in the same rounds.
    pub(crate) p50_ratio_to_region_alone: Option<Spread>,
    pub(crate) p50_ratio_to_physical_limit: f64,
}

/// All of it.
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    /// A plain write of a transaction's bytes that is made durable. The least counts as what the disk can do: whoever else
    /// uses it makes it wait for the file system's journal.
    durable_write_ms: Spread,
}

impl Report {
    /// Samples of one setup, distance and load stand in the order of the rounds.
    pub(crate) fn of(measured: &[Measured]) -> Result<Self> {
        let writes: Vec<f64> = measured.iter().map(|one| one.durable_write_ms).collect();
        let durable_write_ms = Spread::of(&writes).context("nothing was measured")?;
        let mut rows = Vec::new();
        let mut distances: Vec<Distances> = Vec::new();
        for one in measured {
            if !distances.contains(&one.distances) {
                distances.push(one.distances);
            }
        }
        for at in distances {
            for load in Load::ALL {
                rows.extend(
                    Setup::ALL
                        .into_iter()
                        .filter_map(|setup| row(measured, setup, at, load, durable_write_ms.min)),
                );
            }
        }
        Ok(Self {
            rows,
            durable_write_ms,
        })
    }

    /// The table for the terminal.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:>9} {:>9}  {:<16}{:<23}{:>9}  {:<19}{:>9}{:>11}{:>10}{:>9}{:>9}\n",
            "inside ms",
            "across ms",
            "load",
            "setup",
            "p50 ms",
            "[range]",
            "p99 ms",
            "commits/s",
            "limit ms",
            "÷ limit",
            "÷ alone"
        );
        for row in &self.rows {
            let p50 = row.latency_p50_ms;
            let ratio = row.p50_ratio_to_region_alone;
            let _ = writeln!(
                text,
                "{:>9} {:>9}  {:<16}{:<23}{:>9.3}  {:<19}{:>9.3}{:>11.0}{:>10.3}{:>9.2}{:>9}",
                row.distances.inside_one_way_ms,
                row.distances.across_one_way_ms,
                row.load,
                row.setup.name(),
                p50.median,
                format!("[{:.3} {:.3}]", p50.min, p50.max),
                row.latency_p99_ms.median,
                row.commits_per_s.median,
                row.physical_limit_ms,
                row.p50_ratio_to_physical_limit,
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.median)),
            );
        }
        text.push_str("Distances are one way; a round trip is twice as long.\n");
        text
    }

    /// Sets the entries of the figures.
    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        let paced = Load::ALL[0].name();
        figures.set("p50_ratio_to_region_alone", self.ratios(&paced))?;
        let by_load: BTreeMap<_, _> = Load::ALL
            .map(|load| (load.name(), self.ratios(&load.name())))
            .into();
        figures.set("p50_ratio_to_region_alone_by_load", by_load)?;
        figures.set("durable_write_ms", self.durable_write_ms)?;
        figures.set("rows", &self.rows)
    }

    /// How much longer `single-region-dynamic` takes than the region alone, by distance.
    fn ratios(&self, load: &str) -> BTreeMap<String, Spread> {
        let rows = self.rows.iter();
        let ours = rows.filter(|row| row.setup == Setup::SingleRegionDynamic && row.load == load);
        ours.filter_map(|row| Some((row.distances.key(), row.p50_ratio_to_region_alone?)))
            .collect()
    }
}

fn row(
    measured: &[Measured],
    setup: Setup,
    distances: Distances,
    load: Load,
    durable_write_ms: f64,
) -> Option<Row> {
    let of = |setup: Setup, value: &dyn Fn(&Measured) -> f64| -> Vec<f64> {
        let matching = measured
            .iter()
            .filter(|one| one.setup == setup && one.distances == distances && one.load == load);
        matching.map(value).collect()
    };
    let p50 = |one: &Measured| one.sample.latency_ms.p50;
    let spread = |value: &dyn Fn(&Measured) -> f64| Spread::of(&of(setup, value));
    let ours = of(setup, &p50);
    let alone = of(Setup::RegionAlone, &p50);
    let ratios: Vec<f64> = ours
        .iter()
        .zip(alone)
        .map(|(ours, alone)| ours / alone)
        .collect();
    let latency_p50_ms = spread(&p50)?;
    let physical_limit_ms = setup.limit_ms(distances, durable_write_ms);
    Some(Row {
        distances,
        load: load.name(),
        setup,
        latency_p50_ms,
        latency_p99_ms: spread(&|one| one.sample.latency_ms.p99)?,
        commits_per_s: spread(&|one| one.sample.commits_per_s())?,
        physical_limit_ms,
        p50_ratio_to_region_alone: Spread::of(&ratios),
        p50_ratio_to_physical_limit: latency_p50_ms.median / physical_limit_ms,
    })
}

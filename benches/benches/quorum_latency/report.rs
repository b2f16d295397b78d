//! Draws the table: the latency of paced commits by the distance between regions, on a logarithmic scale. Each distance within a region
//! has its own panel.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use plotters::prelude::*;
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;
use witness_benches::{Area, picture};

use crate::distances::Distances;
use crate::load::{Load, Sample};
use crate::setup::Setup;

const SIZE: (u32, u32) = (900, 460);
const LEGEND_FROM: i32 = 390;
/// The distance in pixels between the marks of two setups within a group.
const STEP: i32 = 22;
const DOT: i32 = 4;
/// The range of the scale in milliseconds. There is room above the highest values for their labels.
const SCALE: std::ops::Range<f64> = 0.1..3000.0;
const FONT: &str = "sans-serif";

/// Returns a setup's colour: a medium tone, which is visible on white and on black.
fn colour(setup: Setup) -> RGBColor {
    match setup {
        Setup::RegionAlone => RGBColor(0x8b, 0x94, 0x9e),
        Setup::SingleRegionDynamic => RGBColor(0x2d, 0xa4, 0x4e),
        Setup::Majority => RGBColor(0xd4, 0x76, 0x2c),
        Setup::Regions => RGBColor(0xa3, 0x71, 0xf7),
        Setup::PlainOpenraft => RGBColor(0x3b, 0x82, 0xf6),
    }
}

fn label(setup: Setup) -> &'static str {
    match setup {
        Setup::RegionAlone => "the region alone",
        Setup::SingleRegionDynamic => "single-region-dynamic",
        Setup::Majority => "majority",
        Setup::Regions => "regions",
        Setup::PlainOpenraft => "plain openraft",
    }
}

/// Draws the picture from the rows with the paced load.
pub(crate) fn draw(report: &Report) -> Result<String> {
    let paced = Load::ALL[0].name();
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.load == paced).collect();
    let insides = distinct(&rows, |at| at.inside_one_way_ms);
    picture(SIZE, "Commit latency by policy and distance", |area| {
        let title = "Commit latency, nine members in three regions: p50 (dot) to p99 (line), ms";
        let (panels, below) = area
            .titled(title, (FONT, 17))?
            .split_vertically(LEGEND_FROM);
        let panels = panels.split_evenly((1, insides.len()));
        for (area, inside) in panels.iter().zip(&insides) {
            let rows = rows.iter().copied();
            let rows = rows.filter(|row| row.distances.inside_one_way_ms == *inside);
            panel(area, *inside, &rows.collect::<Vec<_>>())?;
        }
        legend(&below)
    })
}

fn distinct(rows: &[&Row], of: impl Fn(&Distances) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().map(|row| of(&row.distances)).collect();
    values.dedup();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn panel(area: &Area, inside: f64, rows: &[&Row]) -> Result<()> {
    let groups = distinct(rows, |at| at.across_one_way_ms);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{inside} ms one way inside a region"), (FONT, 15))
        .margin(6)
        .x_label_area_size(24)
        .y_label_area_size(40)
        .build_cartesian_2d((0..groups.len() - 1).into_segmented(), SCALE.log_scale())?;
    let name = |group: &SegmentValue<usize>| match group {
        SegmentValue::CenterOf(group) => format!("{} ms across", groups[*group]),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.2))
        .label_style((FONT, 14))
        .y_labels(5)
        .x_label_formatter(&name)
        .y_label_formatter(&f64::to_string)
        .draw()?;
    for row in rows {
        let group = groups.partition_point(|across| *across < row.distances.across_one_way_ms);
        let at = |ms| (SegmentValue::CenterOf(group), ms);
        let (low, high) = (row.latency_p50_ms.median, row.latency_p99_ms.median);
        let rise = chart.backend_coord(&at(high)).1 - chart.backend_coord(&at(low)).1;
        let place = Setup::ALL.iter().position(|setup| *setup == row.setup);
        let x = (place.unwrap_or(0) as i32 - Setup::ALL.len() as i32 / 2) * STEP;
        let (colour, limit) = (colour(row.setup), row.physical_limit_ms);
        let upwards = (FONT, 11).into_font().transform(FontTransform::Rotate270);
        let numbers = format!("{low:.2} – {high:.2}");
        let drawn = EmptyElement::at(at(low))
            + PathElement::new([(x, 0), (x, rise)], colour.stroke_width(2))
            + Circle::new((x, 0), DOT, colour.filled())
            + Text::new(
                numbers,
                (x + DOT, rise.min(-2 * DOT)),
                upwards.color(&BLACK),
            );
        chart.plotting_area().draw(&drawn)?;
        let ends = [(x - 2 * DOT, 0), (x + 2 * DOT, 0)];
        let limit = EmptyElement::at(at(limit)) + PathElement::new(ends, BLACK.stroke_width(2));
        chart.plotting_area().draw(&limit)?;
    }
    Ok(())
}

fn legend(area: &Area) -> Result<()> {
    let mut x = 50;
    let mut word = |word: &'static str| {
        let at = EmptyElement::at((x, 16));
        x += 34 + 7 * word.len() as i32;
        at + Text::new(word, (12, -6), (FONT, 14))
    };
    for setup in Setup::ALL {
        let dot = Circle::new((0, 0), DOT, colour(setup).filled());
        area.draw(&(word(label(setup)) + dot))?;
    }
    let line = PathElement::new([(-6, 0), (8, 0)], BLACK.stroke_width(2));
    area.draw(&(word("physical limit") + line))?;
    Ok(())
}

// Computes medians and ratios from samples, and from these the printed table and the figures. Pure.

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
    /// The physical limit: the round trip of a commit plus one durable write.
    pub(crate) physical_limit_ms: f64,
    /// The ratio of this setup's median to that of the region alone in the same round, over the rounds.
    pub(crate) p50_ratio_to_region_alone: Option<Spread>,
    pub(crate) p50_ratio_to_physical_limit: f64,
}

/// All results.
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    /// A durable write of a transaction's bytes, without any protocol. The minimum counts as what the disk can do, because other users
    /// of the disk make a write wait for the file system's journal.
    durable_write_ms: Spread,
}

impl Report {
    /// Creates the report. Samples of one setup, distance and load must be in the order of the rounds.
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

    /// Returns the table for the terminal.
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

    /// Adds the results to the figures.
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

    /// Returns the ratio of `single-region-dynamic` to the region alone, by distance.
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

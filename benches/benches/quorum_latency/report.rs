//! The picture of the table: latency of paced commits over the distance between regions, one panel for each distance inside a
//! region, on a logarithmic scale. It is readable on light and on dark pages, and needs nothing but this file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;

use crate::distances::Distances;
use crate::load::{Load, Sample};
use crate::setup::Setup;

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 430.0;
const PANEL_TOP: f64 = 64.0;
const PANEL_BOTTOM: f64 = 350.0;
const PANEL_LEFT: [f64; 2] = [70.0, 490.0];
const PANEL_WIDTH: f64 = 360.0;
/// Between the panel's edge and its first and last group.
const MARGIN: f64 = 60.0;
/// From one setup's mark to the next within a group.
const STEP: f64 = 17.0;
const DOT: f64 = 5.0;
/// The scale, in milliseconds.
const LOWEST: f64 = 0.1;
const HIGHEST: f64 = 1000.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.small{font-size:12px;fill:#57606a}\
.grid{stroke:#d0d7de;stroke-width:1}.limit{stroke:#57606a;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.grid{stroke:#30363d}.limit{stroke:#9198a1}}";

/// Mid tones, which stand out from white and from black.
fn colour(setup: Setup) -> &'static str {
    match setup {
        Setup::RegionAlone => "#8b949e",
        Setup::SingleRegionDynamic => "#2da44e",
        Setup::Majority => "#d4762c",
        Setup::Regions => "#a371f7",
        Setup::PlainOpenraft => "#3b82f6",
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

/// Draws it, from the paced rows.
pub(crate) fn draw(report: &Report) -> String {
    let paced = Load::ALL[0].name();
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.load == paced).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Commit latency by policy and distance\"><style>{STYLE}</style>\n"
    );
    text(
        &mut svg,
        PANEL_LEFT[0],
        22.0,
        "start",
        "",
        "Commit latency, nine members in three regions: p50 (dot) to p99 (line), ms",
    );
    let mut panels: Vec<f64> = Vec::new();
    for row in &rows {
        if !panels.contains(&row.distances.inside_one_way_ms) {
            panels.push(row.distances.inside_one_way_ms);
        }
    }
    for (inside, left) in panels.iter().zip(PANEL_LEFT) {
        let of_panel = rows
            .iter()
            .filter(|row| row.distances.inside_one_way_ms == *inside);
        panel(
            &mut svg,
            left,
            *inside,
            &of_panel.copied().collect::<Vec<_>>(),
        );
    }
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, left: f64, inside: f64, rows: &[&Row]) {
    let title = format!("{inside} ms one way inside a region");
    text(
        svg,
        left + PANEL_WIDTH / 2.0,
        PANEL_TOP - 12.0,
        "middle",
        "",
        &title,
    );
    let mut value = LOWEST;
    while value <= HIGHEST * 1.001 {
        let y = height_of(value);
        let right = left + PANEL_WIDTH;
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"
        );
        text(
            svg,
            left - 8.0,
            y + 4.0,
            "end",
            "small",
            &format!("{value:.1}").replace(".0", ""),
        );
        value *= 10.0;
    }
    let mut groups: Vec<f64> = Vec::new();
    for row in rows {
        if !groups.contains(&row.distances.across_one_way_ms) {
            groups.push(row.distances.across_one_way_ms);
        }
    }
    for (number, across) in groups.iter().enumerate() {
        let share = number as f64 / (groups.len().max(2) - 1) as f64;
        let middle = left + MARGIN + share * (PANEL_WIDTH - 2.0 * MARGIN);
        let below = PANEL_BOTTOM + 20.0;
        text(
            svg,
            middle,
            below,
            "middle",
            "small",
            &format!("{across} ms across"),
        );
        for row in rows
            .iter()
            .filter(|row| row.distances.across_one_way_ms == *across)
        {
            mark(svg, middle, row);
        }
    }
}

fn mark(svg: &mut String, middle: f64, row: &Row) {
    let place = Setup::ALL
        .iter()
        .position(|setup| *setup == row.setup)
        .unwrap_or(0) as f64;
    let x = middle + (place - (Setup::ALL.len() - 1) as f64 / 2.0) * STEP;
    let (low, high) = (
        height_of(row.latency_p50_ms.median),
        height_of(row.latency_p99_ms.median),
    );
    let limit = height_of(row.physical_limit_ms);
    let colour = colour(row.setup);
    let (from, to) = (x - DOT - 2.0, x + DOT + 2.0);
    let _ = writeln!(
        svg,
        "<g><title>{}: p50 {:.3} ms, p99 {:.3} ms, limit {:.3} ms</title>\
         <line stroke=\"{colour}\" stroke-width=\"2\" x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" y2=\"{high:.1}\"/>\
         <line class=\"limit\" x1=\"{from:.1}\" y1=\"{limit:.1}\" x2=\"{to:.1}\" y2=\"{limit:.1}\"/>\
         <circle cx=\"{x:.1}\" cy=\"{low:.1}\" r=\"{DOT}\" fill=\"{colour}\"/></g>",
        label(row.setup),
        row.latency_p50_ms.median,
        row.latency_p99_ms.median,
        row.physical_limit_ms
    );
}

fn legend(svg: &mut String) {
    let y = HEIGHT - 22.0;
    let mut x = PANEL_LEFT[0];
    for setup in Setup::ALL {
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"{}\" r=\"{DOT}\" fill=\"{}\"/>",
            y - 4.0,
            colour(setup)
        );
        text(svg, x + 10.0, y, "start", "", label(setup));
        x += 34.0 + 7.2 * label(setup).len() as f64;
    }
    let _ = writeln!(
        svg,
        "<line class=\"limit\" x1=\"{x}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\"/>",
        y - 4.0,
        x + 14.0
    );
    text(svg, x + 20.0, y, "start", "", "physical limit");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

fn height_of(value: f64) -> f64 {
    let share = (value.clamp(LOWEST, HIGHEST) / LOWEST).log10() / (HIGHEST / LOWEST).log10();
    PANEL_BOTTOM - share * (PANEL_BOTTOM - PANEL_TOP)
}

// From samples to medians, ratios, the printed table and the figures. Pure.

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

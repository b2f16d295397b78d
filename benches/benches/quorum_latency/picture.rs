//! The picture of the table: latency of paced commits over the distance between regions, one panel for each distance inside a
//! region, on a logarithmic scale. It is readable on light and on dark pages, and needs nothing but this file.

use std::fmt::Write as _;

use super::load::Load;
use super::report::{Report, Row};
use super::setup::Setup;

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

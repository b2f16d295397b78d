//! The picture of the adversarial workload, as the paper's Figures 7 and 11: the backup's throughput relative to its primary's
//! over the inserts in a transaction. Readable on light and on dark pages, and needs nothing but this file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use applier::scheduler::Policy;
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;

use crate::virtual_time::{COMMITS, INSERTS, THREADS};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 610.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 290.0;
const HIGHEST: f64 = 1.2;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.small{font-size:12px;fill:#57606a}\
.grid{stroke:#d0d7de;stroke-width:1}polyline{fill:none;stroke-width:2.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.grid{stroke:#30363d}}";

struct Line {
    policy: &'static str,
    commit: u64,
    colour: &'static str,
    dashes: &'static str,
    label: String,
}

fn lines() -> [Line; 4] {
    let line = |policy, commit, colour, dashes, label| Line {
        policy,
        commit,
        colour,
        dashes,
        label,
    };
    [
        line(
            "rows",
            COMMITS[0],
            "#2da44e",
            "",
            "rows, whatever c".to_owned(),
        ),
        line(
            "transactions",
            COMMITS[0],
            "#d4762c",
            "",
            format!("transactions, c = {} w", COMMITS[0]),
        ),
        line(
            "transactions",
            COMMITS[1],
            "#a371f7",
            "",
            format!("transactions, c = {} w", COMMITS[1]),
        ),
        line(
            "transactions",
            COMMITS[2],
            "#3b82f6",
            "5 4",
            "transactions, c = 0".to_owned(),
        ),
    ]
}

/// Draws it.
pub(crate) fn draw(report: &Report) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"A backup's throughput relative to its primary's\"><style>{STYLE}</style>\n"
    );
    let title = format!(
        "Throughput of the backup ÷ the primary's: n inserts and one hot row, {THREADS} threads"
    );
    text(&mut svg, LEFT, 24.0, "start", "", &title);
    for tenths in (0..=12).step_by(2) {
        let value = f64::from(tenths) / 10.0;
        let y = height_of(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>"
        );
        text(
            &mut svg,
            LEFT - 8.0,
            y + 4.0,
            "end",
            "small",
            &format!("{value:.1}"),
        );
    }
    for (place, inserts) in INSERTS.iter().enumerate() {
        let x = place_of(place);
        text(
            &mut svg,
            x,
            BOTTOM + 18.0,
            "middle",
            "small",
            &inserts.to_string(),
        );
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    text(
        &mut svg,
        middle,
        BOTTOM + 36.0,
        "middle",
        "small",
        "inserts in a transaction",
    );
    for line in lines() {
        draw_line(&mut svg, report, &line);
    }
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

fn draw_line(svg: &mut String, report: &Report, line: &Line) {
    let ratios = report.line(line.policy, line.commit);
    let points: Vec<(f64, f64)> = ratios
        .iter()
        .enumerate()
        .map(|(place, (_, ratio))| (place_of(place), height_of(*ratio)))
        .collect();
    let joined: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline stroke=\"{}\" stroke-dasharray=\"{}\" points=\"{}\"/>",
        line.colour,
        line.dashes,
        joined.join(" ")
    );
    for ((x, y), (inserts, ratio)) in points.iter().zip(&ratios) {
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{}\"><title>{}, {inserts} inserts: {ratio:.2}</title></circle>",
            line.colour, line.label
        );
    }
}

fn legend(svg: &mut String) {
    let places = [
        (LEFT, 348.0),
        (LEFT + 280.0, 348.0),
        (LEFT, 369.0),
        (LEFT + 280.0, 369.0),
    ];
    for (line, (x, y)) in lines().iter().zip(places) {
        let _ = writeln!(
            svg,
            "<polyline stroke=\"{}\" stroke-dasharray=\"{}\" points=\"{x},{2} {3},{2}\"/>",
            line.colour,
            line.dashes,
            y - 4.0,
            x + 24.0,
        );
        text(svg, x + 32.0, y, "start", "", &line.label);
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

fn place_of(place: usize) -> f64 {
    let share = place as f64 / (INSERTS.len() - 1) as f64;
    LEFT + 20.0 + share * (RIGHT - LEFT - 40.0)
}

fn height_of(ratio: f64) -> f64 {
    BOTTOM - ratio.clamp(0.0, HIGHEST) / HIGHEST * (BOTTOM - TOP)
}

// The tables and the figures. Pure.

/// The scheduler alone.
pub(crate) struct SchedulerSpeed {
    pub(crate) policy: &'static str,
    pub(crate) rows: usize,
    pub(crate) tps: Spread,
}

/// The whole way into the in-memory database.
pub(crate) struct InMemory {
    pub(crate) policy: &'static str,
    pub(crate) workers: usize,
    pub(crate) rows_per_second: Spread,
}

/// A backup beside its primary in virtual time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Adversarial {
    pub(crate) policy: &'static str,
    pub(crate) commit_in_writes: u64,
    pub(crate) inserts: usize,
    pub(crate) ratio_to_primary: f64,
}

/// All of it.
pub(crate) struct Report {
    pub(crate) scheduler: Vec<SchedulerSpeed>,
    pub(crate) in_memory: Vec<InMemory>,
    pub(crate) adversarial: Vec<Adversarial>,
}

/// Rows in a transaction of the one figure that stands for the scheduler's speed.
const ROWS_OF_SCHEDULER_TPS: usize = 4;

impl Report {
    /// The ratios of one line, by inserts.
    pub(crate) fn line(&self, policy: &str, commit: u64) -> Vec<(usize, f64)> {
        let all = self.adversarial.iter();
        let line = all.filter(|one| one.policy == policy && one.commit_in_writes == commit);
        line.map(|one| (one.inserts, one.ratio_to_primary))
            .collect()
    }

    /// For the terminal.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::from("scheduler alone, transactions/s\n");
        for one in &self.scheduler {
            let _ = writeln!(
                text,
                "  {:<13}{:>4} rows {:>12.0} [{:.0} {:.0}]",
                one.policy, one.rows, one.tps.median, one.tps.min, one.tps.max
            );
        }
        text.push_str("log to in-memory database, rows/s\n");
        for one in &self.in_memory {
            let rows = one.rows_per_second;
            let _ = writeln!(
                text,
                "  {:<13}{:>4} workers {:>12.0} [{:.0} {:.0}]",
                one.policy, one.workers, rows.median, rows.min, rows.max
            );
        }
        let _ = write!(
            text,
            "throughput ÷ primary's, {THREADS} threads, virtual time; inserts and one hot row\n  {:<14}{:>7}",
            "policy", "c / w"
        );
        for inserts in INSERTS {
            let _ = write!(text, "{inserts:>8}");
        }
        text.push('\n');
        for commit in COMMITS {
            for policy in Policy::ALL.map(Policy::name) {
                let _ = write!(text, "  {policy:<14}{commit:>7}");
                for (_, ratio) in self.line(policy, commit) {
                    let _ = write!(text, "{ratio:>8.3}");
                }
                text.push('\n');
            }
        }
        text
    }

    /// Sets the entries of the figures.
    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        let rows_policy = self.scheduler.iter().filter(|one| one.policy == "rows");
        let by_rows: BTreeMap<usize, Spread> = rows_policy.map(|one| (one.rows, one.tps)).collect();
        figures.set("scheduler_tps", by_rows.get(&ROWS_OF_SCHEDULER_TPS))?;
        figures.set("scheduler_tps_rows_in_a_transaction", ROWS_OF_SCHEDULER_TPS)?;
        let mut by_policy: BTreeMap<_, BTreeMap<usize, Spread>> = BTreeMap::new();
        for one in &self.scheduler {
            by_policy
                .entry(one.policy)
                .or_default()
                .insert(one.rows, one.tps);
        }
        figures.set("scheduler_tps_by_policy_and_rows", by_policy)?;
        let mut rows_per_second: BTreeMap<_, BTreeMap<usize, Spread>> = BTreeMap::new();
        for one in &self.in_memory {
            let of_policy = rows_per_second.entry(one.policy).or_default();
            of_policy.insert(one.workers, one.rows_per_second);
        }
        figures.set("rows_per_second", rows_per_second)?;
        let ratios: BTreeMap<&str, BTreeMap<usize, f64>> = Policy::ALL
            .map(|policy| {
                let line = self.line(policy.name(), COMMITS[0]);
                (policy.name(), line.into_iter().collect())
            })
            .into();
        figures.set("adversarial_threads", THREADS)?;
        figures.set("adversarial_commit_in_writes", COMMITS[0])?;
        figures.set("adversarial_ratio_to_primary", ratios)?;
        figures.set("adversarial", &self.adversarial)
    }
}

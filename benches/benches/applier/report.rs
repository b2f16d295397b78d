//! Draws the adversarial workload as the paper does in Figures 7 and 11: the backup's throughput relative to its primary's, by
//! the number of inserts in a transaction.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use applier::scheduler::Policy;
use plotters::prelude::*;
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;
use witness_benches::picture;

use crate::virtual_time::{COMMITS, INSERTS, THREADS};

const SIZE: (u32, u32) = (640, 380);
const FONT: &str = "sans-serif";

/// Returns the policy, commit cost, colour and label of each line.
fn lines() -> [(&'static str, u64, RGBColor, String); 4] {
    let transactions = |commit, colour| {
        let label = match commit {
            0 => "transactions, c = 0".to_owned(),
            commit => format!("transactions, c = {commit} w"),
        };
        ("transactions", commit, colour, label)
    };
    let rows = "rows, whatever c".to_owned();
    [
        ("rows", COMMITS[0], RGBColor(0x2d, 0xa4, 0x4e), rows),
        transactions(COMMITS[0], RGBColor(0xd4, 0x76, 0x2c)),
        transactions(COMMITS[1], RGBColor(0xa3, 0x71, 0xf7)),
        transactions(COMMITS[2], RGBColor(0x3b, 0x82, 0xf6)),
    ]
}

/// Draws the picture.
pub(crate) fn draw(report: &Report) -> Result<String> {
    picture(
        SIZE,
        "A backup's throughput relative to its primary's",
        |area| {
            let title = format!(
                "Throughput of the backup ÷ the primary's: n inserts and one hot row, {THREADS} threads"
            );
            let inserts = INSERTS[0]..INSERTS[INSERTS.len() - 1];
            let mut chart = ChartBuilder::on(area)
                .caption(title, (FONT, 16))
                .margin(10)
                .x_label_area_size(40)
                .y_label_area_size(40)
                .build_cartesian_2d(inserts.log_scale().base(2.0), 0.0..1.2)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.2))
                .label_style((FONT, 14))
                .x_labels(INSERTS.len())
                .x_desc("inserts in a transaction")
                .draw()?;
            for (policy, commit, colour, label) in lines() {
                let style = colour.stroke_width(2);
                let points = LineSeries::new(report.line(policy, commit), style).point_size(3);
                chart
                    .draw_series(points)?
                    .label(label)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::Coordinate(14, 80)) // away from the lines
                .label_font((FONT, 14))
                .draw()?;
            Ok(())
        },
    )
}

// Formats the tables and the figures. Pure.

/// The speed of the scheduler alone.
pub(crate) struct SchedulerSpeed {
    pub(crate) policy: &'static str,
    pub(crate) rows: usize,
    pub(crate) tps: Spread,
}

/// The speed of the applier on one core, with one worker.
pub(crate) struct OneCore {
    pub(crate) into: &'static str,
    pub(crate) transactions_per_second: Spread,
}

/// The speed of the whole path into the in-memory database.
pub(crate) struct InMemory {
    pub(crate) policy: &'static str,
    pub(crate) workers: usize,
    pub(crate) rows_per_second: Spread,
}

/// The throughput of a backup relative to its primary, in virtual time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Adversarial {
    pub(crate) policy: &'static str,
    pub(crate) commit_in_writes: u64,
    pub(crate) inserts: usize,
    pub(crate) ratio_to_primary: f64,
}

/// All results.
pub(crate) struct Report {
    pub(crate) scheduler: Vec<SchedulerSpeed>,
    pub(crate) one_core: Vec<OneCore>,
    pub(crate) in_memory: Vec<InMemory>,
    pub(crate) adversarial: Vec<Adversarial>,
}

/// The number of rows per transaction for the key `scheduler_tps` of the figures.
const ROWS_OF_SCHEDULER_TPS: usize = 4;

impl Report {
    /// Returns the ratios of one line, each with its number of inserts.
    pub(crate) fn line(&self, policy: &str, commit: u64) -> Vec<(usize, f64)> {
        let all = self.adversarial.iter();
        let line = all.filter(|one| one.policy == policy && one.commit_in_writes == commit);
        line.map(|one| (one.inserts, one.ratio_to_primary))
            .collect()
    }

    /// Returns the tables for the terminal.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::from("scheduler alone, transactions/s\n");
        for one in &self.scheduler {
            let _ = writeln!(
                text,
                "  {:<13}{:>4} rows {:>12.0} [{:.0} {:.0}]",
                one.policy, one.rows, one.tps.median, one.tps.min, one.tps.max
            );
        }
        text.push_str(
            "log in memory, one core, one worker, four rows a transaction, transactions/s\n",
        );
        for one in &self.one_core {
            let rate = one.transactions_per_second;
            let _ = writeln!(
                text,
                "  into {:<40}{:>12.0} [{:.0} {:.0}]",
                one.into, rate.median, rate.min, rate.max
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

    /// Adds the results to the figures.
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
        let one_core = self.one_core.iter();
        let one_core: BTreeMap<&str, Spread> = one_core
            .map(|one| (one.into, one.transactions_per_second))
            .collect();
        figures.set("one_core_tps", one_core)?;
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

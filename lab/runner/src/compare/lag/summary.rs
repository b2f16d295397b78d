//! The results of all rates, as a table and as figures.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use testkit::mysqld::workload::Workload;

use super::Follower;
use super::search::{Point, highest_kept};

/// One follower under one load.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) follower: Follower,
    pub(super) points: Vec<Point>,
    /// The result at half of the highest rate with which the follower kept up. `None`: there is no such rate.
    pub(super) at_half: Option<Point>,
}

impl Run {
    /// Returns the results of all rates, in the order of the committed rate.
    pub(super) fn all_points(&self) -> Vec<Point> {
        let mut all = self.points.clone();
        all.extend(self.at_half);
        all.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        all
    }

    /// Returns the result without a limit on the rate.
    fn all(&self) -> Option<Point> {
        self.points
            .iter()
            .find(|point| point.asked.is_none())
            .copied()
    }
}

/// The results of all followers and loads.
pub(super) struct Summary(Vec<Run>);

impl Summary {
    pub(super) fn of(mut runs: Vec<Run>) -> Self {
        runs.sort_by_key(|run| (run.workload, run.follower));
        Self(runs)
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.0
    }

    /// Returns, by workload and follower, the highest rate at which the lag's p99 was below a second; null if no rate was.
    pub(super) fn highest_rates_kept(&self) -> Value {
        self.by_workload(|run| json!(highest_kept(&run.points)))
    }

    pub(super) fn figures(&self) -> Value {
        self.by_workload(|run| {
            json!({
                "points": run.points,
                "at_half": run.at_half,
            })
        })
    }

    fn by_workload(&self, of: impl Fn(&Run) -> Value) -> Value {
        let mut figures = Map::new();
        for run in &self.0 {
            let workload = figures
                .entry(run.workload.key())
                .or_insert_with(|| json!({}));
            workload[run.follower.key()] = of(run);
        }
        figures.into()
    }

    pub(super) fn table(&self) -> String {
        let mut table = format!(
            "{:<18} {:<8} {:>13} {:>20} {:>12} {:>30}\n",
            "load",
            "follower",
            "primary takes",
            "lag then p50, p99 ms",
            "keeps up to",
            "lag at half p50, p99, max ms"
        );
        for run in &self.0 {
            let all = run.all();
            let number = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
            };
            let lag = all.map_or_else(String::new, |all| {
                format!("{:.0}, {:.0}", all.lag_ms.p50, all.lag_ms.p99)
            });
            let half = run.at_half.map_or_else(String::new, |half| {
                let lag = half.lag_ms;
                format!("{:.0}, {:.0}, {:.0}", lag.p50, lag.p99, lag.max)
            });
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "{:<18} {:<8} {:>13} {:>20} {:>12} {:>30}",
                run.workload.key(),
                run.follower.key(),
                number(all.map(|all| all.per_second)),
                lag,
                number(highest_kept(&run.points)),
                half,
            );
        }
        table.push_str(
            "\nRates are transactions/s. A follower keeps up while 99 of 100 readings find it less than 1000 ms behind.\n",
        );
        table
    }
}

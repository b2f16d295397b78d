//! How a run of the applier went.

use std::time::Duration;

use applier::run::{Ended, Progress, StageName};
use serde::Serialize;

/// What is printed at the end.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// `log_ended` or `stopped`.
    ended: &'static str,
    /// Transactions that were applied.
    transactions: u64,
    rows: u64,
    /// Transactions that the target had already.
    skipped: u64,
    /// The last one in the log's order.
    last: Option<String>,
    seconds: f64,
    transactions_per_second: f64,
    /// Begun again after a deadlock, a lock wait, or a lost session.
    retries: u64,
    /// Taken back because an earlier one waited for their locks.
    step_backs: u64,
    tables_without_primary_key: Vec<String>,
    /// The most memory that this process had; 0 where the system does not tell.
    peak_memory_bytes: u64,
}

impl Report {
    pub(super) fn new(ended: Ended, progress: &Progress, took: Duration) -> Self {
        let committed = progress.passed(StageName::Committed);
        let seconds = took.as_secs_f64();
        let tables = progress.without_primary_key().into_iter();
        Self {
            ended: match ended {
                Ended::WithTheLog => "log_ended",
                Ended::Cancelled => "stopped",
            },
            transactions: committed.transactions,
            rows: committed.rows,
            skipped: progress.skipped(),
            last: committed.last.map(|last| last.to_string()),
            seconds,
            transactions_per_second: committed.transactions as f64 / seconds.max(1e-6),
            retries: progress.retries(),
            step_backs: progress.step_backs(),
            tables_without_primary_key: tables.map(|table| table.to_string()).collect(),
            peak_memory_bytes: peak_memory_bytes(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} transactions ({} rows) applied in {:.1} s, {:.0} a second",
            self.transactions, self.rows, self.seconds, self.transactions_per_second
        );
        if self.skipped > 0 {
            text += &format!("; the target had {} more", self.skipped);
        }
        if let Some(last) = &self.last {
            text += &format!("\nthe last one is {last}");
        }
        text += match self.ended {
            "stopped" => "\nstopped; the same command goes on from here\n",
            _ => "\n",
        };
        if !self.tables_without_primary_key.is_empty() {
            text += &format!(
                "without a primary key, and therefore one row after the other: {}\n",
                self.tables_without_primary_key.join(", ")
            );
        }
        text
    }
}

fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .unwrap_or_default()
        * 1024
}

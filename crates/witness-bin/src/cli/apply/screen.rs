//! Progress display of an apply on standard error: for files a bar with the remaining time, for a log without an end the lag, the rate, and
//! the time to catch up.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use applier::run::{Ended, Progress, StageName};
use applier::schema::TableName;
use indicatif::{HumanDuration, ProgressBar};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cli::apply::origin::ReadSoFar;
use crate::terminal::{Format, bar};

/// Interval of the display.
const PERIOD: Duration = Duration::from_millis(250);
/// Time span of the displayed rate.
const RATE_OVER: Duration = Duration::from_secs(3);

pub(super) struct Screen {
    bar: ProgressBar,
    progress: Arc<Progress>,
    files: Option<Arc<ReadSoFar>>,
    pace: Pace,
}

impl Screen {
    /// With `files`, the log has an end.
    pub(super) fn new(
        format: Format,
        progress: Arc<Progress>,
        files: Option<Arc<ReadSoFar>>,
    ) -> Self {
        let template = match files {
            Some(_) => "{bar:30} {bytes}/{total_bytes} {msg}, {eta} to go",
            None => "{spinner} {msg}",
        };
        Self {
            bar: match format {
                Format::Table => bar(template),
                Format::Json => ProgressBar::hidden(),
            },
            progress,
            files,
            pace: Pace::default(),
        }
    }

    /// Draws until stopped.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while tokio::time::timeout(PERIOD, stop.cancelled())
            .await
            .is_err()
        {
            self.draw();
        }
        self.bar.finish_and_clear();
    }

    fn draw(&mut self) {
        let committed = self.progress.passed(StageName::Committed);
        let lag = self.progress.lag_ms(StageName::Committed);
        self.pace
            .sample(Instant::now(), committed.transactions, lag);
        let rate = self.pace.rate();
        if let Some(files) = &self.files {
            let (done, total) = place(files, &self.progress);
            self.bar.set_length(total);
            self.bar.set_position(done);
            self.bar.set_message(format!("{rate:.0} transactions/s"));
            return;
        }
        let lag_of = |stage| {
            let lag = self.progress.lag_ms(stage);
            lag.map_or_else(|| "-".to_owned(), |lag| format!("{lag} ms"))
        };
        let to_go = match self.pace.to_go() {
            Some(time) => format!(", caught up in {}", HumanDuration(time)),
            None => String::new(),
        };
        self.bar.set_message(format!(
            "{} transactions, {rate:.0}/s; lag: received {}, scheduled {}, committed {}{to_go}",
            committed.transactions,
            lag_of(StageName::Received),
            lag_of(StageName::Scheduled),
            lag_of(StageName::Committed),
        ));
        self.bar.tick();
    }
}

/// Committed bytes, and all bytes: bytes read and not committed count as not done.
fn place(files: &ReadSoFar, progress: &Progress) -> (u64, u64) {
    let given = files.given.load(Relaxed);
    let received = progress.passed(StageName::Received).bytes;
    let committed = progress.passed(StageName::Committed).bytes;
    let unread = files
        .file_total
        .load(Relaxed)
        .saturating_sub(files.file_done.load(Relaxed));
    let open = received.saturating_sub(committed);
    (given.saturating_sub(open), given + unread)
}

/// The rate of the last few seconds, and derived values.
#[derive(Debug, Default)]
struct Pace {
    samples: std::collections::VecDeque<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    transactions: u64,
    lag_ms: Option<u64>,
}

impl Pace {
    fn sample(&mut self, at: Instant, transactions: u64, lag_ms: Option<u64>) {
        self.samples.push_back(Sample {
            at,
            transactions,
            lag_ms,
        });
        let old = |sample: &Sample| at.saturating_duration_since(sample.at) > RATE_OVER;
        while self.samples.len() > 2 && self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
    }

    /// The first and the last sample, and the seconds between them.
    fn span(&self) -> Option<(Sample, Sample, f64)> {
        let (first, last) = (*self.samples.front()?, *self.samples.back()?);
        let seconds = (last.at - first.at).as_secs_f64();
        (seconds > 0.0).then_some((first, last, seconds))
    }

    /// Transactions a second over the last seconds; 0 without a measurement.
    fn rate(&self) -> f64 {
        match self.span() {
            Some((first, last, seconds)) => {
                last.transactions.saturating_sub(first.transactions) as f64 / seconds
            }
            None => 0.0,
        }
    }

    /// Time until the lag is zero; `None` while it does not shrink, or is small.
    fn to_go(&self) -> Option<Duration> {
        const SMALL_MS: u64 = 1_000;
        let (first, last, seconds) = self.span()?;
        let (then, now) = (first.lag_ms?, last.lag_ms?);
        if now < SMALL_MS || then <= now {
            return None;
        }
        let shrinks = (then - now) as f64 / seconds;
        Duration::try_from_secs_f64(now as f64 / shrinks).ok()
    }
}

// Result of a run of the applier.

/// The final output, as JSON and as text.
pub(super) fn report(ended: Ended, progress: &Progress, took: Duration) -> (Value, String) {
    let committed = progress.passed(StageName::Committed);
    let (counts, remarks) = (progress.counts(), progress.remarks());
    let (transactions, rows) = (committed.transactions, committed.rows);
    let seconds = took.as_secs_f64();
    let rate = transactions as f64 / seconds.max(1e-6);
    let last = committed.last.map(|last| last.to_string());
    let names = |tables: Vec<TableName>| tables.iter().map(TableName::to_string).collect();
    let without_key: Vec<String> = names(remarks.without_primary_key());
    let without_transactions: Vec<String> = names(remarks.without_transactions());
    let (word, end) = match ended {
        Ended::WithTheLog => ("log_ended", "\n"),
        Ended::Cancelled => (
            "stopped",
            "\nstopped; the same command continues from here\n",
        ),
    };
    let json = json!({
        "ended": word,
        "transactions": transactions,
        "rows": rows,
        // Transactions that the target already had.
        "skipped": counts.skipped,
        // The last transaction in log order.
        "last": last,
        "seconds": seconds,
        "transactions_per_second": rate,
        // Restarts after a deadlock, a lock wait, or a lost session.
        "retries": counts.retries,
        // Rollbacks because an earlier transaction waited for their locks.
        "step_backs": counts.step_backs,
        "tables_without_primary_key": without_key,
        // Tables of an engine without rollback.
        "tables_without_transactions": without_transactions,
        // Of this process; 0 where the system does not report it.
        "peak_memory_bytes": peak_memory_bytes(),
    });
    let mut text = format!(
        "{transactions} transactions ({rows} rows) applied in {seconds:.1} s, {rate:.0} a second"
    );
    if counts.skipped > 0 {
        text += &format!("; the target had {} more", counts.skipped);
    }
    if let Some(last) = &last {
        text += &format!("\nthe last one is {last}");
    }
    text += end;
    if !without_key.is_empty() {
        let tables = without_key.join(", ");
        text +=
            &format!("without a primary key, and therefore one row after the other: {tables}\n");
    }
    if !without_transactions.is_empty() {
        text += &format!(
            "of an engine without transactions, and therefore each write alone: {}; ALTER TABLE … ENGINE = InnoDB at the source\n",
            without_transactions.join(", ")
        );
    }
    (json, text)
}

fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .unwrap_or_default()
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(samples: &[(u64, u64, u64)]) -> Pace {
        let begun = Instant::now();
        let mut pace = Pace::default();
        for &(at_ms, transactions, lag_ms) in samples {
            let at = begun + Duration::from_millis(at_ms);
            pace.sample(at, transactions, Some(lag_ms));
        }
        pace
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        assert_eq!(pace(&[(0, 0, 0)]).rate(), 0.0);
        assert_eq!(pace(&[(0, 0, 0), (1_000, 500, 0)]).rate(), 500.0);
        let slower = pace(&[
            (0, 0, 0),
            (1_000, 5_000, 0),
            (2_000, 5_010, 0),
            (4_500, 5_060, 0),
        ]);
        assert_eq!(slower.rate(), 20.0);
    }

    #[test]
    fn catching_up_takes_as_long_as_the_lag_shrinks() {
        let shrinks = pace(&[(0, 0, 60_000), (2_000, 1, 40_000)]);
        assert_eq!(shrinks.to_go(), Some(Duration::from_secs(4)));
        assert_eq!(pace(&[(0, 0, 10_000), (1_000, 1, 10_000)]).to_go(), None);
        assert_eq!(pace(&[(0, 0, 10_000), (1_000, 1, 900)]).to_go(), None);
    }
}

//! `witness apply`: applies a log to a mysqld, with a progress bar and a final report.

mod origin;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use applier::backend::{Backend, BackendError};
use applier::mysql::{MysqlBackend, MysqlOptions};
use applier::run::{
    ApplyError, Control, Ended, Options, Passed, Progress, RunHandle, StageName, WindowSize, apply,
};
use applier::scheduler::Policy;
use applier::schema::TableName;
use applier::source::{LimitedSource, SourceError, Until};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use binlog_format::gtid::GtidSet;
use clap::ValueEnum;
use indicatif::{HumanDuration, ProgressBar};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cli::apply::origin::{OriginArgs, ReadSoFar, TargetLogin};
use crate::cli::config_args::ConfigArgs;
use crate::cli::process::{StopSignals, start_log};
use crate::config::{LoggingSettings, Mistake, bytes_of, duration_of};
use crate::http::{self, Access};
use crate::openmetrics::{self, MetricWriter, metrics};
use crate::terminal::{Attempt, Exit, Failure, Format, bar, print};

/// Arguments of `witness apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    origin: OriginArgs,
    #[command(flatten)]
    target: TargetLogin,
    /// Sessions that write
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().workers)]
    workers: usize,
    /// What may run beside what
    #[arg(long, value_enum, default_value_t = PolicyName::Rows)]
    policy: PolicyName,
    /// End there: a GTID set, or a time such as 2026-11-20T10:00:00Z
    #[arg(long, value_name = "GTIDS|TIME", value_parser = until)]
    until: Option<Until>,
    /// Transactions a second, at most
    #[arg(long, value_name = "NUMBER", value_parser = rate_of)]
    rate: Option<f64>,
    /// Row writes in memory, at most
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().window.rows)]
    window_rows: usize,
    /// Bytes in memory, at most
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes_of)]
    window_bytes: u64,
    /// The largest transaction that is taken
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = bytes_of)]
    max_transaction_bytes: u64,
    /// The target writes what is applied into its own binlog; needed when it has replicas
    #[arg(long)]
    target_binlog: bool,
    /// Commit each transaction by itself, and not many as one, with the table witness_applier.checkpoint on the target (slower)
    #[arg(long)]
    no_batches: bool,
    /// How long to retry a source or target that cannot be reached
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration_of)]
    patience: Duration,
    /// Serve metrics and controls over HTTP at this address (without authentication)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// [`Policy`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// Row by row
    Rows,
    /// Transaction by transaction, as MySQL's replica (WRITESET)
    Transactions,
    /// One after the other
    Serial,
}

fn rate_of(text: &str) -> Result<f64, Mistake> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    let what = || format!("`{text}` is not a number of transactions");
    rate.ok_or_else(|| Mistake::new(what(), "write a number above 0"))
}

/// Runs `witness apply`.
///
/// # Errors
/// Exit 2 for invalid arguments, 4 if the target or the source rejects something or a privilege is missing, 1 if a server is unreachable.
pub(crate) fn run(args: &ApplyArgs, format: Format) -> Attempt {
    let options = args.options();
    let valid = options.validate();
    valid.map_err(|error| Exit::Usage.because(error, "see `witness apply --help`"))?;
    start_log(&LoggingSettings {
        json: false,
        level: "warn".to_owned(),
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(args.apply(&options, format))
}

impl ApplyArgs {
    fn options(&self) -> Options {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Options {
            policy: match self.policy {
                PolicyName::Rows => Policy::Rows,
                PolicyName::Transactions => Policy::Transactions,
                PolicyName::Serial => Policy::Serial,
            },
            workers: self.workers,
            window: WindowSize {
                rows: self.window_rows,
                bytes: bytes(self.window_bytes),
            },
            reopen_for: self.patience,
            max_transaction_bytes: bytes(self.max_transaction_bytes),
            ..Options::default()
        }
    }

    async fn apply(&self, options: &Options, format: Format) -> Attempt {
        let mysql = MysqlOptions {
            target_binlog: self.target_binlog,
            batches: !self.no_batches,
            ..MysqlOptions::new(self.target.options()?)
        };
        let backend = MysqlBackend::connect(mysql)
            .await
            .map_err(backend_failure)?;
        let backend = Arc::new(backend);
        let version = backend.version().await.map_err(backend_failure)?;
        let executed = backend.executed().await.map_err(backend_failure)?;
        let (patience, limit) = (self.patience, self.max_transaction_bytes);
        let source = self
            .origin
            .open(&self.config, executed.clone(), patience, limit);
        let source = source.await?;
        let shows = self.origin.ends().then(|| source.read.clone());
        let source = LimitedSource::new(source, self.until.clone(), &executed, Some(version));

        let (sender, control) = watch::channel(Control {
            paused: false,
            max_transactions_per_second: self.rate,
        });
        let progress = Arc::new(Progress::new());
        let handle = RunHandle {
            control,
            cancel: CancellationToken::new(),
            progress: progress.clone(),
        };
        let stop = handle.cancel.clone();
        let mut registry = Registry::with_prefix("witness_apply");
        registry.register_collector(Box::new(Metrics(progress.clone())));
        let page = Page {
            progress: progress.clone(),
            control: Arc::new(sender),
            registry: Arc::new(registry),
        };
        if let Some(address) = self.listen {
            page.serve(address, stop.clone()).await?;
        }
        let template = match shows {
            Some(_) => "{bar:30} {bytes}/{total_bytes} {msg}, {eta} to go",
            None => "{spinner} {msg}",
        };
        let screen = Screen {
            bar: match format {
                Format::Table => bar(template),
                Format::Json => ProgressBar::hidden(),
            },
            progress: progress.clone(),
            files: shows,
            pace: Pace::default(),
        };
        let showing = tokio::spawn(screen.run(stop.clone()));
        let tell = |name: &str| tracing::warn!("{name}: ending cleanly");
        let listening = tokio::spawn(StopSignals::new()?.cancel(stop.clone(), tell));
        let began = Instant::now();
        let ended = apply(source, backend, options, handle).await;
        let took = began.elapsed();
        stop.cancel();
        listening.abort();
        // The task only displays the progress, so its failure is ignored.
        let _ = showing.await;
        let ended = ended.map_err(failure)?;
        let (json, text) = report(ended, &progress, took);
        print(format, &json, || text)
    }
}

fn backend_failure(error: BackendError) -> Failure {
    let exit = match error {
        BackendError::Unreachable(_) => Exit::Error,
        BackendError::Refused(_) => Exit::Refused,
    };
    exit.because(error, "")
}

fn failure(error: ApplyError) -> Failure {
    const LEAVE_OUT: &str = "to leave it out, commit an empty transaction with its GTID on the target, whose data are not the \
                             source's then";
    let (exit, hint) = match error {
        ApplyError::Options(_) => (Exit::Usage, ""),
        ApplyError::Refused { .. } => (Exit::Refused, LEAVE_OUT),
        ApplyError::Decode(_)
        | ApplyError::Database(_)
        | ApplyError::Source(SourceError::Refused(_)) => (Exit::Refused, ""),
        ApplyError::Source(SourceError::Unreachable(_))
        | ApplyError::Unreachable { .. }
        | ApplyError::Broken(_) => (Exit::Error, ""),
    };
    exit.because(error, hint)
}

// `--until` on the command line.

/// Parses `--until`: a GTID set or a time.
fn until(text: &str) -> Result<Until, Mistake> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(Until::Time(time.into()));
    }
    let (what, advice) = match text.parse::<GtidSet>() {
        Ok(gtids) if !gtids.is_empty() => return Ok(Until::Gtids(gtids)),
        Ok(_) => (
            "an empty GTID set".to_owned(),
            "leave the flag out to apply everything",
        ),
        Err(error) => (
            format!("`{text}` is neither a time nor a GTID set: {error}"),
            "write a time as in 2026-11-20T10:00:00Z, or GTIDs as in UUID:1-77",
        ),
    };
    Err(Mistake::new(what, advice))
}

// The progress display of `witness apply` on standard error. For files, it is a bar with the remaining time. For a log without an end, it
// shows the lag, the rate, and the time to catch up.

/// Interval of the display.
const PERIOD: Duration = Duration::from_millis(250);
/// Time span of the displayed rate.
const RATE_OVER: Duration = Duration::from_secs(3);

pub(super) struct Screen {
    bar: ProgressBar,
    progress: Arc<Progress>,
    /// The progress of reading files; `None` for a log without an end.
    files: Option<Arc<ReadSoFar>>,
    pace: Pace,
}

impl Screen {
    /// Draws the display until `stop` is cancelled.
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

/// Returns the committed bytes and the bytes of all files. Transactions that are read but not committed yet do not count as committed.
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

/// The rate over the last [`RATE_OVER`], and values derived from it.
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

    /// Returns the first and the last sample, and the seconds between them.
    fn span(&self) -> Option<(Sample, Sample, f64)> {
        let (first, last) = (*self.samples.front()?, *self.samples.back()?);
        let seconds = (last.at - first.at).as_secs_f64();
        (seconds > 0.0).then_some((first, last, seconds))
    }

    /// Returns the transactions per second over the last [`RATE_OVER`]; 0 before the second sample.
    fn rate(&self) -> f64 {
        match self.span() {
            Some((first, last, seconds)) => {
                last.transactions.saturating_sub(first.transactions) as f64 / seconds
            }
            None => 0.0,
        }
    }

    /// Estimates the time until the lag is zero; `None` while the lag does not shrink, or is below one second.
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

/// Returns the final output, as JSON and as text.
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
        // Transactions that were rolled back because an earlier transaction waited for their locks.
        "step_backs": counts.step_backs,
        "tables_without_primary_key": without_key,
        // Tables of an engine without rollback.
        "tables_without_transactions": without_transactions,
        // The peak memory of this process; 0 if the system does not report it.
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
    let status = procfs::process::Process::myself().and_then(|own| own.status());
    let kib = status.ok().and_then(|status| status.vmhwm);
    kib.unwrap_or_default() * 1024
}

// The applier's HTTP page: progress, metrics, and settings that an operator may change while it runs.

#[derive(Clone)]
pub(super) struct Page {
    progress: Arc<Progress>,
    control: Arc<watch::Sender<Control>>,
    registry: Arc<Registry>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    per_second: f64,
}

impl Page {
    /// Serves the page over HTTP until `stop` is cancelled.
    pub(super) async fn serve(&self, address: SocketAddr, stop: CancellationToken) -> Attempt {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Exit::Usage.because(
                format!("cannot listen at {address}: {error}"),
                "give another address with --listen",
            )
        })?;
        let router = Router::new()
            .route("/status", get(status))
            .route("/metrics", get(metrics))
            .route("/pause", post(pause))
            .route("/resume", post(resume))
            .route("/rate", post(rate))
            .fallback(unknown)
            .with_state(self.clone());
        tokio::spawn(http::serve(listener, Access::default(), router, stop));
        Ok(())
    }

    fn view(&self) -> Value {
        let stage = |stage: StageName| {
            let passed = self.progress.passed(stage);
            json!({
                "transactions": passed.transactions,
                "rows": passed.rows,
                "bytes": passed.bytes,
                "last": passed.last.map(|last| last.to_string()),
                "lag_ms": self.progress.lag_ms(stage),
            })
        };
        let control = *self.control.borrow();
        let counts = self.progress.counts();
        json!({
            "paused": control.paused,
            "max_transactions_per_second": control.max_transactions_per_second,
            "received": stage(StageName::Received),
            "scheduled": stage(StageName::Scheduled),
            "committed": stage(StageName::Committed),
            "skipped": counts.skipped,
            "retries": counts.retries,
            "step_backs": counts.step_backs,
            "window_transactions": counts.window_transactions,
            "window_waits": counts.window_waits,
        })
    }

    fn change(&self, change: impl FnOnce(&mut Control)) -> Response {
        self.control.send_modify(change);
        Json(self.view()).into_response()
    }
}

async fn status(State(page): State<Page>) -> Response {
    Json(page.view()).into_response()
}

async fn pause(State(page): State<Page>) -> Response {
    page.change(|control| control.paused = true)
}

async fn resume(State(page): State<Page>) -> Response {
    page.change(|control| control.paused = false)
}

async fn rate(State(page): State<Page>, Query(rate): Query<Rate>) -> Response {
    if !rate.per_second.is_finite() || rate.per_second < 0.0 {
        let reason = "per_second has to be a number of 0 (no limit) or more";
        return (StatusCode::BAD_REQUEST, Json(json!({ "reason": reason }))).into_response();
    }
    let limit = (rate.per_second > 0.0).then_some(rate.per_second);
    page.change(|control| control.max_transactions_per_second = limit)
}

async fn metrics(State(page): State<Page>) -> Response {
    openmetrics::page(&page.registry)
}

async fn unknown() -> Response {
    http::no_such_page("GET /status /metrics, POST /pause /resume /rate?per_second=N")
}

#[derive(Debug)]
struct Metrics(Arc<Progress>);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = MetricWriter::new(encoder);
        let (progress, counts) = (&self.0, self.0.counts());
        let stages = || {
            StageName::ALL
                .into_iter()
                .map(|stage| ([("stage", stage.name())], stage))
        };
        let passed = |read: fn(Passed) -> u64| {
            stages().map(move |(of, stage)| (of, read(progress.passed(stage))))
        };
        metrics! { writer;
            /// Transactions by stage
            counters "transactions" = passed(|passed| passed.transactions);
            /// Row writes by stage
            counters "rows" = passed(|passed| passed.rows);
            /// Bytes of transactions by stage
            counters "bytes" = passed(|passed| passed.bytes);
            /// Lag by commit timestamps, by stage; missing before the first transaction
            gauges "lag_milliseconds" = stages().filter_map(|(of, stage)| Some((of, progress.lag_ms(stage)? as f64)));
            /// Transactions that the target had already
            counter "skipped" = counts.skipped;
            /// Transactions begun again after a lock or a lost session
            counter "retries" = counts.retries;
            /// Transactions rolled back because an earlier one waited for their locks
            counter "rolled_back_for_earlier" = counts.step_backs;
            /// Times that reading waited for room
            counter "window_waits" = counts.window_waits;
            /// Transactions in memory
            gauge "window_transactions" = counts.window_transactions;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sets_are_told_apart() {
        let time = until("1970-01-01T00:01:00+00:00").unwrap();
        let minute = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(60);
        assert_eq!(time, Until::Time(minute));
        let set = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-5";
        assert_eq!(until(set), Ok(Until::Gtids(set.parse().unwrap())));
        assert!(until("yesterday").unwrap_err().message.contains("neither"));
        assert!(until("").is_err());
    }

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

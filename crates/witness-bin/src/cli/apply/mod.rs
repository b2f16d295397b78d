//! `witness apply`: applies a log to a mysqld, with a progress bar and a final report.

mod origin;
mod page;
mod screen;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use applier::backend::{Backend, BackendError};
use applier::mysql::{MysqlBackend, MysqlOptions};
use applier::run::{ApplyError, Control, Options, Progress, RunHandle, WindowSize, apply};
use applier::scheduler::Policy;
use applier::source::{LimitedSource, SourceError, Until};
use binlog_format::gtid::GtidSet;
use clap::ValueEnum;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cli::apply::origin::{OriginArgs, TargetLogin};
use crate::cli::apply::page::Page;
use crate::cli::apply::screen::{Screen, report};
use crate::cli::config_args::ConfigArgs;
use crate::cli::process::{StopSignals, start_log};
use crate::config::{LoggingSettings, Mistake, bytes_of, duration_of};
use crate::terminal::{Attempt, Exit, Failure, Format, print};

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
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
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

fn rate(text: &str) -> Result<f64, Mistake> {
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
/// Exit 2 for invalid arguments, 4 when the target, the log or a missing privilege stops it, 1 when a server is unreachable.
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
        let page = Page::new(progress.clone(), Arc::new(sender));
        if let Some(address) = self.listen {
            page.serve(address, stop.clone()).await?;
        }
        let screen = Screen::new(format, progress.clone(), shows);
        let showing = tokio::spawn(screen.run(stop.clone()));
        let tell = |name: &str| tracing::warn!("{name}: ending cleanly");
        let listening = tokio::spawn(StopSignals::new()?.cancel(stop.clone(), tell));
        let began = Instant::now();
        let ended = apply(source, backend, options, handle).await;
        let took = began.elapsed();
        stop.cancel();
        listening.abort();
        // It only displays.
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
    let exit = match error {
        ApplyError::Options(_) => Exit::Usage,
        ApplyError::Refused { .. }
        | ApplyError::Decode(_)
        | ApplyError::Database(_)
        | ApplyError::Source(SourceError::Refused(_)) => Exit::Refused,
        ApplyError::Source(SourceError::Unreachable(_))
        | ApplyError::Unreachable { .. }
        | ApplyError::Broken(_) => Exit::Error,
    };
    let hint = match error {
        ApplyError::Refused { .. } => {
            "to leave it out, commit an empty transaction with its GTID on the target, whose data are not the source's then"
        }
        _ => "",
    };
    exit.because(error, hint)
}

// `--until` on the command line.

/// A GTID set or a time.
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
}

//! `witness archive restore`: a new data directory for mysqld, up to a time or a transaction. Requires no running member.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use archive::base_backup::BaseName;
use binlog_format::gtid::{Gtid, GtidSet};
use humantime::{format_duration, format_rfc3339_millis, parse_rfc3339_weak};
use restore::plan::RestorePlan;
use restore::point::{NoPoint, Point, Target};
use restore::restoring::{Archive, Restore, RestoreError, Restored, Watching};
use restore::scratch_server::{ServerError, ServerProgram};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;

use super::place::ReadArgs;
use super::progress::{Progress, Took};
use crate::cli::process::{StopSignals, start_log};
use crate::cli::session::block_on;
use crate::config::LoggingSettings;
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness archive restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// The data directory to be made; it must not be there, or be empty
    #[arg(short, long, value_name = "DIRECTORY")]
    directory: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// The base backup to begin with; without it, the newest that leads there
    #[arg(long, value_name = "NAME")]
    base: Option<BaseName>,
    /// Where the log lies while it is applied; without it, DIRECTORY.restore
    #[arg(long, value_name = "DIRECTORY")]
    work_directory: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    /// Check every table at the end (CHECK TABLE)
    #[arg(long)]
    check_tables: bool,
    /// Only say which objects are needed, and whether they are there
    #[arg(long)]
    dry_run: bool,
}

/// The mysqld to which the log is applied.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// The mysqld that applies the log; of the version that is to run afterwards
    #[arg(long, value_name = "PROGRAM", default_value = "mysqld")]
    mysqld: String,
    /// An option for that mysqld, as in --mysqld-option=--innodb-buffer-pool-size=8G; may be given more than once
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    mysqld_option: Vec<String>,
    /// Sessions that apply the log
    #[arg(long, value_name = "NUMBER", default_value_t = applier::run::Options::default().workers)]
    workers: usize,
}

impl ServerArgs {
    /// A restore into a directory, with temporary files in another one.
    pub(super) fn restore(&self, data_dir: PathBuf, work_dir: PathBuf) -> Restore {
        Restore {
            data_dir,
            work_dir,
            program: ServerProgram {
                command: vec![self.mysqld.clone()],
                options: self.mysqld_option.clone(),
            },
            workers: self.workers,
            check_tables: false,
        }
    }
}

/// The end of the restore; by default all of the archive.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct TargetArgs {
    /// Up to the first transaction that was committed after this time, without it: 2026-11-26T10:41:00Z, or 2026-11-26 10:41:00 (UTC)
    #[arg(long, value_name = "TIME", value_parser = time_of)]
    to_time: Option<SystemTime>,
    /// Until all of these transactions are there
    #[arg(long, value_name = "GTIDS")]
    to_gtid: Option<GtidSet>,
    /// Up to this transaction, without it
    #[arg(long, value_name = "GTID", value_parser = one_gtid)]
    before_gtid: Option<Gtid>,
}

impl TargetArgs {
    fn target(&self) -> Target {
        if let Some(time) = self.to_time {
            Target::Time(time)
        } else if let Some(gtids) = &self.to_gtid {
            Target::Gtids(gtids.clone())
        } else {
            self.before_gtid.map_or(Target::End, Target::Before)
        }
    }
}

fn time_of(text: &str) -> Result<SystemTime, String> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(time.into());
    }
    parse_rfc3339_weak(text)
        .map_err(|_| format!("`{text}` is not a time such as 2026-11-26T10:41:00Z"))
}

fn one_gtid(text: &str) -> Result<Gtid, String> {
    let set: GtidSet = text.parse().map_err(|error| format!("{error}"))?;
    let mut gtids = set.iter();
    match (gtids.next(), gtids.next()) {
        (Some(gtid), None) => Ok(gtid),
        _ => Err(format!("`{text}` is not one transaction, as in UUID:77")),
    }
}

/// Runs `witness archive restore`.
///
/// # Errors
/// Exit 2 for invalid arguments, 4 where nothing in the archive leads to the point, 7 where a part of it is damaged or missing, 1 for
/// everything else. Written files remain, and are unusable.
pub(crate) fn run(args: &RestoreArgs, format: Format) -> Result<(), Failure> {
    start_log(&LoggingSettings {
        json: false,
        level: "warn".to_owned(),
    })?;
    block_on(restore(args, format))
}

async fn restore(args: &RestoreArgs, format: Format) -> Result<(), Failure> {
    let place = args.read.place()?;
    let archive = Archive::look(place.storage, args.read.identities()?).await;
    let archive = archive.map_err(failure)?;
    let target = args.target.target();
    let point = archive.point(&target).await.map_err(failure)?;
    let plan = archive.plan(&point, args.base.as_ref());
    let plan = plan.map_err(failure)?;
    let mut report = Report::of(&plan, &target, archive.end().as_ref());
    if args.dry_run {
        let missing = archive.missing(&plan).await;
        report.missing = missing.map_err(|error| failure(error.into()))?;
        let objects = plan.objects();
        report.objects = Some(
            objects
                .map(|(name, bytes)| ToRead {
                    name: name.to_owned(),
                    bytes,
                })
                .collect(),
        );
        return report.told(format);
    }
    if let Some(warning) = report.range_end.as_ref().and_then(EndOfRange::warning) {
        tracing::warn!("{warning}");
    }
    let directory = std::path::absolute(&args.directory)?;
    let mut beside = directory.clone().into_os_string();
    beside.push(".restore");
    let work_dir = match &args.work_directory {
        Some(work_dir) => std::path::absolute(work_dir)?,
        None => beside.into(),
    };
    let what = Restore {
        check_tables: args.check_tables,
        ..args.server.restore(directory, work_dir)
    };
    let began = Instant::now();
    let progress = Arc::new(Progress::new(format));
    let restored = until_a_signal(&archive, &plan, &what, progress.clone()).await;
    let stages = progress.end();
    let restored = restored.map_err(failure)?;
    // The restore is complete, and the log is in the archive.
    if let Err(error) = std::fs::remove_dir_all(&what.work_dir) {
        tracing::warn!(%error, "{} is not needed any more, and cannot be removed", what.work_dir.display());
    }
    report.restored = Some(Done {
        directory: what.data_dir.display().to_string(),
        transactions_applied: restored.applied,
        stages,
        seconds: began.elapsed().as_secs_f64(),
    });
    report.told(format)
}

/// Restores until complete or until a signal.
pub(super) async fn until_a_signal(
    archive: &Archive,
    plan: &RestorePlan,
    what: &Restore,
    watching: Arc<dyn Watching>,
) -> Result<Restored, RestoreError> {
    let stop = CancellationToken::new();
    let signals = StopSignals::new().map_err(|source| ServerError::Io {
        what: "signals cannot be heard".to_owned(),
        source,
    })?;
    let listening = tokio::spawn(cancel_at_a_signal(signals, stop.clone()));
    let restored = archive.restore(plan, what, &watching, &stop).await;
    listening.abort();
    restored
}

async fn cancel_at_a_signal(mut signals: StopSignals, stop: CancellationToken) {
    signals.next().await;
    stop.cancel();
}

pub(super) fn failure(error: RestoreError) -> Failure {
    let exit = match &error {
        RestoreError::NoPoint(NoPoint::NoLog) => Exit::Error,
        RestoreError::NoPoint(_) | RestoreError::NoBase(_) => Exit::Refused,
        RestoreError::Directory { .. } | RestoreError::Backend(_) => Exit::Refused,
        RestoreError::Unread(_)
        | RestoreError::Piece { .. }
        | RestoreError::Base { .. }
        | RestoreError::Tables(_)
        | RestoreError::OtherTransactions { .. } => Exit::Corrupt,
        RestoreError::Storage(_)
        | RestoreError::Server(_)
        | RestoreError::Log(_)
        | RestoreError::Apply(_)
        | RestoreError::Cancelled => Exit::Error,
    };
    let advice = match &error {
        RestoreError::NoPoint(_) | RestoreError::NoBase(_) => {
            "`witness archive list` shows what the archive has"
        }
        RestoreError::Unread(_) | RestoreError::Piece { .. } | RestoreError::Base { .. } => {
            "`witness archive verify` says what is damaged; end before it with --to-gtid, or begin with another --base"
        }
        RestoreError::Cancelled => "remove both directories before another try",
        _ => "",
    };
    Failure::new(exit, error.to_string(), advice)
}

/// Input and result of a restore.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    base: String,
    log_files: usize,
    bytes_to_read: u64,
    /// `gtid_executed` at the point.
    gtids: String,
    /// Commit time of its last transaction.
    last_commit: Option<String>,
    /// Commit time of the archive's last transaction: later ones are lost.
    archive_ends: Option<String>,
    /// The archive ends before the requested time.
    ends_early: bool,
    /// Of `--to-time`: the transaction that ends the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<EndOfRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<Vec<ToRead>>,
    missing: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restored: Option<Done>,
}

#[derive(Debug, Serialize)]
pub(super) struct ToRead {
    name: String,
    bytes: u64,
}

/// The first transaction in the log with a later timestamp than `--to-time`.
#[derive(Debug, Serialize)]
pub(super) struct EndOfRange {
    gtid: String,
    committed: String,
    /// How many transactions after it in the log have earlier timestamps than `--to-time`.
    excluded_earlier: u64,
    /// A value for `--to-gtid` that restores these as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_gtid: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Done {
    directory: String,
    transactions_applied: u64,
    stages: Vec<Took>,
    seconds: f64,
}

impl Report {
    pub(super) fn of(plan: &RestorePlan, target: &Target, end: Option<&Point>) -> Self {
        let shown = |at: SystemTime| format_rfc3339_millis(at).to_string();
        let end = end.and_then(|end| end.last_commit);
        let wanted = match target {
            Target::Time(time) => Some(*time),
            _ => None,
        };
        let range_end = plan.point.range_end.as_ref().map(|end| EndOfRange {
            gtid: end.gtid.to_string(),
            committed: shown(end.committed),
            excluded_earlier: end.excluded_earlier,
            to_gtid: (end.excluded_earlier > 0).then(|| end.to_include.to_string()),
        });
        let mut files: Vec<_> = plan.log.iter().map(|piece| piece.piece.file).collect();
        files.dedup();
        Self {
            base: plan.base.name.to_string(),
            log_files: files.len(),
            bytes_to_read: plan.objects().map(|(_, bytes)| bytes).sum(),
            gtids: plan.point.gtids.to_string(),
            last_commit: plan.point.last_commit.map(shown),
            archive_ends: end.map(shown),
            ends_early: range_end.is_none()
                && wanted.is_some_and(|wanted| end.is_none_or(|end| end < wanted)),
            range_end,
            objects: None,
            missing: Vec::new(),
            restored: None,
        }
    }

    fn told(&self, format: Format) -> Result<(), Failure> {
        match format {
            Format::Json => print_json(self)?,
            Format::Table => print_text(&self.text())?,
        }
        match self.missing.is_empty() {
            true => Ok(()),
            false => Err(Failure::silent(Exit::Corrupt)),
        }
    }

    pub(super) fn text(&self) -> String {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut text = format!(
            "base backup {}, {} files of the log, {} bytes to read\nup to {}\nthe last transaction of it was committed at {}\n",
            self.base,
            self.log_files,
            self.bytes_to_read,
            self.gtids,
            or_dash(&self.last_commit),
        );
        if let Some(end) = &self.range_end {
            text.push_str(&format!(
                "the range ends before {}, committed at {}: the first transaction in the log with a later timestamp than --to-time\n",
                end.gtid, end.committed
            ));
            text.extend(end.warning().map(|warning| format!("WARNING: {warning}\n")));
        }
        if self.ends_early {
            text.push_str(&format!(
                "the archive ends before that time, with a transaction of {}: what was committed later is lost\n",
                or_dash(&self.archive_ends)
            ));
        } else {
            text.push_str(&format!(
                "the last transaction in the archive was committed at {}\n",
                or_dash(&self.archive_ends)
            ));
        }
        for ToRead { name, bytes } in self.objects.iter().flatten() {
            text.push_str(&format!("{bytes:>14} {name}\n"));
        }
        for missing in &self.missing {
            text.push_str(&format!("MISSING: {missing}\n"));
        }
        if let Some(done) = &self.restored {
            let took = Duration::from_secs(done.seconds.round() as u64);
            text.push_str(&format!(
                "restored to {} in {}: {} transactions were applied behind the base backup\n",
                done.directory,
                format_duration(took),
                done.transactions_applied
            ));
        }
        text
    }
}

impl EndOfRange {
    /// The warning about transactions excluded because the clocks of servers differ.
    fn warning(&self) -> Option<String> {
        let to_gtid = self.to_gtid.as_ref()?;
        Some(format!(
            "{} transactions after {} in the log have timestamps up to --to-time and are excluded, because the clock of a server was ahead; to restore them as well, use --to-gtid {to_gtid} instead of --to-time",
            self.excluded_earlier, self.gtid
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_log_or_of_people() {
        let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for text in [
            "2001-09-09T01:46:40Z",
            "2001-09-09 01:46:40",
            "2001-09-09T03:46:40+02:00",
        ] {
            assert_eq!(time_of(text), Ok(expected), "{text}");
        }
        for text in ["yesterday", "2001-09-09", ""] {
            assert!(time_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_gtid_is_one_transaction() {
        let uuid = "11111111-2222-3333-4444-555555555555";
        assert!(one_gtid(&format!("{uuid}:7")).is_ok());
        for text in ["", uuid, &format!("{uuid}:7-8"), &format!("{uuid}:7:9")] {
            assert!(one_gtid(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_report_names_the_transaction_that_ends_the_range_and_what_it_excludes() {
        let report = |excluded_earlier| Report {
            base: "base".to_owned(),
            log_files: 1,
            bytes_to_read: 1,
            gtids: "U:1-7".to_owned(),
            last_commit: None,
            archive_ends: None,
            ends_early: false,
            range_end: Some(EndOfRange {
                gtid: "U:8".to_owned(),
                committed: "2026-11-26T11:41:00Z".to_owned(),
                excluded_earlier,
                to_gtid: (excluded_earlier > 0).then(|| "U:20".to_owned()),
            }),
            objects: None,
            missing: Vec::new(),
            restored: None,
        };
        let text = report(12).text();
        for part in [
            "ends before U:8, committed at 2026-11-26T11:41:00Z",
            "12 transactions after U:8",
            "use --to-gtid U:20",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("the archive ends before"), "{text}");
        let text = report(0).text();
        assert!(
            text.contains("ends before U:8") && !text.contains("WARNING"),
            "{text}"
        );
    }
}

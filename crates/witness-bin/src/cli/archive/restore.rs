//! `witness archive restore`: creates a data directory for mysqld with the state at a time or after a transaction, without a running
//! member. `witness archive drill`: restores as a test, and removes the result.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use archive::base_backup::{BaseError, BaseName};
use archive::name::Malformed;
use archive::restore::plan::RestorePlan;
use archive::restore::point::{NoPoint, Point, Target};
use archive::restore::scratch_server::ServerProgram;
use archive::restore::{Archive, Restore, RestoreError, Restored, Stage, Watching};
use binlog_format::gtid::{Gtid, GtidSet};
use humantime::{format_duration, format_rfc3339_millis, parse_rfc3339_weak};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;

use crate::cli::archive::place::ReadArgs;
use crate::cli::process::{StopSignals, start_log};
use crate::config::LoggingSettings;
use crate::terminal::{Attempt, Exit, Failure, Format, bar, merge, print};
use crate::text::lines;

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
    /// Directory for the log while it is applied; by default DIRECTORY.restore
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
struct ServerArgs {
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
    /// Returns the parameters of a restore into `data_dir`, with temporary files in `work_dir`.
    fn restore(&self, data_dir: PathBuf, work_dir: PathBuf) -> Restore {
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
    #[arg(long, value_name = "GTID")]
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

fn time_of(text: &str) -> Result<SystemTime, Malformed> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(time.into());
    }
    let malformed = |_| Malformed::new(text, "a time such as 2026-11-26T10:41:00Z");
    parse_rfc3339_weak(text).map_err(malformed)
}

/// Starts the log of warnings on standard error, and selects the point and the plan of a restore.
async fn planned(
    read: &ReadArgs,
    target: &Target,
    base: Option<&BaseName>,
) -> Attempt<(Archive, RestorePlan)> {
    start_log(&LoggingSettings {
        json: false,
        level: "warn".to_owned(),
    })?;
    let archive = Archive::look(read.place.place()?.storage, read.identities()?).await?;
    let point = archive.point(target).await?;
    let plan = archive.plan(&point, base)?;
    Ok((archive, plan))
}

/// Runs `witness archive restore`.
///
/// # Errors
/// Exit 2 for invalid arguments, 4 if no base backup and log in the archive lead to the point, 7 if a part of the archive is damaged or
/// missing, 1 for everything else. After a failure, the written files remain, but are unusable.
pub(super) async fn restore(args: &RestoreArgs, format: Format) -> Attempt {
    let target = args.target.target();
    let (archive, plan) = planned(&args.read, &target, args.base.as_ref()).await?;
    let mut report = Report::of(&plan, &target, archive.end().as_ref());
    if args.dry_run {
        report.missing = archive.missing(&plan).await?;
        let objects = plan.objects().map(|(name, bytes)| ToRead {
            name: name.to_owned(),
            bytes,
        });
        report.objects = Some(objects.collect());
        return report.print(format);
    }
    if let Some(warning) = report.range_end.as_ref().and_then(EndOfRange::warning) {
        tracing::warn!("{warning}");
    }
    let directory = std::path::absolute(&args.directory)?;
    let mut default = directory.clone().into_os_string();
    default.push(".restore");
    let work_dir = match &args.work_directory {
        Some(work_dir) => std::path::absolute(work_dir)?,
        None => default.into(),
    };
    let what = Restore {
        check_tables: args.check_tables,
        ..args.server.restore(directory, work_dir)
    };
    let (restored, stages, seconds) = until_a_signal(&archive, &plan, &what, format).await;
    let restored = restored?;
    // The restore is complete. The work directory is no longer needed: its log files are also in the archive.
    if let Err(error) = std::fs::remove_dir_all(&what.work_dir) {
        tracing::warn!(%error, "{} is no longer needed, and cannot be removed", what.work_dir.display());
    }
    report.restored = Some(Done {
        directory: what.data_dir.display().to_string(),
        transactions_applied: restored.applied,
        stages,
        seconds,
    });
    report.print(format)
}

/// Restores until the restore is complete or a signal arrives, and shows the progress. Also returns the duration of each stage, and the
/// total duration in seconds.
async fn until_a_signal(
    archive: &Archive,
    plan: &RestorePlan,
    what: &Restore,
    format: Format,
) -> (Attempt<Restored>, Vec<Took>, f64) {
    let (began, progress) = (Instant::now(), Arc::new(Progress::new(format)));
    let restored = async {
        let (mut signals, stop) = (StopSignals::new()?, CancellationToken::new());
        let cancel = stop.clone();
        let listening = tokio::spawn(async move {
            signals.next().await;
            cancel.cancel();
        });
        let watching: Arc<dyn Watching> = progress.clone();
        let restored = archive.restore(plan, what, &watching, &stop).await;
        listening.abort();
        Ok::<_, Failure>(restored?)
    };
    let restored = restored.await;
    (restored, progress.end(), began.elapsed().as_secs_f64())
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        const LIST: &str = "`witness archive list` shows what the archive has";
        const VERIFY: &str = "`witness archive verify` says what is damaged; end before it with --to-gtid, or begin with another --base";
        let (exit, advice) = match &error {
            RestoreError::NoPoint(NoPoint::NoLog) => (Exit::Error, LIST),
            RestoreError::NoPoint(_) | RestoreError::NoBase(_) => (Exit::Refused, LIST),
            RestoreError::Directory(_) | RestoreError::Backend(_) => (Exit::Refused, ""),
            RestoreError::Unread(_) | RestoreError::Piece { .. } | RestoreError::Base { .. } => {
                (Exit::Corrupt, VERIFY)
            }
            RestoreError::Tables(_) | RestoreError::OtherTransactions { .. } => (Exit::Corrupt, ""),
            RestoreError::Storage(_)
            | RestoreError::Server(_)
            | RestoreError::Log(_)
            | RestoreError::Apply(_) => (Exit::Error, ""),
            RestoreError::Cancelled => (Exit::Error, "remove both directories before another try"),
        };
        exit.because(error, advice)
    }
}

/// Input and result of a restore.
#[derive(Debug, Serialize)]
struct Report {
    base: String,
    log_files: usize,
    bytes_to_read: u64,
    /// `gtid_executed` at the point to which the data are restored.
    gtids: String,
    /// Commit time of the last restored transaction.
    last_commit: Option<String>,
    /// Commit time of the last transaction in the archive. Later transactions cannot be restored.
    archive_ends: Option<String>,
    /// True if the archive ends before the requested time.
    ends_early: bool,
    /// For `--to-time`: the first transaction that is not restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<EndOfRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<Vec<ToRead>>,
    missing: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restored: Option<Done>,
}

#[derive(Debug, Serialize)]
struct ToRead {
    name: String,
    bytes: u64,
}

/// The first transaction in the log with a later timestamp than `--to-time`.
#[derive(Debug, Serialize)]
struct EndOfRange {
    gtid: String,
    committed: String,
    /// How many transactions after this one in the log have timestamps up to `--to-time`.
    excluded_earlier: u64,
    /// A value for `--to-gtid` that also restores these excluded transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_gtid: Option<String>,
}

#[derive(Debug, Serialize)]
struct Done {
    directory: String,
    transactions_applied: u64,
    stages: Vec<Took>,
    seconds: f64,
}

impl Report {
    fn of(plan: &RestorePlan, target: &Target, end: Option<&Point>) -> Self {
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

    fn print(&self, format: Format) -> Attempt {
        print(format, self, || self.text())?;
        Exit::Corrupt.unless(self.missing.is_empty())
    }

    fn text(&self) -> String {
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
        let ends = or_dash(&self.archive_ends);
        text += &match self.ends_early {
            true => format!(
                "the archive ends before that time, with a transaction of {ends}: later commits are lost\n"
            ),
            false => format!("the last transaction in the archive was committed at {ends}\n"),
        };
        for ToRead { name, bytes } in self.objects.iter().flatten() {
            text.push_str(&format!("{bytes:>14} {name}\n"));
        }
        text += &lines("MISSING: ", &self.missing);
        if let Some(done) = &self.restored {
            let took = Duration::from_secs(done.seconds.round() as u64);
            text.push_str(&format!(
                "restored to {} in {}: {} transactions were applied after the base backup\n",
                done.directory,
                format_duration(took),
                done.transactions_applied
            ));
        }
        text
    }
}

impl EndOfRange {
    /// Returns the warning about transactions that are excluded because a server's clock was ahead; `None` if there are none.
    fn warning(&self) -> Option<String> {
        let to_gtid = self.to_gtid.as_ref()?;
        Some(format!(
            "{} transactions after {} in the log have timestamps up to --to-time and are excluded, because the clock of a server was ahead; to restore them as well, use --to-gtid {to_gtid} instead of --to-time",
            self.excluded_earlier, self.gtid
        ))
    }
}

/// The duration of one stage of a restore.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Took {
    stage: &'static str,
    seconds: f64,
}

/// Shows a progress bar for each stage on a terminal, and records the start of each stage.
struct Progress {
    hidden: bool,
    so_far: Mutex<SoFar>,
}

struct SoFar {
    bar: ProgressBar,
    begun: Vec<(Stage, Instant)>,
}

impl Progress {
    fn new(format: Format) -> Self {
        Self {
            hidden: format != Format::Table || !std::io::stderr().is_terminal(),
            so_far: Mutex::new(SoFar {
                bar: ProgressBar::hidden(),
                begun: Vec::new(),
            }),
        }
    }

    /// Ends the display, and returns the duration of each stage. The last stage ends now.
    fn end(&self) -> Vec<Took> {
        let so_far = self.so_far();
        so_far.bar.finish_and_clear();
        took(&so_far.begun, Instant::now())
    }

    fn so_far(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn took(begun: &[(Stage, Instant)], end: Instant) -> Vec<Took> {
    let ends = begun.iter().skip(1).map(|(_, at)| *at).chain([end]);
    let took = begun.iter().zip(ends).map(|((stage, at), end)| Took {
        stage: stage.name(),
        seconds: end.duration_since(*at).as_secs_f64(),
    });
    took.collect()
}

impl Watching for Progress {
    fn begins(&self, stage: Stage, total: u64) {
        let mut so_far = self.so_far();
        // A stage is reported again when its size is known.
        if so_far.begun.last().is_none_or(|(last, _)| *last != stage) {
            so_far.begun.push((stage, Instant::now()));
        }
        if self.hidden {
            return;
        }
        const BYTES: &str = "{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let (words, template) = match stage {
            Stage::Base => ("base backup", BYTES),
            Stage::Log => ("log", BYTES),
            Stage::Start => ("mysqld starts", "{spinner} {msg} {elapsed}"),
            Stage::Apply => ("transactions", "{msg} {bar:40} {pos}/{len} {per_sec} {eta}"),
            Stage::Check => ("tables", "{msg} {bar:40} {pos}/{len} {eta}"),
            Stage::Stop => ("mysqld stops", "{spinner} {msg} {elapsed}"),
        };
        let bar = bar(template);
        bar.set_length(total);
        bar.set_message(words);
        if total == 0 {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        std::mem::replace(&mut so_far.bar, bar).finish_and_clear();
    }

    fn reached(&self, at: u64) {
        self.so_far().bar.set_position(at);
    }
}

// `witness archive drill`: restores the newest base backup and the log after it, checks the result, and removes it. A timer should run it
// regularly, because only a restore proves that a backup is usable.

/// The data directory in a drill's directory.
const DATA: &str = "data";
/// The work directory of the restore in a drill's directory.
const WORK: &str = "work";

/// Arguments of `witness archive drill`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrillArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// Directory for the restored server, in `data` and `work`; neither may exist, and both are removed
    #[arg(short, long, value_name = "DIRECTORY")]
    directory: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `witness archive drill`.
///
/// # Errors
/// The errors of `witness archive restore`; also exit 4 if the drill's directories exist already. Created files are removed in any case.
pub(super) async fn drill(args: &DrillArgs, format: Format) -> Attempt {
    let (archive, plan) = planned(&args.read, &Target::End, None).await?;
    let room = Room::make(&std::path::absolute(&args.directory)?);
    let room = room.map_err(RestoreError::Directory)?;
    let what = Restore {
        check_tables: true,
        ..args.server.restore(room.within(DATA), room.within(WORK))
    };
    let (restored, stages, seconds) = until_a_signal(&archive, &plan, &what, format).await;
    let removed = room.remove();
    let Restored { applied, .. } = restored?;
    removed?;
    let report = Report::of(&plan, &Target::End, archive.end().as_ref());
    let mut json = json!({ "transactions_applied": applied, "stages": stages, "seconds": seconds });
    merge(&mut json, &report);
    print(format, &json, || {
        let stages = stages.iter();
        let stages =
            stages.map(|Took { stage, seconds }| format!("{stage:<14} {seconds:>8.1} s\n"));
        format!(
            "{}{}restored in {seconds:.1} s with {applied} transactions after the base backup; every table is sound; removed again\n",
            report.text(),
            stages.collect::<String>()
        )
    })
}

/// The directory of a drill. [`Room::remove`] removes only the directories that this drill has created.
#[derive(Debug)]
struct Room {
    directory: PathBuf,
    /// True if this drill created `directory`.
    is_new: bool,
    /// The directories created in `directory`.
    made: Vec<PathBuf>,
}

impl Room {
    fn make(directory: &Path) -> Result<Self, BaseError> {
        let mut room = Self {
            directory: directory.to_owned(),
            is_new: !directory.exists(),
            made: Vec::new(),
        };
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        let made = builder.recursive(true).create(directory);
        made.map_err(|error| unfit(directory, error))?;
        for name in [DATA, WORK] {
            let path = room.within(name);
            // If two drills run in one directory, only one of them can create `path`; the other fails here.
            if let Err(error) = builder.recursive(false).create(&path) {
                if let Err(error) = room.remove() {
                    tracing::warn!(%error, "an empty directory is left in {}", directory.display());
                }
                return Err(unfit(&path, error));
            }
            room.made.push(path);
        }
        Ok(room)
    }

    fn within(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn remove(&self) -> io::Result<()> {
        for directory in &self.made {
            fs::remove_dir_all(directory)?;
        }
        if !self.is_new {
            return Ok(());
        }
        // Another process may have files in the directory, or have removed it, such as a second drill that was refused.
        let is_foreign = |error: &io::Error| {
            use ErrorKind::{DirectoryNotEmpty, NotFound};
            matches!(error.kind(), DirectoryNotEmpty | NotFound)
        };
        match fs::remove_dir(&self.directory) {
            Err(error) if is_foreign(&error) => Ok(()),
            removed => removed,
        }
    }
}

fn unfit(path: &Path, error: io::Error) -> BaseError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::AlreadyExists => BaseError::Unfit(
            path,
            "it is there already, and a drill removes only what it has made; remove it where another drill was killed, or name another directory",
        ),
        _ => BaseError::Disk(path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_time_formats_are_parsed() {
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

    #[test]
    fn stage_durations_end_at_the_next_stage() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let begun = [
            (Stage::Base, at(0)),
            (Stage::Log, at(3)),
            (Stage::Apply, at(4)),
        ];
        let took = took(&begun, at(9));
        let took: Vec<_> = took.iter().map(|one| (one.stage, one.seconds)).collect();
        assert_eq!(took, [("base backup", 3.0), ("log", 1.0), ("apply", 5.0)]);
        let progress = Progress::new(Format::Json);
        progress.begins(Stage::Apply, 0);
        progress.begins(Stage::Apply, 7);
        assert_eq!(progress.end().len(), 1);
    }
}

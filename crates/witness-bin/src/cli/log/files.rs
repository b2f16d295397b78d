//! `witness log list`, `verify`, `diff` and `trimmed`: list and check the files of a log, compare two logs, and list trimmed tails.

use std::io;
use std::path::{Path, PathBuf};

use binlog_format::gtid::GtidSet;
use binlog_store::{
    CutTail, DiskFileSystem, FileDifference, FileListing, LogDirectory, Side, VerifyProgress,
};
use mysqld_server::tail_trim::TrimmedTail;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::config_args::ConfigArgs;
use crate::cli::log::entry_line::time_text;
use crate::cli::log::target::{Log, MysqldsLog, ReadEvent, TargetArgs, failure, open};
use crate::terminal::{Attempt, Exit, Failure, Format, Table, bytes_bar, print};
use crate::text::lines;

#[derive(Debug, Default, Serialize)]
struct FileLine {
    log_name: String,
    file_size: u64,
    entries: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// Times in UTC of the first and the last entry with a time.
    first_time: Option<String>,
    last_time: Option<String>,
    /// True if the file is complete: its last entry closes it.
    closed: bool,
    /// The GTIDs of the transactions in this file.
    gtid_set: String,
    /// The GTIDs of the transactions in all earlier files.
    previous_gtid_set: String,
    /// The first fault in the file, if any.
    fault: Option<String>,
}

impl FileLine {
    fn new(file: &FileListing) -> Self {
        Self {
            log_name: file.file.name(),
            file_size: file.size,
            entries: file.entries,
            first_op_id: file.first.map(|op_id| op_id.to_string()),
            last_op_id: file.last.map(|op_id| op_id.to_string()),
            first_time: file.times.and_then(|(first, _)| time_text(first)),
            last_time: file.times.and_then(|(_, last)| time_text(last)),
            closed: file.closed,
            gtid_set: file.gtids.to_string().replace('\n', ""),
            previous_gtid_set: file.previous_gtids.to_string().replace('\n', ""),
            fault: file.fault.as_ref().map(ToString::to_string),
        }
    }
}

/// Runs `witness log list`.
///
/// # Errors
/// Exit 7 when a file is damaged.
pub(super) fn list(args: &TargetArgs, format: Format) -> Attempt {
    let directory = match args.log()? {
        Log::Members(directory) => directory,
        Log::Mysqlds(log) => return of_mysqld(&log, format),
    };
    let files = directory.files().map_err(failure)?;
    let lines: Vec<_> = files.iter().map(FileLine::new).collect();
    print(format, &lines, || table(&lines))?;
    let last = files.last().map(|file| file.file);
    let damaged = files.iter().find_map(|file| {
        let fault = file.fault.as_ref()?;
        // A cut-off entry at the end of the last file is not damage: the member may be writing it.
        let unfinished = Some(file.file) == last && fault.kind.is_cut_off();
        (!unfinished).then(|| format!("{}: {fault}", file.file.name()))
    });
    damage_is_none(damaged)
}

fn damage_is_none(damage: Option<String>) -> Attempt {
    let advice = "`witness log verify` says more";
    damage.map_or(Ok(()), |what| Err(Exit::Corrupt.because(what, advice)))
}

/// Lists the files of mysqld's own binlog, without op ids.
fn of_mysqld(log: &MysqldsLog, format: Format) -> Attempt {
    let (mut lines, mut damaged) = (Vec::new(), None);
    for file in log.files() {
        let mut file = file?;
        let mut line = FileLine {
            log_name: file.name.clone(),
            file_size: file.size,
            ..FileLine::default()
        };
        let mut gtids = GtidSet::new();
        let damage = file.scan(|read| {
            let Some(transaction) = read.transaction() else {
                return;
            };
            line.entries += 1;
            gtids.add(transaction.gtid);
            line.last_time = time_text(transaction.timestamp);
            if line.first_time.is_none() {
                line.first_time.clone_from(&line.last_time);
            }
        })?;
        line.closed = !file.in_use;
        line.gtid_set = gtids.to_string().replace('\n', "");
        line.previous_gtid_set = file.previous_gtids.to_string().replace('\n', "");
        line.fault = damage.clone().or(file.unfinished);
        damaged = damaged.or(damage);
        lines.push(line);
    }
    print(format, &lines, || table(&lines))?;
    damage_is_none(damaged)
}

fn table(lines: &[FileLine]) -> Table {
    Table::of(
        "Log_name File_size Entries First_op_id Last_op_id Last_time Closed Gtid_set",
        &lines,
    )
}

// `witness log trimmed`: lists the transactions that were trimmed from the member's own log and from the binlog of its mysqld. Their bytes
// are kept until an operator removes them.

/// Arguments of `witness log trimmed`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrimmedArgs {
    /// A member's data directory; without it, `data_dir` of the configuration
    data_dir: Option<PathBuf>,
    /// Configuration file to take `data_dir` from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// Runs `witness log trimmed`.
///
/// # Errors
/// Exit 1 when kept files cannot be read.
pub(super) fn trimmed(args: &TrimmedArgs, format: Format) -> Attempt {
    let data_dir = match &args.data_dir {
        Some(path) => path.clone(),
        None => ConfigArgs::of_file(args.config.clone()).data_dir()?,
    };
    let lines = tails(&data_dir)
        .map_err(|error| Failure::error(format!("the trimmed tails cannot be read: {error}")))?;
    print(format, &lines, || {
        Table::of(
            "Of Time From Offset Bytes Transactions Gtid_set Kept_in",
            &lines,
        )
    })
}

/// Returns the trimmed tails, the oldest first: of the member's own log (`log`), and of the binlog of its mysqld (`mysqld`).
fn tails(data_dir: &Path) -> io::Result<Vec<Value>> {
    if !data_dir.is_dir() {
        let what = format!("there is no data directory {}", data_dir.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let mut tails = Vec::new();
    for tail in CutTail::list(&DiskFileSystem, data_dir)? {
        // A tail may extend over several files. Each of its parts is a line, with the GTIDs of the whole tail.
        tails.extend(tail.parts.iter().map(|part| {
            let kept_in = data_dir.join("trimmed").join(&part.kept_as);
            let file = json!({ "of": "log", "from": part.file.name(), "kept_in": kept_in });
            let bytes = (part.offset, part.bytes);
            (
                tail.at,
                line(file, tail.at, bytes, &tail.gtids, &tail.reason),
            )
        }));
    }
    let directory = TrimmedTail::directory(data_dir);
    for tail in TrimmedTail::list(data_dir)? {
        let (from, kept_in) = (
            tail.from.display().to_string(),
            directory.join(tail.kept_as),
        );
        let file = json!({ "of": "mysqld", "from": from, "kept_in": kept_in });
        let bytes = (tail.offset.0, tail.bytes);
        tails.push((
            tail.at,
            line(file, tail.at, bytes, &tail.gtids, &tail.reason),
        ));
    }
    tails.sort_by_key(|(at, _)| *at);
    Ok(tails.into_iter().map(|(_, line)| line).collect())
}

/// Returns the line for a trimmed tail. `of` has its files, `at` is the time of the trim in seconds since 1970. The trimmed bytes are given
/// as their offset in the file and their number.
fn line(mut of: Value, at: u64, (offset, bytes): (u64, u64), gtids: &str, reason: &str) -> Value {
    of["at"] = json!(at);
    of["time"] = json!(u32::try_from(at).ok().and_then(time_text));
    of["offset"] = json!(offset);
    of["bytes"] = json!(bytes);
    // Null if the GTID set cannot be parsed.
    of["transactions"] = json!(count(gtids));
    of["gtid_set"] = json!(gtids);
    of["reason"] = json!(reason);
    of
}

fn count(gtids: &str) -> Option<u64> {
    let set: GtidSet = gtids.parse().ok()?;
    u64::try_from(set.count()).ok()
}

// `witness log verify`: checks a log against its checksums and positions.

#[derive(Debug, Default, Serialize)]
struct Verdict {
    ok: bool,
    /// `member`, or `mysqld` for mysqld's own binlog, which has no op ids.
    owner: &'static str,
    path: String,
    files: usize,
    entries: u64,
    bytes: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// An unfinished write at the end of the log. It is normal while the member runs, and after a crash.
    unfinished: Option<String>,
    /// The first damage.
    damage: Option<String>,
    /// All damages, from the oldest file on.
    damaged: Vec<String>,
}

/// Runs `witness log verify`.
///
/// # Errors
/// Exit 7 when the log is damaged.
pub(super) fn verify(args: &TargetArgs, format: Format) -> Attempt {
    let bar = bytes_bar();
    let progress = |progress: VerifyProgress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
    };
    let verdict = match args.log()? {
        Log::Members(directory) => verify_member(&directory, &progress),
        Log::Mysqlds(log) => verify_mysqld(&log, &progress),
    };
    bar.finish_and_clear();
    let verdict = verdict?;
    print(format, &verdict, || judgement(&verdict))?;
    Exit::Corrupt.unless(verdict.ok)
}

fn verify_member(directory: &LogDirectory, progress: &dyn Fn(VerifyProgress)) -> Attempt<Verdict> {
    let report = directory.verify(progress).map_err(failure)?;
    Ok(Verdict {
        ok: report.damaged.is_empty(),
        owner: "member",
        path: directory.path().display().to_string(),
        files: report.files,
        entries: report.entries,
        bytes: report.bytes,
        first_op_id: report.first.map(|op_id| op_id.to_string()),
        last_op_id: report.last.map(|op_id| op_id.to_string()),
        unfinished: report.unfinished.map(|unfinished| unfinished.to_string()),
        damage: report.damaged.first().map(ToString::to_string),
        damaged: report.damaged.iter().map(ToString::to_string).collect(),
    })
}

fn verify_mysqld(log: &MysqldsLog, progress: &dyn Fn(VerifyProgress)) -> Attempt<Verdict> {
    let total_bytes = log.bytes();
    let mut verdict = Verdict {
        owner: "mysqld",
        path: log.path.display().to_string(),
        ..Verdict::default()
    };
    for file in log.files() {
        let mut file = file?;
        verdict.files += 1;
        let count = |read: &ReadEvent| verdict.entries += u64::from(read.transaction().is_some());
        verdict.damaged.extend(file.scan(count)?);
        verdict.bytes += file.offset;
        verdict.unfinished = file.unfinished;
        progress(VerifyProgress {
            done_bytes: verdict.bytes,
            total_bytes,
        });
    }
    verdict.ok = verdict.damaged.is_empty();
    verdict.damage = verdict.damaged.first().cloned();
    Ok(verdict)
}

fn judgement(verdict: &Verdict) -> String {
    let Verdict {
        path,
        files,
        entries,
        bytes,
        ..
    } = verdict;
    let (entries_are, repairs) = match verdict.owner {
        "mysqld" => ("transactions", "mysqld"),
        _ => ("entries", "the member"),
    };
    let mut text = format!("{path}: {entries} {entries_are} in {files} files, {bytes} bytes");
    if verdict.owner == "mysqld" {
        text.push_str("; mysqld's own binlog, not a member's log");
    }
    if let (Some(first), Some(last)) = (&verdict.first_op_id, &verdict.last_op_id) {
        text.push_str(&format!(", from {first} to {last}"));
    }
    text.push('\n');
    if let Some(unfinished) = &verdict.unfinished {
        text.push_str(&format!(
            "unfinished at the end: {unfinished}; a start of {repairs} repairs it\n"
        ));
    }
    if verdict.ok {
        text.push_str("every checksum and every position is right\n");
    }
    text + &lines("DAMAGED: ", &verdict.damaged)
}

// `witness log diff`: compares the logs of two members, and shows where they differ.

/// Arguments of `witness log diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// A data directory, the directory of binlog files, or one file
    left: PathBuf,
    /// Another one
    right: PathBuf,
}

#[derive(Debug, Serialize)]
struct DifferenceLine {
    log_name: String,
    /// `only_in`, `shorter` or `differs`.
    difference: &'static str,
    /// `left` or `right`. For `only_in`, the log that has the file; for `shorter`, the log with fewer bytes of the file.
    side: Option<&'static str>,
    /// The first differing byte.
    offset: Option<u64>,
    text: String,
}

/// Runs `witness log diff`.
///
/// # Errors
/// Exit 1 when the logs differ.
pub(super) fn diff(args: &DiffArgs, format: Format) -> Attempt {
    let (left, right) = (open(&args.left)?, open(&args.right)?);
    let differences = left.diff(&right).map_err(failure)?;
    let names = [&left, &right].map(|log| log.path().display().to_string());
    let lines = differences.iter().map(|found| difference(found, &names));
    let lines: Vec<_> = lines.collect();
    print(format, &lines, || match lines.is_empty() {
        true => "the logs are the same, byte by byte\n".to_owned(),
        false => lines.iter().map(|line| line.text.clone() + "\n").collect(),
    })?;
    Exit::Error.unless(lines.is_empty())
}

fn difference(found: &FileDifference, names: &[String; 2]) -> DifferenceLine {
    let side_name = |side: &Side| match side {
        Side::Left => ("left", &names[0]),
        Side::Right => ("right", &names[1]),
    };
    let (file, difference, side, offset, text) = match found {
        FileDifference::OnlyIn { file, side } => {
            let (side, name) = side_name(side);
            (file, "only_in", Some(side), None, format!("only in {name}"))
        }
        FileDifference::Shorter {
            file,
            side,
            common_bytes: common,
        } => {
            let (side, name) = side_name(side);
            let text = format!("{name} ends at {common}; equal up to there");
            (file, "shorter", Some(side), Some(*common), text)
        }
        FileDifference::Differs { file, offset } => {
            let text = format!("differs from byte {offset} on");
            (file, "differs", None, Some(*offset), text)
        }
    };
    DifferenceLine {
        log_name: file.name(),
        difference,
        side,
        offset,
        text: format!("{}: {text}", file.name()),
    }
}

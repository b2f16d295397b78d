//! `witness log list` and `trimmed`: the files of a log, and the tails that were trimmed from it.

use std::io;
use std::path::{Path, PathBuf};

use binlog_format::gtid::GtidSet;
use binlog_store::{CutTail, DiskFileSystem, FileListing};
use mysqld_server::tail_trim::TrimmedTail;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::config_args::ConfigArgs;
use crate::cli::log::entry_line::time_text;
use crate::cli::log::mysqlds_log::MysqldsLog;
use crate::cli::log::target::{Log, TargetArgs, failure};
use crate::terminal::{Attempt, Exit, Failure, Format, Table, print};

#[derive(Debug, Default, Serialize)]
struct FileLine {
    log_name: String,
    file_size: u64,
    entries: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// UTC, of the first and the last entry that has a time.
    first_time: Option<String>,
    last_time: Option<String>,
    /// Whether its last entry ends it.
    closed: bool,
    /// The GTIDs of its own transactions.
    gtid_set: String,
    /// The GTIDs of the files before it.
    previous_gtid_set: String,
    /// Its fault, if any.
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
        // The end of the last file may currently be written.
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

// `witness log trimmed`: lists the transactions trimmed from the member's own log and from its mysqld's binlog. The bytes are kept; only
// an operator removes them.

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

/// The trimmed tails, the oldest first: of the member's own log (`log`), and of the binlog of its mysqld (`mysqld`).
fn tails(data_dir: &Path) -> io::Result<Vec<Value>> {
    if !data_dir.is_dir() {
        let what = format!("there is no data directory {}", data_dir.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let mut tails = Vec::new();
    for tail in CutTail::list(&DiskFileSystem, data_dir)? {
        // Each part is a line; the GTIDs are those of the whole tail.
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

/// One trimmed tail: the files, the time of the trim in seconds since 1970, and the trimmed bytes from their start in the file on.
fn line(mut of: Value, at: u64, (offset, bytes): (u64, u64), gtids: &str, reason: &str) -> Value {
    of["at"] = json!(at);
    of["time"] = json!(u32::try_from(at).ok().and_then(time_text));
    of["offset"] = json!(offset);
    of["bytes"] = json!(bytes);
    // None where their text cannot be read.
    of["transactions"] = json!(count(gtids));
    of["gtid_set"] = json!(gtids);
    of["reason"] = json!(reason);
    of
}

fn count(gtids: &str) -> Option<u64> {
    let set: GtidSet = gtids.parse().ok()?;
    u64::try_from(set.count()).ok()
}

//! `witness log verify` and `diff`: a log is compared with its checksums and positions, or with another member's log.

use std::path::PathBuf;

use binlog_store::{FileDifference, LogDirectory, Side, VerifyProgress};
use serde::Serialize;

use crate::cli::log::mysqlds_log::{MysqldsLog, ReadEvent};
use crate::cli::log::target::{Log, TargetArgs, failure, open};
use crate::terminal::{Attempt, Exit, Format, bytes_bar, print};

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
    /// An unfinished write at the end; normal while the member runs, and after a crash.
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
        Log::Members(directory) => of_member(&directory, &progress),
        Log::Mysqlds(log) => of_mysqld(&log, &progress),
    };
    bar.finish_and_clear();
    let verdict = verdict?;
    print(format, &verdict, || text(&verdict))?;
    Exit::Corrupt.unless(verdict.ok)
}

fn of_member(directory: &LogDirectory, progress: &dyn Fn(VerifyProgress)) -> Attempt<Verdict> {
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

fn of_mysqld(log: &MysqldsLog, progress: &dyn Fn(VerifyProgress)) -> Attempt<Verdict> {
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

fn text(verdict: &Verdict) -> String {
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
    for damage in &verdict.damaged {
        text.push_str(&format!("DAMAGED: {damage}\n"));
    }
    text
}

// `witness log diff`: where two members' logs diverge.

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
    /// `left` or `right`: the log with the file, or with fewer bytes of it.
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
    let lines = differences.iter().map(|found| line(found, &names));
    let lines: Vec<_> = lines.collect();
    print(format, &lines, || match lines.is_empty() {
        true => "the logs are the same, byte by byte\n".to_owned(),
        false => lines.iter().map(|line| line.text.clone() + "\n").collect(),
    })?;
    Exit::Error.unless(lines.is_empty())
}

fn line(found: &FileDifference, names: &[String; 2]) -> DifferenceLine {
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

//! `witness log`: reads a log on disk, while its member runs or is stopped; purges and rotates logs of running members.

mod entries;
mod entry_line;
mod files;
mod parallelism;
mod target;

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand, PurgeReport, PurgeRequest};
use serde_json::json;

use crate::cli::log::target::TargetArgs;
use crate::cli::session::{ChangeArgs, OrderArgs, about, another_answer};
use crate::config::{bytes_of, duration_of};
use crate::terminal::{Attempt, Format, print};
use crate::text::times::now;

/// The verbs of `witness log`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LogCommand {
    /// The files of a log, with what they hold
    List(TargetArgs),
    /// The entries of a log, one a line
    Show(entries::ShowArgs),
    /// One entry, by GTID, op id or index
    Find(entries::FindArgs),
    /// Read a log whole and check every checksum and position
    Verify(TargetArgs),
    /// Where the logs of two members part
    Diff(files::DiffArgs),
    /// How parallel binlog files can be applied, by their own dependency information and by their rows
    Parallelism(parallelism::ParallelismArgs),
    /// Show entries as a running member writes them
    Follow(entries::FollowArgs),
    /// End the current file on every member and begin the next, as FLUSH BINARY LOGS does
    Flush(OrderArgs),
    /// Remove old files of a running member's log, as far as the ring does not need them
    Purge(PurgeArgs),
    /// What was cut off a member's log, and off the binlog of its mysqld, and where it is kept
    Trimmed(files::TrimmedArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Exit 7 if a log is damaged; otherwise the exit code of the subcommand.
pub(crate) fn run(command: &LogCommand, format: Format) -> Attempt {
    match command {
        LogCommand::List(args) => files::list(args, format),
        LogCommand::Show(args) => entries::show(args, format),
        LogCommand::Find(args) => entries::find(args, format),
        LogCommand::Verify(args) => files::verify(args, format),
        LogCommand::Diff(args) => files::diff(args, format),
        LogCommand::Parallelism(args) => parallelism::run(args, format),
        LogCommand::Follow(args) => entries::follow(args, format),
        LogCommand::Flush(args) => flush(args, format),
        LogCommand::Purge(args) => purge(args, format),
        LogCommand::Trimmed(args) => files::trimmed(args, format),
    }
}

// `witness log flush` and `purge`: orders to running members. `flush` ends the current file of the ring's log on every member and begins
// the next file. `purge` removes old files of a member's log that the ring does not need.

/// Runs `witness log flush`.
///
/// # Errors
/// Exit 3 without a leader, 5 if the result is unknown.
pub(super) fn flush(args: &OrderArgs, format: Format) -> Attempt {
    args.session(format, async |ring| {
        // `file` is the new current file.
        let (entry, file) = match ring.order(OperatorCommand::FlushLog).await? {
            CommandResult::Flushed { entry, file } => (entry, file),
            other => return Err(another_answer(&other)),
        };
        print(format, &json!({ "entry": entry, "file": file }), || {
            format!("the log was rotated everywhere by entry {entry}; it continues in {file}\n")
        })
    })
}

/// Arguments of `witness log purge`.
#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    /// Name or number of the member with the log
    member: String,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    order: OrderArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Files {
    /// All files before this one, as in binlog.000007
    #[arg(long, value_name = "FILE")]
    to: Option<String>,
    /// The oldest files, until all together take at most so much, as in 20GiB
    #[arg(long, value_name = "SIZE", value_parser = bytes_of)]
    keep: Option<u64>,
    /// Files that were closed so long ago, as in 12h
    #[arg(long, value_name = "DURATION", value_parser = duration_of)]
    older_than: Option<Duration>,
}

impl Files {
    fn request(&self) -> PurgeRequest {
        if let Some(file) = &self.to {
            return PurgeRequest::BeforeFile(file.clone());
        }
        if let Some(bytes) = self.keep {
            return PurgeRequest::KeepBytes(bytes);
        }
        let age = self.older_than.unwrap_or_default();
        let before = now().saturating_sub(age.as_secs());
        PurgeRequest::ClosedBefore(u32::try_from(before).unwrap_or(u32::MAX))
    }
}

/// Runs `witness log purge`.
///
/// # Errors
/// Exit 3 when the ring's needs are unknown, 4 if the command is refused, 5 if the result is unknown.
pub(super) fn purge(args: &PurgeArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        let place = ring.directory.find(&args.member)?;
        args.change.confirm(&format!(
            "Remove old files of the log of `{}`? This cannot be undone.",
            place.name
        ))?;
        let dry_run = args.change.dry_run;
        let command = OperatorCommand::PurgeLog {
            request: args.files.request(),
            dry_run,
        };
        let purged = ring.at(place, command).await?;
        let CommandResult::Purged(mut report) = purged else {
            return Err(another_answer(&purged));
        };
        if let Some(kept) = &mut report.kept {
            kept.because = ring.directory.with_names(&kept.because);
        }
        let json = about(place.id, &place.name, dry_run, &report);
        print(format, &json, || page(&place.name, dry_run, &report))
    })
}

fn page(name: &str, dry_run: bool, report: &PurgeReport) -> String {
    let gone = if dry_run { "would go" } else { "are gone" };
    let mut out = match (report.removed.first(), report.removed.last()) {
        (Some(first), Some(last)) => format!(
            "{} files of `{name}` {gone}, {first} to {last}, {} bytes\n",
            report.removed.len(),
            report.bytes
        ),
        _ => format!("No file of `{name}` {gone}\n"),
    };
    if let Some(kept) = &report.kept {
        out += &format!("{} stays: it {}\n", kept.file, kept.because);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::protocol::KeptFile;

    #[test]
    fn removed_and_kept_files_are_reported() {
        let report = |removed: &[&str]| PurgeReport {
            removed: removed.iter().map(|name| (*name).to_owned()).collect(),
            bytes: 4096,
            upto: None,
            kept: Some(KeptFile {
                file: "binlog.000003".into(),
                because: "is being written to".into(),
            }),
        };
        assert_eq!(
            page("w-2", false, &report(&["binlog.000001", "binlog.000002"])),
            "2 files of `w-2` are gone, binlog.000001 to binlog.000002, 4096 bytes\nbinlog.000003 stays: it is being written to\n"
        );
        assert_eq!(
            page("w-2", true, &report(&[])),
            "No file of `w-2` would go\nbinlog.000003 stays: it is being written to\n"
        );
    }
}

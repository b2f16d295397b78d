//! `witness log`: reads a log on disk, whether or not its member runs; purges and rotates logs of running members.

mod diff;
mod entry_line;
mod find;
mod flush;
mod follow;
mod list;
mod mysqlds_log;
mod parallelism;
mod purge;
mod show;
mod target;
mod trimmed;
mod verify;

use crate::cli::log::target::TargetArgs;
use crate::cli::session::OrderArgs;
use crate::terminal::{Failure, Format};

/// The verbs of `witness log`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LogCommand {
    /// The files of a log, with what they hold
    List(TargetArgs),
    /// The entries of a log, one a line
    Show(show::ShowArgs),
    /// One entry, by GTID, op id or index
    Find(find::FindArgs),
    /// Read a log whole and check every checksum and position
    Verify(TargetArgs),
    /// Where the logs of two members part
    Diff(diff::DiffArgs),
    /// How parallel binlog files can be applied, by their own dependency information and by their rows
    Parallelism(parallelism::ParallelismArgs),
    /// Show entries as a running member writes them
    Follow(follow::FollowArgs),
    /// End the current file on every member and begin the next, as FLUSH BINARY LOGS does
    Flush(OrderArgs),
    /// Remove old files of a running member's log, as far as the ring does not need them
    Purge(purge::PurgeArgs),
    /// What was cut off a member's log, and off the binlog of its mysqld, and where it is kept
    Trimmed(trimmed::TrimmedArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Exit 7 where a log is damaged, 1 for everything else.
pub(crate) fn run(command: &LogCommand, format: Format) -> Result<(), Failure> {
    match command {
        LogCommand::List(args) => list::run(args, format),
        LogCommand::Show(args) => show::run(args, format),
        LogCommand::Find(args) => find::run(args, format),
        LogCommand::Verify(args) => verify::run(args, format),
        LogCommand::Diff(args) => diff::run(args, format),
        LogCommand::Parallelism(args) => parallelism::run(args, format),
        LogCommand::Follow(args) => follow::run(args, format),
        LogCommand::Flush(args) => flush::run(args, format),
        LogCommand::Purge(args) => purge::run(args, format),
        LogCommand::Trimmed(args) => trimmed::run(args, format),
    }
}

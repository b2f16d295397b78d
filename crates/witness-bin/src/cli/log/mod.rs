//! `witness log`: reads a log on disk, whether or not its member runs; purges and rotates logs of running members.

mod entries;
mod entry_line;
mod list;
mod mysqlds_log;
mod orders;
mod parallelism;
mod target;
mod verify;

use crate::cli::log::target::TargetArgs;
use crate::cli::session::OrderArgs;
use crate::terminal::{Attempt, Format};

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
    Diff(verify::DiffArgs),
    /// How parallel binlog files can be applied, by their own dependency information and by their rows
    Parallelism(parallelism::ParallelismArgs),
    /// Show entries as a running member writes them
    Follow(entries::FollowArgs),
    /// End the current file on every member and begin the next, as FLUSH BINARY LOGS does
    Flush(OrderArgs),
    /// Remove old files of a running member's log, as far as the ring does not need them
    Purge(orders::PurgeArgs),
    /// What was cut off a member's log, and off the binlog of its mysqld, and where it is kept
    Trimmed(list::TrimmedArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Exit 7 where a log is damaged, 1 for everything else.
pub(crate) fn run(command: &LogCommand, format: Format) -> Attempt {
    match command {
        LogCommand::List(args) => list::list(args, format),
        LogCommand::Show(args) => entries::show(args, format),
        LogCommand::Find(args) => entries::find(args, format),
        LogCommand::Verify(args) => verify::verify(args, format),
        LogCommand::Diff(args) => verify::diff(args, format),
        LogCommand::Parallelism(args) => parallelism::run(args, format),
        LogCommand::Follow(args) => entries::follow(args, format),
        LogCommand::Flush(args) => orders::flush(args, format),
        LogCommand::Purge(args) => orders::purge(args, format),
        LogCommand::Trimmed(args) => list::trimmed(args, format),
    }
}

//! `witness log`: looks at a log on disk, whether or not its member runs.

mod diff;
mod entry_line;
mod event_line;
mod find;
mod follow;
mod list;
mod show;
mod target;
mod verify;

use std::path::PathBuf;
use std::str::FromStr;

use raft_types::OpId;

use super::config_args::ConfigArgs;
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
    /// Show entries as a running member writes them
    Follow(follow::FollowArgs),
}

/// What a verb looks at.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// A data directory, the directory of binlog files, or one file; without it, `data_dir` of the configuration
    path: Option<PathBuf>,
    /// Configuration file to take `data_dir` from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

impl TargetArgs {
    /// The path given, or the configured data directory.
    fn path(&self) -> Result<PathBuf, Failure> {
        match &self.path {
            Some(path) => Ok(path.clone()),
            None => ConfigArgs::of_file(self.config.clone()).data_dir(),
        }
    }
}

/// Where to begin: an index, or an op id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct From(u64);

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(index) = text.parse() {
            return Ok(Self(index));
        }
        text.parse::<OpId>()
            .map(|op_id| Self(op_id.index))
            .map_err(|_| format!("`{text}` is neither an index nor an op id; write 1042 or 3.1042"))
    }
}

/// Runs a verb.
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
        LogCommand::Follow(args) => follow::run(args, format),
    }
}

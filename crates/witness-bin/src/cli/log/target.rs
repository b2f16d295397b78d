//! The log of a `log` command: a member's data directory, the directory of its binlog files, or one file. Some commands also read mysqld's
//! own binlog files. Nothing is changed, and no member has to run.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use binlog_store::{DirectoryError, FileNumber, LogDirectory};
use raft_types::OpId;

use crate::cli::config_args::ConfigArgs;
use crate::cli::log::mysqlds_log::MysqldsLog;
use crate::config::Mistake;
use crate::terminal::{Attempt, Exit, Failure};

/// The log to read.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// A data directory, the directory of binlog files (a member's or mysqld's own), or one file; without it, `data_dir` of the configuration
    path: Option<PathBuf>,
    /// Configuration file to take `data_dir` from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

impl TargetArgs {
    /// Opens the given log, a member's or a mysqld's own.
    pub(super) fn log(&self) -> Attempt<Log> {
        let path = self.path()?;
        if path.is_file() && LogDirectory::is_mysqlds_binlog(&path) {
            let files = vec![path.clone()];
            return Ok(Log::Mysqlds(MysqldsLog { path, files }));
        }
        let directory = open(&path)?;
        let numbers = directory.numbers().map_err(failure)?;
        let path_of = |number: &FileNumber| directory.path().join(number.name());
        let files: Vec<PathBuf> = numbers.iter().map(path_of).collect();
        if !(files.iter()).all(|file| LogDirectory::is_mysqlds_binlog(file)) {
            return Ok(Log::Members(directory));
        }
        let path = directory.path().to_owned();
        Ok(Log::Mysqlds(MysqldsLog { path, files }))
    }

    /// The path given, or the configured data directory.
    pub(super) fn path(&self) -> Attempt<PathBuf> {
        match &self.path {
            Some(path) => Ok(path.clone()),
            None => ConfigArgs::of_file(self.config.clone()).data_dir(),
        }
    }
}

/// A log to read.
pub(super) enum Log {
    /// The log of a member.
    Members(LogDirectory),
    /// The binlog of a mysqld, without ring data.
    Mysqlds(MysqldsLog),
}

/// The start: an index, or an op id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct From(pub(super) u64);

impl FromStr for From {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(index) = text.parse() {
            return Ok(Self(index));
        }
        let op_id = text.parse::<OpId>();
        let what = || format!("`{text}` is neither an index nor an op id");
        op_id
            .map(|op_id| Self(op_id.index))
            .map_err(|_| Mistake::new(what(), "write 1042 or 3.1042"))
    }
}

/// Opens the log at a path.
///
/// # Errors
/// When there is no log.
pub(super) fn open(path: &Path) -> Attempt<LogDirectory> {
    let opened = match path.is_file() {
        true => LogDirectory::of_file(path),
        false => LogDirectory::on_disk(path),
    };
    opened.map_err(failure)
}

/// The exit code and the message for an unreadable log.
pub(super) fn failure(error: DirectoryError) -> Failure {
    if matches!(error, DirectoryError::MysqldsBinlog(_)) {
        return Exit::Error.because(
            error,
            "name a member's data directory; `witness log list`, `show`, `find --gtid` and `verify` read mysqld's own binlog as well",
        );
    }
    if error.is_corruption() {
        Exit::Corrupt.because(
            error,
            "the other members have the log as well: compare with `witness log diff`, and replace this copy",
        )
    } else {
        Failure::error(error)
    }
}

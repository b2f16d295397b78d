//! `witness archive drill`: restores the newest base backup and the log after it, checks the result, and removes it. For a timer: only a
//! restored backup is proven.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use archive::base_backup::BaseError;
use archive::restore::point::Target;
use archive::restore::{Restore, RestoreError, Restored};
use serde::Serialize;

use super::output;
use super::place::ReadArgs;
use super::restore::{Progress, Report, ServerArgs, Took, planned, until_a_signal};
use crate::cli::session::block_on;
use crate::terminal::{Failure, Format};

/// The data directory in a drill's directory.
const DATA: &str = "data";
/// The work directory of the restore, next to it.
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

#[derive(Debug, Serialize)]
struct Drilled {
    #[serde(flatten)]
    report: Report,
    transactions_applied: u64,
    stages: Vec<Took>,
    seconds: f64,
}

/// Runs `witness archive drill`.
///
/// # Errors
/// As a restore; exit 4 where its directories exist already. Created files are removed in any case.
pub(crate) fn run(args: &DrillArgs, format: Format) -> Result<(), Failure> {
    block_on(drill(args, format))
}

async fn drill(args: &DrillArgs, format: Format) -> Result<(), Failure> {
    let (archive, plan) = planned(&args.read, &Target::End, None).await?;
    let room = Room::make(&std::path::absolute(&args.directory)?);
    let room = room.map_err(RestoreError::Directory)?;
    let what = Restore {
        check_tables: true,
        ..args.server.restore(room.within(DATA), room.within(WORK))
    };
    let began = Instant::now();
    let progress = Arc::new(Progress::new(format));
    let restored = until_a_signal(&archive, &plan, &what, progress.clone()).await;
    let stages = progress.end();
    let seconds = began.elapsed().as_secs_f64();
    let removed = room.remove();
    let Restored { applied, .. } = restored?;
    removed?;
    let drilled = Drilled {
        report: Report::of(&plan, &Target::End, archive.end().as_ref()),
        transactions_applied: applied,
        stages,
        seconds,
    };
    output(format, &drilled, Drilled::text)
}

/// The directory of a drill. It removes only what it has created itself.
#[derive(Debug)]
struct Room {
    directory: PathBuf,
    /// True if this directory was created as well.
    is_new: bool,
    /// Paths created in it.
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
            // Of two drills in one directory, only one creates it.
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
        match fs::remove_dir(&self.directory) {
            // Another process uses it or has removed it, such as a second drill that was refused.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound
                ) =>
            {
                Ok(())
            }
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

impl Drilled {
    fn text(&self) -> String {
        let mut text = self.report.text();
        for Took { stage, seconds } in &self.stages {
            text.push_str(&format!("{stage:<14} {seconds:>8.1} s\n"));
        }
        text.push_str(&format!(
            "restored in {:.1} s with {} transactions after the base backup; every table is sound; removed again\n",
            self.seconds, self.transactions_applied
        ));
        text
    }
}

//! `witness archive drill`: restores the newest base backup and the log after it, checks the result, and removes it. For a timer: only a
//! restored backup is proven.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use archive::base_backup::BaseError;
use archive::restore::point::Target;
use archive::restore::{Restore, RestoreError, Restored};
use serde_json::json;

use super::place::ReadArgs;
use super::restore::{Report, ServerArgs, Took, planned, until_a_signal};
use crate::cli::session::block_on;
use crate::terminal::{Attempt, Format, merge, print};

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

/// Runs `witness archive drill`.
///
/// # Errors
/// As a restore; exit 4 where its directories exist already. Created files are removed in any case.
pub(crate) fn run(args: &DrillArgs, format: Format) -> Attempt {
    block_on(drill(args, format))
}

async fn drill(args: &DrillArgs, format: Format) -> Attempt {
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
        // Another process may use it or have removed it, such as a second drill that was refused.
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

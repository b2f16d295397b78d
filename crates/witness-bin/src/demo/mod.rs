//! The main job, shown: a ring under load, members that crash and come back, and at the end the proof
//! that nothing acknowledged is missing anywhere.

mod embedded;
mod mysql;
mod options;
mod proof;
mod screen;
mod story;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use crate::demo::options::DemoOptions;
pub use crate::demo::story::Story;
use crate::terminal::{Exit, Failure};

/// Plays a demonstration to its end and answers with its report.
///
/// # Errors
/// When it cannot be played; a report that shows a loss is no error here.
pub async fn demonstrate(options: &DemoOptions) -> Result<Story, Failure> {
    let place = Place::for_files(options.data_dir.as_deref())?;
    if options.mysql {
        mysql::demonstrate(options, &place.path()).await
    } else {
        embedded::demonstrate(options, place.path()).await
    }
}

/// Where the members' files are: named by the operator and kept, or temporary.
enum Place {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn for_files(named: Option<&Path>) -> Result<Self, Failure> {
        let Some(named) = named else {
            return Ok(Self::Temporary(
                tempfile::Builder::new().prefix("witness-demo-").tempdir()?,
            ));
        };
        std::fs::create_dir_all(named)?;
        if std::fs::read_dir(named)?.next().is_some() {
            return Err(Failure::new(
                Exit::Refused,
                format!("{} is not empty", named.display()),
                "name a directory that does not exist yet, or an empty one",
            ));
        }
        Ok(Self::Kept(named.canonicalize()?))
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Kept(path) => path.clone(),
            Self::Temporary(directory) => directory.path().to_owned(),
        }
    }
}

/// What the harness says of its processes, ports and trees.
fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::error(format!("{error:#}"))
}

//! `witness demo`: a ring of three members under load, crashes of its members, and the proof that no
//! acknowledged transaction is missing from any member's log.

mod cluster;
mod embedded_member;
mod member_process;
mod mysqld;
mod proof;
mod scenario;
mod scoreboard;
mod screen;
mod sql_clients;
mod story;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::demo::cluster::{Cluster, data_dirs};
use crate::demo::mysqld::Mysqld;
use crate::demo::scenario::Scenario;
use crate::demo::scoreboard::Scoreboard;
use crate::demo::screen::{Display, Screen};
pub use crate::demo::story::Story;
use crate::terminal::{Exit, Failure};

/// How a demonstration is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoOptions {
    /// Three processes, one with a mysqld, instead of three members in this process.
    pub mysql: bool,
    /// Directory of the members' files, which stay there; a temporary one otherwise.
    pub data_dir: Option<PathBuf>,
    /// How long the load runs between two events.
    pub pause: Duration,
    /// Print nothing while it runs.
    pub silent: bool,
}

/// Plays a demonstration to its end. Dropped earlier, it kills the processes that it has started.
///
/// # Errors
/// When it cannot be played. A lost transaction is in the report and not an error here.
pub async fn demonstrate(options: &DemoOptions) -> Result<Story, Failure> {
    let temporary;
    let data_dir = match &options.data_dir {
        Some(named) => new_directory(named)?,
        None => {
            temporary = tempfile::Builder::new().prefix("witness-demo-").tempdir()?;
            temporary.path().to_owned()
        }
    };
    let screen = Screen::open(options.silent);
    let mysqld = match options.mysql {
        true => Some(Mysqld::find(&data_dir)?),
        false => None,
    };
    if let Some(mysqld) = &mysqld {
        let (version, program) = (mysqld.version, mysqld.program());
        screen.print(&format!("using MySQL {version} at {program}"));
    }
    let (mut cluster, operator) = Cluster::prepare(&data_dir, mysqld)?;
    let display = Display {
        screen,
        board: Arc::new(Scoreboard::new()),
        operator,
    };
    let mut story = Story {
        data_dir: data_dir.display().to_string(),
        ..Story::default()
    };
    let scenario = Scenario {
        cluster: &mut cluster,
        display: &display,
        story: &mut story,
        pause: options.pause,
    };
    let played = tokio::select! {
        played = scenario.play() => played,
        never = display.draw() => match never {},
    };
    display.close();
    let acknowledged = played?;
    story.record_commits(&display.board);
    proof::prove(&mut story, &acknowledged, &data_dirs(&data_dir)).map_err(Failure::error)?;
    Ok(story)
}

/// Makes a directory that the operator has named.
fn new_directory(named: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(named)?;
    if std::fs::read_dir(named)?.next().is_some() {
        return Err(Failure::new(
            Exit::Refused,
            format!("{} is not empty", named.display()),
            "name a directory that does not exist yet, or an empty one",
        ));
    }
    Ok(named.canonicalize()?)
}

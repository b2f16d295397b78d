//! `witness demo`: runs a ring of three members under load, crashes its members, and proves that no
//! acknowledged transaction is missing from any member's log.

mod clients;
mod cluster;
mod mysqld;
mod scenario;
mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::process::StopSignals;
use crate::demo::cluster::{Cluster, data_dirs};
use crate::demo::mysqld::Mysqld;
use crate::demo::scenario::{Scenario, Story};
use crate::demo::screen::{Display, Scoreboard, Screen};
use crate::terminal::{Attempt, Exit, Failure, Format, print};

/// Arguments of `witness demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Around a real mysqld ($MYSQLD, the PATH, or what `cargo xtask mysql` made) instead of an embedded writer
    #[arg(long)]
    mysql: bool,
    /// Keep the members' files below this directory, each at DIR/MEMBER/log/
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Seconds of load between two events
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0)]
    pause: f64,
}

/// Runs `witness demo`.
///
/// # Errors
/// Exit 7 if an acknowledged transaction is missing or duplicated, or two logs differ; 1 if the demonstration failed.
pub(crate) fn run(args: &DemoArgs, format: Format) -> Attempt {
    if !(0.1..=60.0).contains(&args.pause) {
        return Err(Exit::Usage.because(
            "--pause is out of bounds",
            "write a number of seconds from 0.1 to 60",
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let story = runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        tokio::select! {
            story = demonstrate(args, format) => story,
            name = stop.next() => Err(Failure::error(format!("{name}: the demonstration was ended"))),
        }
    })?;
    print(format, &story, || story.summary())?;
    Exit::Corrupt.unless(story.ok)
}

/// Runs a demonstration to its end, and returns its report. A lost transaction is in the report, and is not an error here. If this future
/// is dropped before its end, the started processes are killed.
async fn demonstrate(args: &DemoArgs, format: Format) -> Attempt<Story> {
    let temporary;
    let data_dir = match &args.data_dir {
        Some(named) => new_directory(named)?,
        None => {
            temporary = tempfile::Builder::new().prefix("witness-demo-").tempdir()?;
            temporary.path().to_owned()
        }
    };
    let screen = Screen::open(format);
    let mysqld = match args.mysql {
        true => Some(Mysqld::find(&data_dir)?),
        false => None,
    };
    if let Some(mysqld) = &mysqld {
        let (version, program) = (mysqld.version, mysqld.program());
        screen.print(&format!("using MySQL {version} at {program}"));
    }
    let (mut cluster, asker) = Cluster::prepare(&data_dir, mysqld)?;
    let display = Display {
        screen,
        board: Arc::new(Scoreboard::new()),
        asker,
    };
    let mut story = Story {
        data_dir: data_dir.display().to_string(),
        ..Story::default()
    };
    let scenario = Scenario {
        cluster: &mut cluster,
        display: &display,
        story: &mut story,
        pause: Duration::from_secs_f64(args.pause),
    };
    let played = tokio::select! {
        played = scenario.play() => played,
        never = display.draw() => match never {},
    };
    display.close();
    let acknowledged = played?;
    story.acknowledged_total = display.board.total();
    story.latency_p50_seconds = display.board.quantile(0.5).as_secs_f64();
    story.latency_p99_seconds = display.board.quantile(0.99).as_secs_f64();
    let proven = story.prove(&acknowledged, &data_dirs(&data_dir));
    proven.map_err(Failure::error)?;
    Ok(story)
}

/// Creates the directory that the operator has named. If the directory exists, it must be empty.
fn new_directory(named: &Path) -> Attempt<PathBuf> {
    std::fs::create_dir_all(named)?;
    if std::fs::read_dir(named)?.next().is_some() {
        return Err(Exit::Refused.because(
            format!("{} is not empty", named.display()),
            "name a directory that does not exist yet, or an empty one",
        ));
    }
    Ok(named.canonicalize()?)
}

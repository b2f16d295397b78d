//! The demonstration around a real mysqld: three member processes of this program, one of them with a
//! mysqld as its child, clients that write by SQL, and members killed with SIGKILL.

mod script;
mod stage;

use std::path::Path;
use std::time::Instant;

use binlog_format::gtid::GtidSet;
use testkit::mysql_tree::{MysqlTree, Origin, find_on_path, installed_tree};

use crate::demo::mysql::stage::Stage;
use crate::demo::options::DemoOptions;
use crate::demo::proof;
use crate::demo::screen::Screen;
use crate::demo::story::Story;
use crate::terminal::{Exit, Failure};

/// Plays the demonstration and judges it.
///
/// # Errors
/// When there is no mysqld, or something that it waits for does not come about.
pub(super) async fn demonstrate(options: &DemoOptions, data_dir: &Path) -> Result<Story, Failure> {
    let tree = tree().map_err(|why| {
        Failure::new(
            Exit::Refused,
            format!("{why:#}"),
            "set MYSQLD=/path/to/mysqld, or run `cargo xtask mysql` in a checkout; `witness demo` without --mysql \
             needs nothing",
        )
    })?;
    let screen = Screen::open(options.silent);
    let mysqld = tree.mysqld.display();
    screen.say(&format!("using MySQL {} at {mysqld}", tree.version));
    let mut stage = Stage::set(data_dir, &tree, screen)?;
    let mut story = Story::new(data_dir);
    let drawing = {
        let picture = stage.picture.clone();
        tokio::spawn(async move { picture.draw().await })
    };
    let played = script::play(&mut stage, &mut story, options.pause).await;
    drawing.abort();
    stage.picture.screen().close();
    let outcome = played?;
    let begun = Instant::now();
    stage.stop()?;
    let seen = "first the witnesses, then db-1 with mysqld".to_owned();
    let line = story.happened(
        "everything is asked to stop (SIGTERM)",
        seen,
        begun.elapsed(),
    );
    stage.picture.screen().say(&line);
    story.commits(&stage.board);
    story.lost_total = outcome.missing_rows;
    let executed: GtidSet = outcome
        .gtid_executed
        .parse()
        .map_err(|error| Failure::error(format!("gtid_executed cannot be read: {error}")))?;
    proof::prove(&mut story, &executed, &stage.data_dirs())?;
    Ok(story)
}

/// The mysqld that the operator names, one on the PATH, or the one that `cargo xtask mysql` made.
fn tree() -> Result<MysqlTree, impl std::fmt::Display> {
    match find_on_path("mysqld") {
        Some(mysqld) if !MysqlTree::is_named() => installed_tree(&mysqld, Origin::Path),
        _ => MysqlTree::locate(),
    }
}

//! The demonstration that needs nothing but the binary: three members in one process over real gRPC on
//! loopback with real logs, and an embedded database that writes real row events.

#[cfg(test)]
mod alone;
mod primary;
mod script;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;

use crate::demo::embedded::stage::{DATABASE, Stage};
use crate::demo::options::DemoOptions;
use crate::demo::proof;
use crate::demo::screen::Screen;
use crate::demo::story::Story;
use crate::terminal::Failure;

/// Plays the demonstration and judges it.
///
/// # Errors
/// When something that it waits for does not come about.
pub(super) async fn demonstrate(
    options: &DemoOptions,
    data_dir: PathBuf,
) -> Result<Story, Failure> {
    let stage = Arc::new(Stage::set(&data_dir, Screen::open(options.silent))?);
    let mut story = Story::new(&data_dir);
    let drawing = {
        let stage = stage.clone();
        tokio::spawn(async move { stage.draw().await })
    };
    let played = script::play(&stage, &mut story, options.pause).await;
    drawing.abort();
    stage.close_screen();
    // The followers first: a leader that is left alone writes nothing more.
    for member in stage
        .members
        .iter()
        .skip(DATABASE + 1)
        .chain(stage.members.first())
    {
        member.stop().await?;
    }
    let acknowledged = played?.set();
    story.commits(&stage.board);
    let data_dirs: Vec<_> = stage
        .members
        .iter()
        .map(stage::EmbeddedMember::data_dir)
        .collect();
    proof::prove(&mut story, &acknowledged, &data_dirs)?;
    if let Some(witness) = data_dirs.get(DATABASE + 1) {
        script::replay(&mut story, witness).await?;
    }
    Ok(story)
}

//! `witness archive drill`: restores the newest base backup and all of the log behind it, looks at what came out, and removes it. For a
//! timer: a backup that nobody has restored is a hope.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use restore::point::Target;
use restore::restoring::{Archive, Restore, Restored};
use serde::Serialize;

use super::place::ReadArgs;
use super::progress::{Progress, Took};
use super::restore::{Report, ServerArgs, failure, until_a_signal};
use crate::cli::log_filter::start_log;
use crate::cli::session::block_on;
use crate::config::LoggingSettings;
use crate::terminal::{Failure, Format, print_json, print_text};

/// Arguments of `witness archive drill`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrillArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// Where it is restored for the moment; it must not be there, or be empty, and what is made in it is removed
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
/// As a restore. What was made is removed all the same.
pub(crate) fn run(args: &DrillArgs, format: Format) -> Result<(), Failure> {
    start_log(&LoggingSettings {
        json: false,
        level: "warn".to_owned(),
    })?;
    block_on(drill(args, format))
}

async fn drill(args: &DrillArgs, format: Format) -> Result<(), Failure> {
    let place = args.read.place()?;
    let archive = Archive::look(place.storage, args.read.identities()?).await;
    let archive = archive.map_err(failure)?;
    let point = archive.point(&Target::End).await.map_err(failure)?;
    let plan = archive.plan(&point, None);
    let plan = plan.map_err(|error| failure(error.into()))?;
    let directory = std::path::absolute(&args.directory)?;
    let what = Restore {
        check_tables: true,
        ..args
            .server
            .restore(directory.join("data"), directory.join("work"))
    };
    let was_there = directory.exists();
    let began = Instant::now();
    let progress = Arc::new(Progress::new(format));
    let restored = until_a_signal(&archive, &plan, &what, progress.clone()).await;
    let stages = progress.end();
    let seconds = began.elapsed().as_secs_f64();
    let removed = remove(&what, (!was_there).then_some(directory.as_path()));
    let Restored { applied, .. } = restored.map_err(failure)?;
    removed?;
    let drilled = Drilled {
        report: Report::of(&plan, &Target::End, archive.end().as_ref()),
        transactions_applied: applied,
        stages,
        seconds,
    };
    match format {
        Format::Json => print_json(&drilled),
        Format::Table => print_text(&drilled.text()),
    }
}

/// Removes what the restore has made, and the directory, where that was made, too.
fn remove(what: &Restore, made: Option<&Path>) -> std::io::Result<()> {
    for directory in [&what.data_dir, &what.work_dir] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
    }
    match made.filter(|made| made.exists()) {
        Some(made) => fs::remove_dir(made),
        None => Ok(()),
    }
}

impl Drilled {
    fn text(&self) -> String {
        let mut text = self.report.text();
        for Took { stage, seconds } in &self.stages {
            text.push_str(&format!("{stage:<14} {seconds:>8.1} s\n"));
        }
        text.push_str(&format!(
            "restored in {:.1} s with {} transactions behind the base backup; every table is sound; removed again\n",
            self.seconds, self.transactions_applied
        ));
        text
    }
}

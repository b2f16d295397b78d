//! `witness demo`: runs the demonstration and ends with its verdict.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::signals::StopSignals;
use crate::demo::{DemoOptions, demonstrate};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

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
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0, value_parser = pause)]
    pause: f64,
}

fn pause(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (0.1..=60.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("write a number of seconds from 0.1 to 60".into())
    }
}

/// Runs `witness demo`.
///
/// # Errors
/// Exit 7 when an acknowledged transaction is missing or two logs differ, 1 when the demonstration failed.
pub(crate) fn run(args: &DemoArgs, format: Format) -> Result<(), Failure> {
    let options = DemoOptions {
        mysql: args.mysql,
        data_dir: args.data_dir.clone(),
        pause: Duration::from_secs_f64(args.pause),
        silent: format == Format::Json,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let story = runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        tokio::select! {
            story = demonstrate(&options) => story,
            name = stop.next() => Err(Failure::error(format!("{name}: the demonstration was ended"))),
        }
    })?;
    match format {
        Format::Json => print_json(&story)?,
        Format::Table => print_text(&story.summary())?,
    }
    if story.ok {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Corrupt))
    }
}

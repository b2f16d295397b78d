//! `witness log follow`: shows entries as a running member writes them.

use std::time::Duration;

use binlog_store::Followed;
use serde::Serialize;

use crate::cli::log::entry_line::EntryLine;
use crate::cli::log::target::{From, TargetArgs, failure, open};
use crate::terminal::{Failure, Format, print_json_line, print_text};

/// Arguments of `witness log follow`.
#[derive(Debug, clap::Args)]
pub(crate) struct FollowArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Begin at this entry: an index, or an op id such as 3.1042; without it, at the end
    #[arg(long)]
    from: Option<From>,
    /// End after so many entries
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct TruncatedLine {
    /// The last remaining entry.
    truncated_after: Option<String>,
}

/// How often the log is checked.
const LOOK: Duration = Duration::from_millis(200);
/// Entries read before they are printed.
const AT_ONCE: usize = 1024;

/// Runs `witness log follow`, until interrupted or its reader has closed the pipe.
///
/// # Errors
/// Exit 7 where the log is damaged.
pub(super) fn run(args: &FollowArgs, format: Format) -> Result<(), Failure> {
    let directory = open(&args.target.path()?)?;
    let from = match args.from {
        Some(from) => from.0,
        None => {
            let files = directory.files().map_err(|error| failure(&error))?;
            let last = files.iter().rev().find_map(|file| file.last);
            last.map_or(0, |last| last.index + 1)
        }
    };
    if format == Format::Table {
        print_text(&format!("{}\n", EntryLine::titles()))?;
    }
    let mut follower = directory.follow(from);
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let happened = follower
            .poll(AT_ONCE.min(left))
            .map_err(|error| failure(&error))?;
        if happened.is_empty() {
            std::thread::sleep(LOOK);
        }
        for happened in happened {
            if matches!(happened, Followed::Entry(_)) {
                left -= 1;
            }
            show(&happened, format)?;
        }
    }
    Ok(())
}

fn show(happened: &Followed, format: Format) -> Result<(), Failure> {
    match (happened, format) {
        (Followed::Entry(record), Format::Table) => {
            print_text(&format!("{}\n", EntryLine::new(record).text()))
        }
        (Followed::Entry(record), Format::Json) => print_json_line(&EntryLine::new(record)),
        (Followed::Truncated { keep }, format) => {
            let keep = keep.map(|keep| keep.to_string());
            match format {
                Format::Json => print_json_line(&TruncatedLine {
                    truncated_after: keep,
                }),
                Format::Table => print_text(&format!(
                    "-- truncated: the entries after {}\n",
                    keep.as_deref().unwrap_or("the begin of what was shown")
                )),
            }
        }
    }
}

//! `witness log show`: the entries of a log, and with `--events` the events in them.

use crate::cli::log::entry_line::{EntryLine, EventLine};
use crate::cli::log::target::{From, TargetArgs, failure, open};
use crate::terminal::{Failure, Format, print_json_line, print_text};

/// Arguments of `witness log show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Begin at this entry: an index, or an op id such as 3.1042
    #[arg(long, default_value = "0")]
    from: From,
    /// Show so many entries at most
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Show the events of the entries, as SHOW BINLOG EVENTS does
    #[arg(long)]
    events: bool,
}

/// Runs `witness log show`.
///
/// # Errors
/// Exit 7 where the log is damaged; what stands before it is shown.
pub(super) fn run(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    let directory = open(&args.target.path()?)?;
    let entries = directory
        .entries_from(args.from.0)
        .map_err(|error| failure(&error))?;
    if format == Format::Table {
        let titles = if args.events {
            EventLine::titles()
        } else {
            EntryLine::titles()
        };
        print_text(&format!("{titles}\n"))?;
    }
    for record in entries.take(args.limit.unwrap_or(usize::MAX)) {
        let record = record.map_err(|error| failure(&error))?;
        if !args.events {
            let line = EntryLine::new(&record);
            match format {
                Format::Table => print_text(&format!("{}\n", line.text()))?,
                Format::Json => print_json_line(&line)?,
            }
            continue;
        }
        let entry = directory.load(&record).map_err(|error| failure(&error))?;
        for line in EventLine::all_of(&record, &entry) {
            match format {
                Format::Table => print_text(&format!("{}\n", line.text()))?,
                Format::Json => print_json_line(&line)?,
            }
        }
    }
    Ok(())
}

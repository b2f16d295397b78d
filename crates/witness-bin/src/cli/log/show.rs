//! `witness log show`: the entries of a log, and with `--events` the events in them.

use crate::cli::log::entry_line::{EntryLine, EventLine};
use crate::cli::log::mysqlds_log::MysqldsLog;
use crate::cli::log::target::{From, Log, TargetArgs, failure};
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
/// Exit 7 where the log is damaged; earlier entries are shown.
pub(super) fn run(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    let directory = match args.target.log()? {
        Log::Members(directory) => directory,
        Log::Mysqlds(log) => return of_mysqld(&log, args, format),
    };
    let entries = directory
        .entries_from(args.from.0)
        .map_err(|error| failure(&error))?;
    print_titles(args, format)?;
    for record in entries.take(args.limit.unwrap_or(usize::MAX)) {
        let record = record.map_err(|error| failure(&error))?;
        if !args.events {
            print_entry(&EntryLine::new(&record), format)?;
            continue;
        }
        let entry = directory.load(&record).map_err(|error| failure(&error))?;
        for line in EventLine::all_of(&record, &entry) {
            print_event(&line, format)?;
        }
    }
    Ok(())
}

/// Shows the transactions of mysqld's own binlog, or all of its events.
fn of_mysqld(log: &MysqldsLog, args: &ShowArgs, format: Format) -> Result<(), Failure> {
    if args.from.0 > 0 {
        return Err(log.has_no_op_ids("--from"));
    }
    print_titles(args, format)?;
    let mut left = args.limit.unwrap_or(usize::MAX);
    for file in log.files() {
        let mut file = file?;
        while left > 0 {
            let Some(read) = file.next()? else { break };
            if args.events {
                print_event(&read.event_line(file.name()), format)?;
            }
            if let Some(line) = read.entry_line(file.name()) {
                left -= 1;
                if !args.events {
                    print_entry(&line, format)?;
                }
            }
        }
    }
    Ok(())
}

fn print_titles(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => Ok(()),
        Format::Table if args.events => print_text(&format!("{}\n", EventLine::titles())),
        Format::Table => print_text(&format!("{}\n", EntryLine::titles())),
    }
}

fn print_entry(line: &EntryLine, format: Format) -> Result<(), Failure> {
    match format {
        Format::Table => print_text(&format!("{}\n", line.text())),
        Format::Json => print_json_line(line),
    }
}

fn print_event(line: &EventLine, format: Format) -> Result<(), Failure> {
    match format {
        Format::Table => print_text(&format!("{}\n", line.text())),
        Format::Json => print_json_line(line),
    }
}

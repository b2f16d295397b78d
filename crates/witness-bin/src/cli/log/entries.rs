//! `witness log show`, `find` and `follow`: print entries of a log, or with `--events` the events in these entries.

use std::time::Duration;

use binlog_format::gtid::Gtid;
use binlog_store::{Followed, Sought};
use raft_types::OpId;
use serde_json::json;

use crate::cli::log::entry_line::{EntryLine, EventLine, Line};
use crate::cli::log::target::{From, Log, MysqldsLog, TargetArgs, failure, open};
use crate::terminal::{Attempt, Failure, Format, print_json, print_json_line, print_text};

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
/// Exit 7 if the log is damaged. The entries before the damage are shown.
pub(super) fn show(args: &ShowArgs, format: Format) -> Attempt {
    let directory = match args.target.log()? {
        Log::Members(directory) => directory,
        Log::Mysqlds(log) => return show_mysqlds(&log, args, format),
    };
    let entries = directory.entries_from(args.from.0).map_err(failure)?;
    print_titles(args, format)?;
    for record in entries.take(args.limit.unwrap_or(usize::MAX)) {
        let record = record.map_err(failure)?;
        if !args.events {
            EntryLine::new(&record).print(format)?;
            continue;
        }
        let entry = directory.load(&record).map_err(failure)?;
        for line in EventLine::all_of(&record, &entry) {
            line.print(format)?;
        }
    }
    Ok(())
}

/// Shows the transactions of mysqld's own binlog, or all events with `--events`.
fn show_mysqlds(log: &MysqldsLog, args: &ShowArgs, format: Format) -> Attempt {
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
                read.event_line(&file.name).print(format)?;
            }
            if let Some(line) = read.entry_line(&file.name) {
                left -= 1;
                if !args.events {
                    line.print(format)?;
                }
            }
        }
    }
    Ok(())
}

fn print_titles(args: &ShowArgs, format: Format) -> Attempt {
    match args.events {
        true => EventLine::print_titles(format),
        false => EntryLine::print_titles(format),
    }
}

/// Arguments of `witness log find`.
#[derive(Debug, clap::Args)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    sought: SoughtArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct SoughtArgs {
    /// The transaction with this GTID, as in 3e11fa47-71ca-11e1-9e33-c80aa9429562:23
    #[arg(long)]
    gtid: Option<Gtid>,
    /// The entry with this op id, as in 3.1042
    #[arg(long, value_name = "TERM.INDEX")]
    op_id: Option<OpId>,
    /// The entry with this index
    #[arg(long)]
    index: Option<u64>,
}

/// Runs `witness log find`.
///
/// # Errors
/// Exit 1 if the log does not contain the entry, 7 if the log is damaged before it.
pub(super) fn find(args: &FindArgs, format: Format) -> Attempt {
    let SoughtArgs { gtid, op_id, index } = &args.sought;
    let (sought, name) = match (gtid, op_id, index) {
        (Some(gtid), _, _) => (Sought::Gtid(*gtid), format!("the transaction {gtid}")),
        (None, Some(op_id), _) => (Sought::OpId(*op_id), format!("the entry {op_id}")),
        (None, None, index) => {
            let index = index.unwrap_or_default();
            (
                Sought::Index(index),
                format!("an entry with the index {index}"),
            )
        }
    };
    let (path, found) = match args.target.log()? {
        Log::Members(directory) => {
            let found = directory.find(&sought).map_err(failure)?;
            let line = found.as_ref().map(EntryLine::new);
            (directory.path().to_owned(), line)
        }
        Log::Mysqlds(log) => {
            let Sought::Gtid(gtid) = &sought else {
                return Err(log.has_no_op_ids("--op-id and --index"));
            };
            (log.path.clone(), log.find(gtid)?)
        }
    };
    let Some(line) = found else {
        let path = path.display();
        return Err(Failure::error(format!("{path} does not have {name}")));
    };
    match format {
        Format::Table => {
            EntryLine::print_titles(format)?;
            line.print(format)
        }
        Format::Json => print_json(&line),
    }
}

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

/// Interval between checks for new entries.
const LOOK: Duration = Duration::from_millis(200);
/// Entries read before they are printed.
const AT_ONCE: usize = 1024;

/// Runs `witness log follow`, until it is interrupted or the reader of its output closes the pipe.
///
/// # Errors
/// Exit 7 if the log is damaged.
pub(super) fn follow(args: &FollowArgs, format: Format) -> Attempt {
    let directory = open(&args.target.path()?)?;
    let from = match args.from {
        Some(from) => from.0,
        None => {
            let files = directory.files().map_err(failure)?;
            let last = files.iter().rev().find_map(|file| file.last);
            last.map_or(0, |last| last.index + 1)
        }
    };
    EntryLine::print_titles(format)?;
    let mut follower = directory.follow(from);
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let happened = follower.poll(AT_ONCE.min(left)).map_err(failure)?;
        if happened.is_empty() {
            std::thread::sleep(LOOK);
        }
        for happened in happened {
            match happened {
                Followed::Entry(record) => {
                    left -= 1;
                    EntryLine::new(&record).print(format)?;
                }
                Followed::Truncated { keep } => print_truncated(keep, format)?,
            }
        }
    }
    Ok(())
}

fn print_truncated(keep: Option<OpId>, format: Format) -> Attempt {
    let keep = keep.map(|keep| keep.to_string());
    match format {
        // `keep` is the last entry that remains.
        Format::Json => print_json_line(&json!({ "truncated_after": keep })),
        Format::Table => print_text(&format!(
            "-- truncated: the entries after {}\n",
            keep.as_deref().unwrap_or("the begin of what was shown")
        )),
    }
}

//! `witness log list`: the files of a log.

use binlog_store::FileListing;
use serde::Serialize;

use crate::cli::log::entry_line::time_text;
use crate::cli::log::target::{TargetArgs, failure, open};
use crate::terminal::{Exit, Failure, Format, Table, print};

#[derive(Debug, Serialize)]
struct FileLine {
    log_name: String,
    file_size: u64,
    entries: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// UTC, of the first and the last entry that has a time.
    first_time: Option<String>,
    last_time: Option<String>,
    /// Whether its last entry ends it.
    closed: bool,
    /// The GTIDs of its own transactions.
    gtid_set: String,
    /// What the files before it hold.
    previous_gtid_set: String,
    /// What is wrong with it.
    fault: Option<String>,
}

impl FileLine {
    fn new(file: &FileListing) -> Self {
        Self {
            log_name: file.file.name(),
            file_size: file.size,
            entries: file.entries,
            first_op_id: file.first.map(|op_id| op_id.to_string()),
            last_op_id: file.last.map(|op_id| op_id.to_string()),
            first_time: file.times.and_then(|(first, _)| time_text(first)),
            last_time: file.times.and_then(|(_, last)| time_text(last)),
            closed: file.closed,
            gtid_set: file.gtids.to_string().replace('\n', ""),
            previous_gtid_set: file.previous_gtids.to_string().replace('\n', ""),
            fault: file.fault.as_ref().map(ToString::to_string),
        }
    }
}

/// Runs `witness log list`.
///
/// # Errors
/// Exit 7 when a file is damaged.
pub(super) fn run(args: &TargetArgs, format: Format) -> Result<(), Failure> {
    let directory = open(&args.path()?)?;
    let files = directory.files().map_err(|error| failure(&error))?;
    let lines: Vec<_> = files.iter().map(FileLine::new).collect();
    print(format, &lines, || table(&lines))?;
    let last = files.last().map(|file| file.file);
    let damaged = files.iter().find_map(|file| {
        let fault = file.fault.as_ref()?;
        // The end of the last file may be just being written.
        let unfinished = Some(file.file) == last && fault.kind.is_cut_off();
        (!unfinished).then(|| format!("{}: {fault}", file.file.name()))
    });
    match damaged {
        None => Ok(()),
        Some(what) => Err(Failure::new(
            Exit::Corrupt,
            what,
            "`witness log verify` says more",
        )),
    }
}

fn table(lines: &[FileLine]) -> Table {
    let mut table = Table::new(&[
        "Log_name",
        "File_size",
        "Entries",
        "First_op_id",
        "Last_op_id",
        "Last_time",
        "Closed",
        "Gtid_set",
    ]);
    for line in lines {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        table.row(vec![
            line.log_name.clone(),
            line.file_size.to_string(),
            line.entries.to_string(),
            text(&line.first_op_id),
            text(&line.last_op_id),
            text(&line.last_time),
            if line.closed {
                "yes".into()
            } else {
                "no".into()
            },
            line.gtid_set.clone(),
        ]);
    }
    table
}

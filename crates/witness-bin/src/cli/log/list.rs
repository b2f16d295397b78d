//! `witness log list`: the files of a log.

use binlog_format::gtid::GtidSet;
use binlog_store::FileListing;
use serde::Serialize;

use crate::cli::log::entry_line::time_text;
use crate::cli::log::mysqlds_log::{MysqldsLog, ReadError};
use crate::cli::log::target::{Log, TargetArgs, failure};
use crate::terminal::{Exit, Failure, Format, Table, print};

#[derive(Debug, Default, Serialize)]
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
    /// The GTIDs of the files before it.
    previous_gtid_set: String,
    /// Its fault, if any.
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
    let directory = match args.log()? {
        Log::Members(directory) => directory,
        Log::Mysqlds(log) => return of_mysqld(&log, format),
    };
    let files = directory.files().map_err(failure)?;
    let lines: Vec<_> = files.iter().map(FileLine::new).collect();
    print(format, &lines, || table(&lines))?;
    let last = files.last().map(|file| file.file);
    let damaged = files.iter().find_map(|file| {
        let fault = file.fault.as_ref()?;
        // The end of the last file may currently be written.
        let unfinished = Some(file.file) == last && fault.kind.is_cut_off();
        (!unfinished).then(|| format!("{}: {fault}", file.file.name()))
    });
    damage_is_none(damaged)
}

fn damage_is_none(damage: Option<String>) -> Result<(), Failure> {
    let advice = "`witness log verify` says more";
    damage.map_or(Ok(()), |what| {
        Err(Failure::new(Exit::Corrupt, what, advice))
    })
}

/// Lists the files of mysqld's own binlog, without op ids.
fn of_mysqld(log: &MysqldsLog, format: Format) -> Result<(), Failure> {
    let (mut lines, mut damaged) = (Vec::new(), None);
    for file in log.files() {
        let mut file = file?;
        let mut line = FileLine {
            log_name: file.name.clone(),
            file_size: file.size,
            ..FileLine::default()
        };
        let mut gtids = GtidSet::new();
        loop {
            match file.next() {
                Ok(Some(read)) => {
                    let Some(transaction) = read.transaction() else {
                        continue;
                    };
                    line.entries += 1;
                    gtids.add(transaction.gtid);
                    line.last_time = time_text(transaction.timestamp);
                    line.first_time = line.first_time.or_else(|| line.last_time.clone());
                }
                Ok(None) => break,
                Err(ReadError::Damaged(what)) => {
                    line.fault = Some(what.clone());
                    damaged.get_or_insert(what);
                    break;
                }
                Err(ReadError::Unreadable(why)) => return Err(Failure::error(why)),
            }
        }
        line.closed = !file.in_use;
        line.gtid_set = gtids.to_string().replace('\n', "");
        line.previous_gtid_set = file.previous_gtids.to_string().replace('\n', "");
        line.fault = line.fault.or(file.unfinished);
        lines.push(line);
    }
    print(format, &lines, || table(&lines))?;
    damage_is_none(damaged)
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
            if line.closed { "yes" } else { "no" }.into(),
            line.gtid_set.clone(),
        ]);
    }
    table
}

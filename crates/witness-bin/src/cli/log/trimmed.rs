//! `witness log trimmed`: lists the transactions trimmed from the member's own log and from its mysqld's binlog. The bytes are kept; only
//! an operator removes them.

use std::io;
use std::path::{Path, PathBuf};

use binlog_format::gtid::GtidSet;
use binlog_store::{CutTail, DiskFileSystem};
use mysqld_server::tail_trim::TrimmedTail;
use serde::Serialize;

use super::entry_line::time_text;
use crate::cli::config_args::ConfigArgs;
use crate::terminal::{Failure, Format, Table, print};

/// Arguments of `witness log trimmed`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrimmedArgs {
    /// A member's data directory; without it, `data_dir` of the configuration
    data_dir: Option<PathBuf>,
    /// Configuration file to take `data_dir` from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// One trimmed tail.
#[derive(Debug, Serialize)]
struct TailLine {
    /// `log`: the member's own; `mysqld`: the binlog of its mysqld.
    of: &'static str,
    /// Time of the trim, in seconds since 1970.
    at: u64,
    time: Option<String>,
    /// The trimmed file.
    from: String,
    /// Its start in that file.
    offset: u64,
    bytes: u64,
    /// Number of trimmed GTIDs; none where their text cannot be read.
    transactions: Option<u64>,
    gtid_set: String,
    reason: String,
    /// The file with the trimmed bytes.
    kept_in: PathBuf,
}

/// Runs `witness log trimmed`.
///
/// # Errors
/// Exit 1 when kept files cannot be read.
pub(super) fn run(args: &TrimmedArgs, format: Format) -> Result<(), Failure> {
    let data_dir = match &args.data_dir {
        Some(path) => path.clone(),
        None => ConfigArgs::of_file(args.config.clone()).data_dir()?,
    };
    let lines = lines(&data_dir)
        .map_err(|error| Failure::error(format!("what was trimmed cannot be read: {error}")))?;
    print(format, &lines, || table(&lines))
}

fn lines(data_dir: &Path) -> io::Result<Vec<TailLine>> {
    if !data_dir.is_dir() {
        let what = format!("there is no data directory {}", data_dir.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let mut lines = Vec::new();
    for tail in CutTail::list(&DiskFileSystem, data_dir)? {
        // Each part is a line; the GTIDs are those of the whole tail.
        for part in &tail.parts {
            lines.push(TailLine {
                of: "log",
                at: tail.at,
                time: time(tail.at),
                from: part.file.name(),
                offset: part.offset,
                bytes: part.bytes,
                transactions: count(&tail.gtids),
                gtid_set: tail.gtids.clone(),
                reason: tail.reason.clone(),
                kept_in: data_dir.join("trimmed").join(&part.kept_as),
            });
        }
    }
    let directory = TrimmedTail::directory(data_dir);
    lines.extend(
        TrimmedTail::list(data_dir)?
            .into_iter()
            .map(|tail| TailLine {
                of: "mysqld",
                at: tail.at,
                time: time(tail.at),
                from: tail.from.display().to_string(),
                offset: tail.offset.0,
                bytes: tail.bytes,
                transactions: count(&tail.gtids),
                gtid_set: tail.gtids,
                reason: tail.reason,
                kept_in: directory.join(tail.kept_as),
            }),
    );
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

fn time(at: u64) -> Option<String> {
    u32::try_from(at).ok().and_then(time_text)
}

fn count(gtids: &str) -> Option<u64> {
    let set: GtidSet = gtids.parse().ok()?;
    u64::try_from(set.count()).ok()
}

fn table(lines: &[TailLine]) -> Table {
    let mut table = Table::new(&[
        "Of",
        "Time",
        "From",
        "Offset",
        "Bytes",
        "Transactions",
        "Gtid_set",
        "Kept_in",
    ]);
    for line in lines {
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        table.row(vec![
            line.of.into(),
            text(line.time.clone()),
            line.from.clone(),
            line.offset.to_string(),
            line.bytes.to_string(),
            text(line.transactions.map(|count| count.to_string())),
            line.gtid_set.replace('\n', ""),
            line.kept_in.display().to_string(),
        ]);
    }
    table
}

//! `witness log find`: one entry, by its GTID, its op id or its index.

use binlog_format::gtid::Gtid;
use binlog_store::Sought;
use raft_types::OpId;

use crate::cli::log::entry_line::EntryLine;
use crate::cli::log::target::{Log, TargetArgs, failure};
use crate::terminal::{Failure, Format, print_json, print_text};

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
/// Exit 1 when the log does not have it, 7 when the log is damaged before it.
pub(super) fn run(args: &FindArgs, format: Format) -> Result<(), Failure> {
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
            let found = directory.find(&sought).map_err(|error| failure(&error))?;
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
        Format::Table => print_text(&format!("{}\n{}\n", EntryLine::titles(), line.text())),
        Format::Json => print_json(&line),
    }
}

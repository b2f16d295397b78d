//! `witness log flush`: ends the current file of the ring's log on every member and begins the next.

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::OpId;
use serde::Serialize;

use crate::cli::session::{Patience, RingArgs, Session, another_answer, block_on};
use crate::terminal::{Failure, Format, print_json, print_text};

/// Arguments of `witness log flush`.
#[derive(Debug, clap::Args)]
pub(crate) struct FlushArgs {
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness log flush --output json`.
#[derive(Debug, Serialize)]
struct Document {
    entry: OpId,
    /// The next file.
    file: String,
}

/// Runs `witness log flush`.
///
/// # Errors
/// Exit 3 without a leader, 5 when its result is unknown.
pub(crate) fn run(args: &FlushArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, _) = session.ring().await?;
        let (command, until) = (OperatorCommand::FlushLog, args.patience.until());
        let document = match session.order(&report, &command, until, format).await? {
            CommandResult::Flushed { entry, file } => Document { entry, file },
            other => return Err(another_answer(&other)),
        };
        match format {
            Format::Json => print_json(&document),
            Format::Table => print_text(&format!(
                "the log was rotated everywhere by entry {}; it continues in {}\n",
                document.entry, document.file
            )),
        }
    })
}

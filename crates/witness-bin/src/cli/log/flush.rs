//! `witness log flush`: ends the current file of the ring's log on every member and begins the next.

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::OpId;
use serde::Serialize;

use crate::cli::session::{OrderArgs, another_answer};
use crate::terminal::{Failure, Format, print};

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
pub(crate) fn run(args: &OrderArgs, format: Format) -> Result<(), Failure> {
    args.session(format, async |ring| {
        let document = match ring.order(OperatorCommand::FlushLog).await? {
            CommandResult::Flushed { entry, file } => Document { entry, file },
            other => return Err(another_answer(&other)),
        };
        print(format, &document, || {
            format!(
                "the log was rotated everywhere by entry {}; it continues in {}\n",
                document.entry, document.file
            )
        })
    })
}

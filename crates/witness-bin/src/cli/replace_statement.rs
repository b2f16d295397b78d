//! `witness replace-statement`: executes another statement instead of one at which a follower is stopped because no server can execute it.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::session::{Consent, RingArgs, Session, another_answer, block_on};
use crate::config::duration_of;
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness replace-statement`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceStatementArgs {
    /// Name or number of the member whose follower is stopped
    member: String,
    /// The transaction at which it is stopped, as `witness status` shows it
    #[arg(long)]
    gtid: String,
    /// The statement to execute under that GTID, with the names of schemas in it
    #[arg(long, value_name = "SQL")]
    statement: String,
    /// How long to wait for the end, e.g. 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness replace-statement --output json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    name: &'a str,
    gtid: &'a str,
    follows: bool,
}

/// Runs `witness replace-statement`.
///
/// # Errors
/// Exit 4 when the follower is not stopped at this transaction, 1 when mysqld refuses the statement or does not follow after it, 5 when its
/// result is unknown.
pub(crate) fn run(args: &ReplaceStatementArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (_, directory) = session.ring().await?;
        let place = directory.find(&args.member)?.clone();
        let (name, gtid, statement) = (&place.name, &args.gtid, &args.statement);
        args.consent.to(&format!(
            "Execute this at the mysqld of `{name}` in the place of {gtid}? Its data differ from those of other members, unless they \
             execute the same: {statement}"
        ))?;
        let command = OperatorCommand::ReplaceStatement {
            gtid: gtid.clone(),
            statement: statement.clone(),
        };
        let until = Instant::now() + args.timeout;
        let operator = &session.operator;
        let done = operator.at(&place, &directory, &command, until, |_| {});
        let follows = match done.await? {
            CommandResult::StatementReplaced { follows } => follows,
            other => return Err(another_answer(&other)),
        };
        match format {
            Format::Json => print_json(&Document {
                name,
                gtid,
                follows,
            })?,
            Format::Table => print_text(&format!(
                "The mysqld of `{name}` has executed it in the place of {gtid}\n"
            ))?,
        }
        match follows {
            true => Ok(()),
            false => Err(Failure::new(
                Exit::Error,
                format!("the mysqld of `{name}` does not follow yet"),
                "`witness status` says what it waits for",
            )),
        }
    })
}

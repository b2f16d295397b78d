//! `witness pause` and `witness resume`: disable and enable automatic failover.

use std::time::Duration;

use consensus::RingPause;
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, OpId, UnixSeconds};
use ring_admin::PauseRequest;
use serde::Serialize;

use super::session::{Patience, RingArgs, Session, another_answer, block_on};
use crate::config::duration_of;
use crate::operator::{Directory, operator_name};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness pause`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// When the pause ends, as in 30m or 2h; without it, `witness resume` ends it
    #[arg(long = "for", value_name = "DURATION", value_parser = duration_of)]
    length: Option<Duration>,
    /// Reason, shown in `witness status`
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
}

/// Arguments of `witness resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of both with `--output json`.
#[derive(Debug, Serialize)]
struct Document {
    paused: bool,
    primary: MemberId,
    name: String,
    since: UnixSeconds,
    until: Option<UnixSeconds>,
    by: String,
    reason: String,
    /// The log entry with the change.
    entry: OpId,
}

impl Document {
    fn new(paused: bool, of: RingPause, entry: OpId, directory: &Directory) -> Self {
        Self {
            paused,
            primary: of.primary,
            name: directory
                .get(of.primary)
                .map_or_else(|| of.primary.to_string(), |place| place.name.clone()),
            since: of.pause.since,
            until: of.pause.until,
            by: of.pause.by,
            reason: of.pause.reason,
            entry,
        }
    }
}

/// Runs `witness pause`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
pub(crate) fn pause(args: &PauseArgs, format: Format) -> Result<(), Failure> {
    if args.length.is_some_and(|length| length.as_secs() == 0) {
        return Err(Failure::new(
            Exit::Usage,
            "--for is shorter than a second",
            "give a duration such as 30m, or leave it out",
        ));
    }
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let command = OperatorCommand::Pause {
            request: PauseRequest {
                for_seconds: args.length.map(|length| length.as_secs()),
                by: operator_name(),
                reason: args.reason.clone(),
            },
        };
        let until = args.patience.until();
        let document = match session.order(&report, &command, until, format).await? {
            CommandResult::Paused { paused, entry } => {
                Document::new(true, paused, entry, &directory)
            }
            other => return Err(another_answer(&other)),
        };
        match format {
            Format::Json => print_json(&document),
            Format::Table => print_text(&format!(
                "maintenance mode: no automatic failover, the primary stays on `{}`, {}\n",
                document.name,
                match args.length {
                    Some(length) => format!("for {} s", length.as_secs()),
                    None => "until `witness resume`".to_owned(),
                }
            )),
        }
    })
}

/// Runs `witness resume`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is not paused, 5 when its result is unknown.
pub(crate) fn resume(args: &ResumeArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let (command, until) = (OperatorCommand::Resume, args.patience.until());
        let document = match session.order(&report, &command, until, format).await? {
            CommandResult::Resumed { paused, entry } => {
                Document::new(false, paused, entry, &directory)
            }
            other => return Err(another_answer(&other)),
        };
        match format {
            Format::Json => print_json(&document),
            Format::Table => print_text(
                "failover is not paused any more; if the primary is gone, another one takes over now\n",
            ),
        }
    })
}

//! `witness members remove`: removes a member.

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, OpId};
use serde::Serialize;

use crate::cli::session::{
    Consent, DryRun, Patience, RingArgs, Session, another_answer, block_on, would_be_done,
};
use crate::terminal::{Failure, Format, print_json, print_text};

/// Arguments of `witness members remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Name or number of the member
    member: String,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness members remove --output json`.
#[derive(Debug, Serialize)]
struct Document {
    member: MemberId,
    name: String,
    /// The log entry with the removal.
    entry: OpId,
}

/// Runs `witness members remove`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
pub(crate) fn run(args: &RemoveArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let place = directory.find(&args.member)?.clone();
        if !args.dry_run.wanted() {
            args.consent.to(&format!(
                "Remove `{}` (member {}, region {}) from the ring? Its data directory is of no use to the ring afterwards.",
                place.name, place.id, place.region
            ))?;
        }
        let command = OperatorCommand::RemoveMember { member: place.id };
        let command = args.dry_run.of(command);
        let until = args.patience.until();
        let entry = match session.order(&report, &command, until, format).await? {
            CommandResult::Removed(entry) => entry,
            CommandResult::WouldBeDone => {
                let would = format!("`{}` would be out of the ring", place.name);
                return would_be_done(place.id, &place.name, &would, format);
            }
            other => return Err(another_answer(&other)),
        };
        match format {
            Format::Json => print_json(&Document {
                member: place.id,
                name: place.name.clone(),
                entry,
            }),
            Format::Table => print_text(&format!(
                "`{}` is out of the ring since entry {entry}; stop its process, and remove it from [[members]] in every \
                 member's file\n",
                place.name
            )),
        }
    })
}

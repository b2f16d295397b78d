//! `witness switchover`: gives the leadership to a named member, phase by phase.

use consensus::Promoted;
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::MemberId;
use serde::Serialize;

use crate::cli::session::{
    Consent, Patience, RingArgs, Session, another_answer, block_on, milliseconds,
};
use crate::operator::MemberAddress;
use crate::terminal::{Failure, Format, print_json, print_text};

/// Arguments of `witness switchover`.
#[derive(Debug, clap::Args)]
pub(crate) struct SwitchoverArgs {
    /// Name or number of the member that is to lead
    member: String,
    /// Also when its mysqld does not follow, or is far behind: clients wait until it has caught up
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// What `witness switchover --output json` prints.
#[derive(Debug, Serialize)]
struct Document {
    leader: MemberId,
    name: String,
    region: String,
    term: u64,
    seconds: f64,
    phases: Vec<PhaseTime>,
}

#[derive(Debug, Serialize)]
struct PhaseTime {
    phase: &'static str,
    seconds: f64,
}

/// Runs `witness switchover`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its end is not known, 1 when another one leads.
pub(crate) fn run(args: &SwitchoverArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let place = directory.find(&args.member)?.clone();
        args.consent.to(&format!(
            "Make `{}` in region {} the primary? Writes wait for a moment, and go there afterwards.",
            place.name, place.region
        ))?;
        let command = OperatorCommand::Promote {
            to: place.id,
            force: args.force,
        };
        let until = args.patience.until();
        match session.order(&report, &command, until, format).await? {
            CommandResult::Promoted(promoted) => show(&place, &promoted, format),
            other => Err(another_answer(&other)),
        }
    })
}

fn show(place: &MemberAddress, promoted: &Promoted, format: Format) -> Result<(), Failure> {
    let phases = promoted.phases.iter().map(|(phase, took)| PhaseTime {
        phase: phase.name(),
        seconds: took.as_secs_f64(),
    });
    let document = Document {
        leader: promoted.leader,
        name: place.name.clone(),
        region: place.region.to_string(),
        term: promoted.term.0,
        seconds: promoted
            .phases
            .iter()
            .map(|(_, took)| took.as_secs_f64())
            .sum(),
        phases: phases.collect(),
    };
    match format {
        Format::Json => print_json(&document),
        Format::Table => print_text(&format!(
            "`{}` leads in term {}, after {}\n",
            document.name,
            document.term,
            milliseconds(document.seconds)
        )),
    }
}

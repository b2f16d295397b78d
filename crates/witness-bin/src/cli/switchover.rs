//! `witness switchover`: transfers the leadership to a named member, phase by phase.

use consensus::{Promoted, ScheduledSwitchover};
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, UnixSeconds};
use serde::Serialize;

use crate::cli::session::{
    Consent, DryRun, Patience, RingArgs, Session, another_answer, block_on, milliseconds,
    would_be_done,
};
use crate::operator::{Directory, MemberAddress};
use crate::terminal::{Failure, Format, print_json, print_text};
use crate::text::times::{moment, time_of_day};

/// Arguments of `witness switchover`.
#[derive(Debug, clap::Args)]
pub(crate) struct SwitchoverArgs {
    /// Name or number of the member that is to lead
    #[arg(required_unless_present = "cancel")]
    member: Option<String>,
    /// Not now but from this time on, such as 2026-11-24T03:00:00Z: whoever leads then carries it out
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with_all = ["force", "dry_run"])]
    at: Option<UnixSeconds>,
    /// Take the scheduled switchover back
    #[arg(long, conflicts_with_all = ["member", "at", "force", "dry_run"])]
    cancel: bool,
    /// Also when its mysqld does not follow, or is far behind: clients wait until it has caught up
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness switchover --output json`.
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
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown, 1 when another member leads.
pub(crate) fn run(args: &SwitchoverArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let until = args.patience.until();
        let Some(member) = &args.member else {
            let command = OperatorCommand::CancelSwitchover;
            return match session.order(&report, &command, until, format).await? {
                CommandResult::Unscheduled { switchover, .. } => {
                    show_schedule(&switchover, &directory, false, format)
                }
                other => Err(another_answer(&other)),
            };
        };
        let place = directory.find(member)?.clone();
        if let Some(at) = args.at {
            let command = OperatorCommand::ScheduleSwitchover { to: place.id, at };
            return match session.order(&report, &command, until, format).await? {
                CommandResult::Scheduled { switchover, .. } => {
                    show_schedule(&switchover, &directory, true, format)
                }
                other => Err(another_answer(&other)),
            };
        }
        if !args.dry_run.wanted() {
            args.consent.to(&format!(
                "Make `{}` in region {} the primary? Writes wait for a moment, and go there afterwards.",
                place.name, place.region
            ))?;
        }
        let command = OperatorCommand::Promote {
            to: place.id,
            force: args.force,
        };
        let command = args.dry_run.of(command);
        match session.order(&report, &command, until, format).await? {
            CommandResult::WouldBeDone => {
                let would = format!("`{}` would be made the primary", place.name);
                would_be_done(place.id, &place.name, &would, format)
            }
            CommandResult::Promoted(promoted) => show(&place, &promoted, format),
            other => Err(another_answer(&other)),
        }
    })
}

/// Output of `witness switchover --at` and `--cancel` with `--output json`.
#[derive(Debug, Serialize)]
struct Schedule<'a> {
    scheduled: bool,
    to: MemberId,
    name: String,
    at: String,
    by: &'a str,
}

fn show_schedule(
    switchover: &ScheduledSwitchover,
    directory: &Directory,
    scheduled: bool,
    format: Format,
) -> Result<(), Failure> {
    let document = Schedule {
        scheduled,
        to: switchover.to,
        name: directory
            .get(switchover.to)
            .map_or_else(String::new, |place| place.name.clone()),
        at: time_of_day(switchover.at.0.saturating_mul(1000)),
        by: &switchover.by,
    };
    match format {
        Format::Json => print_json(&document),
        Format::Table if scheduled => print_text(&format!(
            "`{}` is to lead from {} on; whoever leads then gives it the leadership\n",
            document.name, document.at
        )),
        Format::Table => print_text(&format!(
            "the switchover to `{}` that was scheduled for {} is cancelled\n",
            document.name, document.at
        )),
    }
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

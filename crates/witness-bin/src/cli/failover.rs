//! `witness switchover`, `witness pause`, `witness resume` and `witness mock-election`: change the leader, pause and resume failover, and
//! check whether a member would be elected.

use std::time::Duration;

use consensus::{MockElection, RingPause};
use member::protocol::{CommandResult, OperatorCommand};
use member::settings::MemberEntry;
use raft_types::UnixSeconds;
use ring_admin::{PauseRequest, Promoted, ScheduledSwitchover};
use serde_json::{Value, json};

use crate::cli::session::{
    ChangeArgs, OrderArgs, another_answer, dry_run_of, milliseconds, would_be_done,
};
use crate::config::duration_of;
use crate::operator::{Directory, operator_name};
use crate::terminal::{Attempt, Exit, Format, Table, print};
use crate::text::times::{moment, second_of_day};

/// Arguments of `witness switchover`.
#[derive(Debug, clap::Args)]
pub(crate) struct SwitchoverArgs {
    /// Name or number of the member that is to lead
    #[arg(required_unless_present = "cancel")]
    member: Option<String>,
    /// Not now but from this time on, such as 2026-11-24T03:00:00Z: the leader of that time carries it out
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with_all = ["force", "dry_run"])]
    at: Option<UnixSeconds>,
    /// Take the scheduled switchover back
    #[arg(long, conflicts_with_all = ["member", "at", "force", "dry_run"])]
    cancel: bool,
    /// Also when its mysqld does not follow, or is far behind: clients wait until it has caught up
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    order: OrderArgs,
}

/// Runs `witness switchover`.
///
/// # Errors
/// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown, 1 when another member leads.
pub(crate) fn switchover(args: &SwitchoverArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        let (directory, dry_run, force) = (&ring.directory, args.change.dry_run, args.force);
        let place = args.member.as_deref().map(|member| directory.find(member));
        let place = place.transpose()?;
        let command = match (place, args.at) {
            (None, _) => OperatorCommand::CancelSwitchover,
            (Some(place), Some(at)) => OperatorCommand::ScheduleSwitchover { to: place.id, at },
            (Some(place), None) => {
                args.change.confirm(&format!(
                    "Make `{}` in region {} the primary? Writes wait for a moment, and go there afterwards.",
                    place.name, place.region
                ))?;
                let to = place.id;
                dry_run_of(dry_run, OperatorCommand::Promote { to, force })
            }
        };
        match (ring.order(command).await?, place) {
            (CommandResult::Unscheduled { switchover, .. }, _) => {
                show_schedule(&switchover, directory, false, format)
            }
            (CommandResult::Scheduled { switchover, .. }, _) => {
                show_schedule(&switchover, directory, true, format)
            }
            (CommandResult::WouldBeDone, Some(place)) => {
                let would = format!("`{}` would be made the primary", place.name);
                would_be_done(place.id, &place.name, &would, format)
            }
            (CommandResult::Promoted(promoted), Some(place)) => {
                show_promoted(place, &promoted, format)
            }
            (other, _) => Err(another_answer(&other)),
        }
    })
}

fn show_schedule(
    switchover: &ScheduledSwitchover,
    directory: &Directory,
    scheduled: bool,
    format: Format,
) -> Attempt {
    let place = directory.get(switchover.to);
    let name = place.map_or("", |place| place.name.as_str());
    let at = second_of_day(switchover.at);
    let (to, by) = (switchover.to, &switchover.by);
    let json = json!({ "scheduled": scheduled, "to": to, "name": name, "at": at, "by": by });
    print(format, &json, || match scheduled {
        true => {
            format!("`{name}` is to lead from {at} on; the leader of that time hands over to it\n")
        }
        false => format!("the switchover to `{name}` that was scheduled for {at} is cancelled\n"),
    })
}

fn show_promoted(place: &MemberEntry, promoted: &Promoted, format: Format) -> Attempt {
    let phases = promoted.phases.iter();
    let seconds: f64 = phases.clone().map(|(_, took)| took.as_secs_f64()).sum();
    let phases =
        phases.map(|(phase, took)| json!({ "phase": phase.name(), "seconds": took.as_secs_f64() }));
    let json = json!({
        "leader": promoted.leader,
        "name": place.name,
        "region": place.region,
        "term": promoted.term.0,
        "seconds": seconds,
        "phases": phases.collect::<Vec<_>>(),
    });
    print(format, &json, || {
        let (name, term, after) = (&place.name, promoted.term.0, milliseconds(seconds));
        format!("`{name}` leads in term {term}, after {after}\n")
    })
}

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
    order: OrderArgs,
}

/// Prints a pause that began or ended, with the log entry that contains the change. `text` returns the text for the name of the primary.
fn show_pause(
    answer: CommandResult,
    directory: &Directory,
    format: Format,
    text: impl FnOnce(&str) -> String,
) -> Attempt {
    let (is_paused, RingPause { pause, primary }, entry) = match answer {
        CommandResult::Paused { paused, entry } => (true, paused, entry),
        CommandResult::Resumed { paused, entry } => (false, paused, entry),
        other => return Err(another_answer(&other)),
    };
    let place = directory.get(primary);
    let name = place.map_or_else(|| primary.to_string(), |place| place.name.clone());
    let json = json!({
        "paused": is_paused,
        "primary": primary,
        "name": name,
        "since": pause.since,
        "until": pause.until,
        "by": pause.by,
        "reason": pause.reason,
        "entry": entry,
    });
    print(format, &json, || text(&name))
}

/// Runs `witness pause`.
///
/// # Errors
/// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown.
pub(crate) fn pause(args: &PauseArgs, format: Format) -> Attempt {
    let for_seconds = args.length.map(|length| length.as_secs());
    if for_seconds == Some(0) {
        return Err(Exit::Usage.because(
            "--for is shorter than a second",
            "give a duration such as 30m, or leave it out",
        ));
    }
    args.order.session(format, async |ring| {
        let request = PauseRequest {
            for_seconds,
            by: operator_name(),
            reason: args.reason.clone(),
        };
        let answer = ring.order(OperatorCommand::Pause { request }).await?;
        show_pause(answer, &ring.directory, format, |name| {
            let length = for_seconds.map(|seconds| format!("for {seconds} s"));
            format!(
                "maintenance mode: no automatic failover, the primary stays on `{name}`, {}\n",
                length.as_deref().unwrap_or("until `witness resume`")
            )
        })
    })
}

/// Runs `witness resume`.
///
/// # Errors
/// Exit 3 without a leader, 4 if failover is not paused, 5 if the result is unknown.
pub(crate) fn resume(args: &OrderArgs, format: Format) -> Attempt {
    args.session(format, async |ring| {
        let answer = ring.order(OperatorCommand::Resume).await?;
        show_pause(answer, &ring.directory, format, |_| {
            "failover is no longer paused; if the primary is gone, another one takes over now\n"
                .to_owned()
        })
    })
}

/// Arguments of `witness mock-election`.
#[derive(Debug, clap::Args)]
pub(crate) struct MockElectionArgs {
    /// Name or number of the member that would lead
    member: String,
    #[command(flatten)]
    order: OrderArgs,
}

/// Runs `witness mock-election`.
///
/// # Errors
/// Exit 4 if the member would not be elected, or did not answer; 3 without a leader.
pub(crate) fn mock_election(args: &MockElectionArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        let to = ring.directory.find(&args.member)?.id;
        match ring.order(OperatorCommand::MockElection { to }).await? {
            CommandResult::MockElection(election) => {
                show_election(&election, &ring.directory, format)
            }
            other => Err(another_answer(&other)),
        }
    })
}

fn election_json(election: &MockElection, directory: &Directory) -> Value {
    let named = |why: &String| directory.with_names(why);
    let votes = election.votes.iter().map(|vote| {
        let place = directory.get(vote.voter);
        json!({
            "voter": vote.voter,
            "name": place.map(|place| &place.name),
            "region": place.map(|place| &place.region),
            "log_end": vote.log_end,
            "would_elect": vote.refusal.is_none(),
            "refusal": vote.refusal.as_ref().map(named),
        })
    });
    json!({
        "candidate": election.candidate,
        "name": directory.name(election.candidate),
        "won": election.is_won(),
        "cursor": election.cursor,
        "votes": votes.collect::<Vec<_>>(),
    })
}

fn election_page(election: &MockElection, json: &Value, directory: &Directory) -> String {
    let columns = "Id:voter Name Region Log_end Would_elect Because:refusal";
    let table = Table::of(columns, &json["votes"]);
    if !election.is_won() {
        return table.to_string();
    }
    let (name, cursor) = (directory.name(election.candidate), election.cursor);
    format!("{table}\n{name} would be elected; the leader's log ends at {cursor}\n")
}

fn show_election(election: &MockElection, directory: &Directory, format: Format) -> Attempt {
    let json = election_json(election, directory);
    print(format, &json, || election_page(election, &json, directory))?;
    if election.is_won() {
        return Ok(());
    }
    Err(Exit::Refused.because(
        directory.with_names(&election.to_string()),
        "resolve the refusals, and try again",
    ))
}

#[cfg(test)]
mod tests {
    use consensus::MockVote;
    use raft_types::{MemberId, OpId};

    use super::*;
    use crate::terminal::Exit;

    #[test]
    fn each_vote_of_a_mock_election_is_a_line() {
        let vote = |voter: u64, refusal: Option<&str>| MockVote {
            voter: MemberId(voter),
            log_end: Some(OpId::new(3, 40 + voter)),
            refusal: refusal.map(str::to_owned),
        };
        let mut election = MockElection {
            candidate: MemberId(4),
            cursor: OpId::new(3, 45),
            sets: vec![[4, 5, 6].map(MemberId).into()],
            votes: vec![vote(4, None), vote(5, None), vote(6, Some("it lags"))],
        };
        let directory = Directory::default();
        assert_eq!(
            election_page(&election, &election_json(&election, &directory), &directory),
            "\
Id  Name  Region  Log_end  Would_elect  Because
 4     -       -     3.44  yes          -
 5     -       -     3.45  yes          -
 6     -       -     3.46  no           it lags

member 4 would be elected; the leader's log ends at 3.45
"
        );
        election.votes[1].refusal = Some("its log is longer".to_owned());
        let failure = show_election(&election, &directory, Format::Table).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(
            failure.what,
            "member 4 would not be elected; member 5: its log is longer; member 6: it lags"
        );
    }
}

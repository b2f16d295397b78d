//! `witness members add`: adds a new member, and shows its catch-up.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region, RingId};
use ring_admin::{Introduction, RingState};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::cli::session::{
    OrderArgs, Progress, Session, another_answer, dry_run_of, known_region, would_be_done,
};
use crate::operator::RingReport;
use crate::terminal::{Attempt, Exit, Format, print};
use crate::text::tolerance;

/// Arguments of `witness members add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Its number, as in its own configuration; one that no member ever had
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    id: u64,
    /// Its name
    #[arg(long)]
    name: String,
    /// The place in which it runs
    #[arg(long)]
    region: String,
    /// The region has no member yet, and begins with this one
    #[arg(long)]
    new_region: bool,
    /// `database` with a mysqld on its host, otherwise `witness`
    #[arg(long, value_enum)]
    kind: Kind,
    /// Where the other members reach it, HOST:PORT
    #[arg(long)]
    address: String,
    /// It only receives the log
    #[arg(long)]
    no_vote: bool,
    /// Which of several fit members leads: the one with the highest; 0: only when there is no other
    #[arg(long, default_value_t = MemberRecord::DEFAULT_PRIORITY)]
    priority: u32,
    /// Do not wait until it has caught up
    #[arg(long)]
    no_wait: bool,
    /// Only report what would happen; nothing is changed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    order: OrderArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Witness,
    Database,
}

/// Progress of a new member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The command did not wait for it.
    Added,
    /// It has the log, and counts in the quorum.
    Votes,
    /// It has the log; the quorum is in another region, or it does not vote.
    CaughtUp,
}

/// How often the leader's lag of it is queried.
const LAG_POLL: Duration = Duration::from_millis(200);
/// Lag in entries that counts as caught up, since the ring continues to write.
const NEAR: u64 = 64;

/// Runs `witness members add`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its end is not known or it has not caught up in time.
pub(crate) fn run(args: &AddArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        if !args.new_region {
            known_region(&args.region, &ring.directory)?;
        }
        let incarnation = introduced(args, &ring).await?;
        let until = ring.until();
        let id = MemberId(args.id);
        let record = record(args, incarnation);
        let votes = record.votes;
        let with = tolerance::with_member(&ring.report, id, &record);
        let tolerates = with.as_ref().map(|with| with.tolerates);
        let warnings = with.map(|with| with.warnings).unwrap_or_default();
        let command = OperatorCommand::AddMember { member: id, record };
        let entry = match ring.order(dry_run_of(args.dry_run, command)).await? {
            CommandResult::Added(entry) => entry,
            CommandResult::WouldBeDone => {
                let would = format!(
                    "`{}` would be member {id} of the ring{}",
                    args.name,
                    lines(tolerates, &warnings)
                );
                return would_be_done(id, &args.name, &would, format);
            }
            other => return Err(another_answer(&other)),
        };
        let state = match args.no_wait {
            true => State::Added,
            false => caught_up(args, &ring, votes, until, format).await?,
        };
        // Additional voters that may fail with it, in the worst case, before commits wait; null if unknown.
        let json = json!({
            "member": id,
            "name": args.name,
            "entry": entry,
            "state": state,
            "tolerates": tolerates,
            "warnings": warnings,
        });
        print(format, &json, || {
            let state = state.text(votes);
            format!(
                "`{}` is in the ring since entry {entry}: it {state}{}\nAdd it to [[members]] in every member's file\n",
                args.name,
                lines(tolerates, &warnings)
            )
        })
    })
}

fn record(args: &AddArgs, incarnation: Incarnation) -> MemberRecord {
    MemberRecord {
        name: args.name.clone(),
        region: Region(args.region.clone()),
        kind: match args.kind {
            Kind::Witness => MemberKind::Witness,
            Kind::Database => MemberKind::Database,
        },
        votes: !args.no_vote,
        priority: args.priority,
        address: args.address.clone(),
        incarnation,
        ..MemberRecord::default()
    }
}

/// Queries the new member's identity; it must be new, or partly added already.
async fn introduced(args: &AddArgs, session: &Session) -> Attempt<Incarnation> {
    let identified = session.asker.identify(&args.address).await;
    let introduction = identified.map_err(|error| {
        Exit::Refused.because(
            format!("the new member does not report its identity: {error}"),
            "start witness there first (`systemctl start witness`, or `witness run`), with an empty `data_dir` and this member in its \
             [[members]]",
        )
    })?;
    let ring = session.report.views().find_map(|view| view.ring.id);
    fit(args, &introduction, ring)?;
    Ok(introduction.identity.incarnation)
}

/// Whether the member at the address can be added under that number.
fn fit(args: &AddArgs, introduction: &Introduction, ring: Option<RingId>) -> Attempt {
    const EMPTY: &str = "give it an empty `data_dir`, and start it again";
    let (identity, address) = (&introduction.identity, &args.address);
    let (what, advice) = match identity.ring {
        _ if identity.member != MemberId(args.id) => (
            format!(
                "member {} answers at {address}, not member {}",
                identity.member, args.id
            ),
            "check --id and --address, and `member.id` in the new member's configuration",
        ),
        RingState::Fresh if introduction.log_is_empty == Some(false) => {
            (format!("the member at {address} has a log already"), EMPTY)
        }
        RingState::Fresh => return Ok(()),
        // An earlier attempt gave it the ring and then stopped.
        RingState::Belongs { ring: theirs } if Some(theirs) == ring => return Ok(()),
        RingState::Belongs { ring } => (
            format!("the member at {address} belongs to ring {ring}"),
            EMPTY,
        ),
        RingState::Bootstrapping { .. } => (
            format!("the member at {address} is creating a ring of its own"),
            "stop it, empty its `data_dir`, start it, and do not bootstrap it",
        ),
    };
    Err(Exit::Refused.because(what, advice))
}

/// Waits until the new member has the log, and its vote if due now.
async fn caught_up(
    args: &AddArgs,
    session: &Session,
    votes: bool,
    until: Instant,
    format: Format,
) -> Attempt<State> {
    let mut progress = Progress::new(format);
    let mut lag = None;
    loop {
        let report = session.asker.report().await;
        if let Some((now, state)) = seen(&report, MemberId(args.id), votes) {
            lag = Some(now);
            progress.catches_up(now);
            if let Some(state) = state {
                return Ok(state);
            }
        }
        if Instant::now() + LAG_POLL >= until {
            let how_far = match lag {
                Some(lag) => format!("{lag} entries behind"),
                None => "unknown to the leader".to_owned(),
            };
            return Err(Exit::Unknown.because(
                format!("`{}` is in the ring, and still {how_far}", args.name),
                "it continues to catch up; check with `witness members list`",
            ));
        }
        tokio::select! {
            () = tokio::time::sleep(LAG_POLL) => {}
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Err(Exit::Unknown.because(
                    format!("`{}` is in the ring, and continues to catch up", args.name),
                    "check with `witness members list`",
                ));
            }
        }
    }
}

/// The new member's lag in the leader's view, and its final state, once it is reached.
fn seen(report: &RingReport, id: MemberId, votes: bool) -> Option<(u64, Option<State>)> {
    let leader = report.leader_view()?;
    let peer = leader.peers.iter().find(|peer| peer.id == id)?;
    // Before its first answer its progress is only a guess.
    peer.answered_seconds?;
    let lag = peer.behind_entries?;
    let mut regions = leader.regions.iter();
    let region_decides = regions.any(|region| region.region == peer.region && region.in_force);
    let state = match peer.voter {
        true => Some(State::Votes),
        false => (lag <= NEAR && !(votes && region_decides)).then_some(State::CaughtUp),
    };
    Some((lag, state))
}

impl State {
    fn text(self, votes: bool) -> &'static str {
        match (self, votes) {
            (Self::Added, _) => "catches up now; check with `witness members list`",
            (Self::Votes, _) => "has the log and votes",
            (Self::CaughtUp, true) => {
                "has the log; it votes as soon as the quorum moves to its region"
            }
            (Self::CaughtUp, false) => "has the log, and does not vote",
        }
    }
}

/// The ring's failure tolerance with it, each fact on a line.
fn lines(tolerates: Option<usize>, warnings: &[String]) -> String {
    let tolerates = tolerates.map(tolerance::more_failures);
    let tolerates = tolerates.map(|more| format!("\nThe ring tolerates {more} with it"));
    let warnings = warnings
        .iter()
        .map(|warning| format!("\nWarning: {warning}"));
    tolerates.into_iter().chain(warnings).collect()
}

#[cfg(test)]
mod tests {
    use ring_admin::Identity;

    use super::*;

    #[derive(clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        add: AddArgs,
    }

    fn args() -> AddArgs {
        use clap::Parser;
        let line = "add --id 7 --name w-7 --region south --kind witness --address h:1";
        Arguments::parse_from(line.split(' ')).add
    }

    #[test]
    fn only_a_new_member_with_that_number_is_added() {
        let ring = RingId::random();
        let other = "0e0e0e0e-0000-4000-8000-000000000000".parse().unwrap();
        let table = [
            (7, RingState::Fresh, None, ""),
            (7, RingState::Fresh, Some(true), ""),
            (7, RingState::Belongs { ring }, Some(true), ""),
            (
                8,
                RingState::Fresh,
                None,
                "member 8 answers at h:1, not member 7",
            ),
            (
                7,
                RingState::Fresh,
                Some(false),
                "the member at h:1 has a log already",
            ),
            (
                7,
                RingState::Belongs { ring: other },
                None,
                "the member at h:1 belongs to ring 0e0e0e0e-0000-4000-8000-000000000000",
            ),
            (
                7,
                RingState::Bootstrapping { ring },
                None,
                "the member at h:1 is creating a ring of its own",
            ),
        ];
        for (member, state, log_is_empty, expected) in table {
            let introduction = Introduction {
                identity: Identity {
                    ring: state,
                    ..Identity::fresh(MemberId(member))
                },
                log_is_empty,
                speaks: raft_types::FormatRange::OF_THIS_PROGRAM,
            };
            let failure = fit(&args(), &introduction, Some(ring)).err();
            assert_eq!(failure.is_none(), expected.is_empty());
            if let Some(failure) = failure {
                assert_eq!(failure.what, expected);
                assert!(!failure.advice.is_empty());
            }
        }
    }
}

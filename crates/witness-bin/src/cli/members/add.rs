//! `witness members add`: adds a new member, and shows its catch-up.

use std::time::Duration;

use consensus::{Introduction, RingState};
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region, RingId};
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::session::{
    CatchUp, DryRun, Patience, RingArgs, Session, another_answer, block_on, would_be_done,
};
use crate::config::nearest;
use crate::operator::{Directory, RingReport};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};
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
    /// Whether there is a mysqld beside it
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
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Witness,
    Database,
}

/// Output of `witness members add --output json`.
#[derive(Debug, Serialize)]
struct Document {
    member: MemberId,
    name: String,
    /// The log entry with the addition.
    entry: OpId,
    /// Its final state.
    state: State,
    /// Additional voters that may fail with it, in the worst case, before commits wait; none if unknown.
    tolerates: Option<usize>,
    /// Warnings of the ring with it.
    warnings: Vec<String>,
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
const LOOK: Duration = Duration::from_millis(200);
/// Lag in entries that counts as caught up, since the ring continues to write.
const NEAR: u64 = 64;

/// Runs `witness members add`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its end is not known or it has not caught up in time.
pub(crate) fn run(args: &AddArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let until = args.patience.until();
        let (report, directory) = session.ring().await?;
        known_region(args, &directory)?;
        let incarnation = introduced(args, &session, &report).await?;
        let id = MemberId(args.id);
        let record = record(args, incarnation);
        let votes = record.votes;
        let with = tolerance::with_member(&report, id, &record);
        let command = args
            .dry_run
            .of(OperatorCommand::AddMember { member: id, record });
        let entry = match session.order(&report, &command, until, format).await? {
            CommandResult::Added(entry) => entry,
            CommandResult::WouldBeDone => {
                let would = format!(
                    "`{}` would be member {id} of the ring{}",
                    args.name,
                    with.map_or_else(String::new, |with| lines(
                        Some(with.tolerates),
                        &with.warnings
                    ))
                );
                return would_be_done(id, &args.name, &would, format);
            }
            other => return Err(another_answer(&other)),
        };
        let state = match args.no_wait {
            true => State::Added,
            false => caught_up(args, &session, votes, until, format).await?,
        };
        show(
            &Document {
                member: id,
                name: args.name.clone(),
                entry,
                state,
                tolerates: with.as_ref().map(|with| with.tolerates),
                warnings: with.map(|with| with.warnings).unwrap_or_default(),
            },
            votes,
            format,
        )
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

/// Rejects a typo in a region's name, which would create a region of one member.
fn known_region(args: &AddArgs, directory: &Directory) -> Result<(), Failure> {
    let regions = || directory.places().map(|place| place.region.0.as_str());
    if args.new_region || regions().any(|region| region == args.region) {
        return Ok(());
    }
    let meant = nearest(&args.region, regions())
        .map(|near| format!("did you mean `{near}`? "))
        .unwrap_or_default();
    Err(Failure::new(
        Exit::Refused,
        format!("no member of the ring runs in region `{}`", args.region),
        format!("{meant}Give --new-region for a region that begins with this member"),
    ))
}

/// Queries the new member's identity; it must be new, or partly added already.
async fn introduced(
    args: &AddArgs,
    session: &Session,
    report: &RingReport,
) -> Result<Incarnation, Failure> {
    let refused = |what: String, advice: &str| Failure::new(Exit::Refused, what, advice);
    let identified = session.operator.identify(&args.address).await;
    let introduction = identified.map_err(|error| {
        refused(
            format!("the new member does not say who it is: {error}"),
            "start witness there first (`systemctl start witness`, or `witness run`), with an empty `data_dir` and this member in its [[members]]",
        )
    })?;
    let views = report
        .members
        .iter()
        .filter_map(|member| member.view.as_ref());
    let ring = views.filter_map(|view| view.ring.id).next();
    fit(args, &introduction, ring).map_err(|(what, advice)| refused(what, advice))?;
    Ok(introduction.identity.incarnation)
}

/// Whether the member at the address can be added under that number.
fn fit(
    args: &AddArgs,
    introduction: &Introduction,
    ring: Option<RingId>,
) -> Result<(), (String, &'static str)> {
    let identity = &introduction.identity;
    if identity.member != MemberId(args.id) {
        return Err((
            format!(
                "member {} answers at {}, not member {}",
                identity.member, args.address, args.id
            ),
            "check --id and --address, and `member.id` in the new member's configuration",
        ));
    }
    match identity.ring {
        RingState::Fresh if introduction.log_is_empty == Some(false) => Err((
            format!("the member at {} has a log already", args.address),
            "give it an empty `data_dir`, and start it again",
        )),
        RingState::Fresh => Ok(()),
        // An earlier attempt gave it the ring and then stopped.
        RingState::Belongs { ring: theirs } if Some(theirs) == ring => Ok(()),
        RingState::Belongs { ring } => Err((
            format!("the member at {} belongs to ring {ring}", args.address),
            "give it an empty `data_dir`, and start it again",
        )),
        RingState::Bootstrapping { .. } => Err((
            format!(
                "the member at {} is creating a ring of its own",
                args.address
            ),
            "stop it, empty its `data_dir`, start it, and do not bootstrap it",
        )),
    }
}

/// Waits until the new member has the log, and its vote if due now.
async fn caught_up(
    args: &AddArgs,
    session: &Session,
    votes: bool,
    until: Instant,
    format: Format,
) -> Result<State, Failure> {
    let mut bar = CatchUp::new(format);
    let mut behind = None;
    loop {
        let report = session.operator.ring().await;
        if let Some(seen) = seen(&report, MemberId(args.id)) {
            behind = Some(seen.behind);
            bar.show(seen.behind);
            if seen.votes_now {
                return Ok(State::Votes);
            }
            if seen.behind <= NEAR && !(votes && seen.region_decides) {
                return Ok(State::CaughtUp);
            }
        }
        if Instant::now() + LOOK >= until {
            let how_far = match behind {
                Some(behind) => format!("{behind} entries behind"),
                None => "unknown to the leader".to_owned(),
            };
            return Err(Failure::new(
                Exit::Unknown,
                format!("`{}` is in the ring, and still {how_far}", args.name),
                "it continues to catch up; check with `witness members list`",
            ));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Err(Failure::new(
                    Exit::Unknown,
                    format!("`{}` is in the ring, and continues to catch up", args.name),
                    "check with `witness members list`",
                ));
            }
        }
    }
}

/// The leader's observation of the new member.
struct Seen {
    behind: u64,
    votes_now: bool,
    region_decides: bool,
}

fn seen(report: &RingReport, id: MemberId) -> Option<Seen> {
    let leader = report.leader_view()?;
    let peer = leader.peers.iter().find(|peer| peer.id == id)?;
    // Before its first answer its progress is only a guess.
    peer.answered_seconds?;
    let region = leader
        .regions
        .iter()
        .find(|region| region.region == peer.region);
    Some(Seen {
        behind: peer.behind_entries?,
        votes_now: peer.voter,
        region_decides: region.is_some_and(|region| region.in_force),
    })
}

fn show(document: &Document, votes: bool, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return print_json(document);
    }
    let what = match (document.state, votes) {
        (State::Added, _) => "catches up now; check with `witness members list`",
        (State::Votes, _) => "has the log and votes",
        (State::CaughtUp, true) => {
            "has the log; it votes as soon as the quorum moves to its region"
        }
        (State::CaughtUp, false) => "has the log, and does not vote",
    };
    print_text(&format!(
        "`{}` is in the ring since entry {}: it {what}{}\nAdd it to [[members]] in every member's file\n",
        document.name,
        document.entry,
        lines(document.tolerates, &document.warnings)
    ))
}

/// The ring's failure tolerance with it, each fact on a line.
fn lines(tolerates: Option<usize>, warnings: &[String]) -> String {
    let tolerates = tolerates.map(|tolerates| {
        let failures = if tolerates == 1 {
            "failure"
        } else {
            "failures"
        };
        format!("\nThe ring tolerates {tolerates} more {failures} with it")
    });
    let warnings = warnings
        .iter()
        .map(|warning| format!("\nWarning: {warning}"));
    tolerates.into_iter().chain(warnings).collect()
}

#[cfg(test)]
mod tests {
    use consensus::Identity;

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
    fn only_a_new_member_with_that_number_is_taken_in() {
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
            let said = fit(&args(), &introduction, Some(ring));
            let (what, advice) = said.err().unwrap_or_default();
            assert_eq!(what, expected);
            assert_eq!(advice.is_empty(), expected.is_empty());
        }
    }

    #[test]
    fn a_region_that_nobody_runs_in_has_to_be_meant() {
        let failure = known_region(&args(), &Directory::default()).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "no member of the ring runs in region `south`\n  Give --new-region for a region that begins with this member"
        );
        let meant = AddArgs {
            new_region: true,
            ..args()
        };
        assert_eq!(known_region(&meant, &Directory::default()), Ok(()));
    }
}

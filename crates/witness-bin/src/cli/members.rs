//! `witness members`: lists all members with their records in the ring's log and their progress; adds, changes and removes one member at a
//! time.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use member::settings::MemberEntry;
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region, RingId};
use ring_admin::{Amendment, Introduction, RecordChange, RingState};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli::session::{
    ChangeArgs, OrderArgs, Progress, QueryArgs, Session, another_answer, changed, dry_run_of,
    known_region, would_be_done,
};
use crate::operator::{RingReport, latest};
use crate::terminal::{Attempt, Exit, Format, Table, print};
use crate::text;

/// Actions on the members.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum MembersCommand {
    /// Show every member with its record in the ring's log
    List(QueryArgs),
    /// Add a member; it gets the log first, and its vote when it has caught up
    Add(AddArgs),
    /// Change a member's address, name, priority, region or vote while the ring runs
    Update(UpdateArgs),
    /// Remove a member
    Remove(RemoveArgs),
}

/// Runs `witness members …`.
///
/// # Errors
/// The errors of the subcommand.
pub(crate) fn run(command: &MembersCommand, format: Format) -> Attempt {
    match command {
        MembersCommand::List(query) => list(query, format),
        MembersCommand::Add(args) => add(args, format),
        MembersCommand::Update(args) => update(args, format),
        MembersCommand::Remove(args) => remove(args, format),
    }
}

/// Runs `witness members list`.
///
/// # Errors
/// Exit 3 when no member answers.
fn list(query: &QueryArgs, format: Format) -> Attempt {
    let (report, _) = query.answers()?;
    let document = document(&report);
    print(format, &document, || page(&document, &report.warnings))
}

fn document(report: &RingReport) -> Value {
    let roster = latest(&report.members).map_or(&[][..], |view| &view.members);
    let peers = report.leader_view().map_or(&[][..], |view| &view.peers);
    let rows = report.members.iter().map(|member| {
        // The ring's log takes precedence, if known.
        let logged = roster.iter().find(|logged| logged.id == member.id);
        let entry = logged.map_or_else(|| member.entry.clone(), MemberEntry::from);
        // Only the leader's view has the progress of the other members.
        let peer = peers.iter().find(|peer| peer.id == member.id);
        let behind = peer.and_then(|peer| peer.behind_entries);
        let role = member.view.as_ref().map(|view| view.role.to_string());
        json!({
            "id": entry.id,
            "name": entry.name,
            "region": entry.region,
            "kind": entry.kind,
            "votes": entry.votes,
            "priority": logged.map(|logged| logged.record.priority),
            // True if the member counts in the quorum now; null if unknown.
            "in_quorum": logged.map(|logged| logged.voter),
            "role": role.as_deref().unwrap_or("unreachable"),
            "behind_entries": if Some(member.id) == report.leader { Some(0) } else { behind },
            "address": entry.address,
            "in_ring": member.in_ring,
            "configured": member.configured,
        })
    });
    json!({
        "ring": report.ring,
        "leader": report.leader,
        "members": rows.collect::<Vec<_>>(),
        "warnings": report.warnings,
    })
}

fn page(document: &Value, warnings: &[String]) -> String {
    let columns =
        "Id Name Region Kind Votes Priority Quorum:in_quorum Role Behind:behind_entries Address";
    let table = Table::of(columns, &document["members"]);
    let warnings = text::lines("Warning: ", warnings);
    match warnings.is_empty() {
        true => table.to_string(),
        false => format!("{table}\n{warnings}"),
    }
}

// `witness members update` and `witness members remove`: change a member's record in the ring's log, and remove a member.

/// Arguments of `witness members remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Name or number of the member
    member: String,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    order: OrderArgs,
}

/// Runs `witness members remove`.
///
/// # Errors
/// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown.
pub(crate) fn remove(args: &RemoveArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        let place = ring.directory.find(&args.member)?;
        let (member, name) = (place.id, place.name.as_str());
        args.change.confirm(&format!(
            "Remove `{name}` (member {member}, region {}) from the ring? Its data directory is of no use to the ring afterwards.",
            place.region
        ))?;
        let command = dry_run_of(args.change.dry_run, OperatorCommand::RemoveMember { member });
        match ring.order(command).await? {
            CommandResult::Removed(entry) => {
                let json = json!({ "member": member, "name": name, "entry": entry });
                print(format, &json, || {
                    format!(
                        "`{name}` is out of the ring since entry {entry}; stop its process, and remove it from [[members]] in every \
                         member's file\n"
                    )
                })
            }
            CommandResult::WouldBeDone => {
                let would = format!("`{name}` would be out of the ring");
                would_be_done(member, name, &would, format)
            }
            other => Err(another_answer(&other)),
        }
    })
}

/// Arguments of `witness members update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// Name or number of the member
    member: String,
    /// Its new name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where the other members reach it from now on
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Priority: the member with the highest one leads
    #[arg(long, value_name = "N")]
    priority: Option<u32>,
    /// The region in which it runs; one that is new needs --new-region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The region begins with this member
    #[arg(long, requires = "region")]
    new_region: bool,
    /// Whether it may count in a quorum
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    votes: Option<bool>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    order: OrderArgs,
}

/// Runs `witness members update`.
///
/// # Errors
/// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown.
pub(crate) fn update(args: &UpdateArgs, format: Format) -> Attempt {
    let change = RecordChange {
        name: args.name.clone(),
        region: args.region.clone().map(Region),
        votes: args.votes,
        priority: args.priority,
        address: args.address.clone(),
    };
    if change == RecordChange::default() {
        return Err(Exit::Usage.because(
            "there is nothing to change",
            "give --name, --address, --priority, --region or --votes",
        ));
    }
    args.order.session(format, async |ring| {
        let place = ring.directory.find(&args.member)?;
        let member = place.id;
        if let Some(region) = args.region.as_ref().filter(|_| !args.new_region) {
            known_region(region, &ring.directory)?;
        }
        args.change.confirm(&format!(
            "Change `{}` (member {member}): {}?",
            place.name,
            new_values(&change)
        ))?;
        let dry_run = args.change.dry_run;
        let command = OperatorCommand::UpdateMember {
            member,
            change,
            dry_run,
        };
        let done = match ring.order(command).await? {
            CommandResult::MemberUpdated(done) => done,
            other => return Err(another_answer(&other)),
        };
        let json = json!({
            "member": member,
            "dry_run": dry_run,
            "before": done.before,
            "after": done.after,
            "voter_sets": done.sets,
            "wanted_sets": done.wanted,
            "entry": done.entry,
        });
        print(format, &json, || changed_record(member, &done))
    })
}

fn new_values(change: &RecordChange) -> String {
    let values = [
        ("name", change.name.clone()),
        ("region", change.region.as_ref().map(Region::to_string)),
        ("votes", change.votes.map(|votes| votes.to_string())),
        (
            "priority",
            change.priority.map(|priority| priority.to_string()),
        ),
        ("address", change.address.clone()),
    ];
    let values = values.into_iter();
    let given = values.filter_map(|(what, value)| Some(format!("{what} = {}", value?)));
    given.collect::<Vec<_>>().join(", ")
}

fn changed_record(id: MemberId, done: &Amendment<MemberRecord>) -> String {
    let values = |record: &MemberRecord| {
        [
            ("name", record.name.clone()),
            ("region", record.region.to_string()),
            ("votes", record.votes.to_string()),
            ("priority", record.priority.to_string()),
            ("address", record.address.clone()),
        ]
    };
    let pairs = values(&done.before).into_iter().zip(values(&done.after));
    let changes = pairs.map(|((what, before), (_, after))| changed(what, &before, &after));
    let quorum = match done.sets == done.wanted {
        true => "",
        false => "The quorum follows, step by step; check with `witness quorum show`\n",
    };
    let end = match done.entry {
        Some(entry) => format!(
            "Member {id} was changed by entry {entry}; change [[members]] in every member's file as well\n"
        ),
        None => format!("Nothing was changed; without --dry-run member {id} would be as shown\n"),
    };
    format!("{}{quorum}{end}", changes.collect::<String>())
}

// `witness members add`: adds a new member, and shows its catch-up.

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

/// The state of a new member at the end of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The command did not wait until the member had the log.
    Added,
    /// The member has the log, and counts in the quorum.
    Votes,
    /// The member has the log, but does not count in the quorum: it has no vote, or the quorum is in another region.
    CaughtUp,
}

/// Interval between queries of the new member's lag.
const LAG_POLL: Duration = Duration::from_millis(200);
/// A member with at most this lag, in entries, counts as caught up. The lag is rarely zero, because the ring continues to write.
const NEAR: u64 = 64;

/// Runs `witness members add`.
///
/// # Errors
/// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown or the member has not caught up in time.
pub(crate) fn add(args: &AddArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        if !args.new_region {
            known_region(&args.region, &ring.directory)?;
        }
        let id = MemberId(args.id);
        let record = MemberRecord {
            name: args.name.clone(),
            region: Region(args.region.clone()),
            kind: match args.kind {
                Kind::Witness => MemberKind::Witness,
                Kind::Database => MemberKind::Database,
            },
            votes: !args.no_vote,
            priority: args.priority,
            address: args.address.clone(),
            incarnation: introduced(args, &ring).await?,
            ..MemberRecord::default()
        };
        let (until, votes) = (ring.until(), record.votes);
        let (tolerates, warnings) = text::ring::with_member(&ring.report, id, &record).unzip();
        let warnings = warnings.unwrap_or_default();
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
        // `tolerates` is how many more voters may fail, in the worst case, before commits wait, with the new member; null if unknown.
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

/// Queries the new member, and returns its incarnation. The member must be new, or left from an earlier attempt to add it.
async fn introduced(args: &AddArgs, session: &Session) -> Attempt<Incarnation> {
    let identified = async { session.asker.client(&args.address)?.identify().await };
    let introduction = identified.await.map_err(|error| {
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

/// Checks that the member at the address can be added under the given number.
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
        // An earlier attempt stopped after the member had received the ring's id.
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

/// Waits until the new member has the log, and counts in the quorum if it should.
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

/// Returns the new member's lag in the leader's view, and its final state when it has reached one.
fn seen(report: &RingReport, id: MemberId, votes: bool) -> Option<(u64, Option<State>)> {
    let leader = report.leader_view()?;
    let peer = leader.peers.iter().find(|peer| peer.id == id)?;
    // Until the member has answered, the leader's figure for its progress is only a guess.
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

/// Returns the ring's failure tolerance with the new member, and the warnings, one on each line.
fn lines(tolerates: Option<usize>, warnings: &[String]) -> String {
    let tolerates = tolerates.map(text::ring::more_failures);
    let tolerates = tolerates.map(|more| format!("\nThe ring tolerates {more} with it"));
    let warnings = warnings
        .iter()
        .map(|warning| format!("\nWarning: {warning}"));
    tolerates.into_iter().chain(warnings).collect()
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};
    use raft_types::{MemberId, MemberKind, Region};
    use ring_admin::Identity;

    use super::*;
    use crate::operator::MemberReport;

    #[test]
    fn the_longest_log_has_precedence() {
        let entry = |id: u64, name: &str, region: &str| MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region(region.into()),
            kind: MemberKind::Witness,
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        };
        let mut leader = database_leader();
        leader.members[1].record.votes = false;
        leader.members[1].voter = false;
        let asked = MemberReport::new;
        let report = RingReport::new(
            "orders",
            vec![
                asked(entry(1, "db-1", "north"), true, Ok(leader)),
                asked(entry(2, "witness-1", "north"), true, Ok(witness_follower())),
                asked(entry(3, "witness-2", "north"), false, Err("gone".into())),
                asked(entry(4, "db-2", "south"), true, Err("gone".into())),
            ],
        );
        let text = page(&document(&report), &report.warnings);
        let expected = "\
Id  Name       Region  Kind      Votes  Priority  Quorum  Role         Behind  Address
 1  db-1       north   database  yes         100  yes     leader            0  10.0.0.1:7400
 2  witness-1  north   witness   yes         100  yes     follower          2  10.0.0.2:7400
 3  witness-2  north   witness   yes         100  yes     unreachable       -  10.0.0.3:7400
 4  db-2       south   witness   yes           -  -       unreachable       -  10.0.0.4:7400

";
        let shown = text.split("Warning").next().unwrap_or_default();
        assert_eq!(
            shown, expected,
            "the longest log; of equal ones, the last asked"
        );
        assert_eq!(text.matches("Warning: ").count(), 3, "{text}");
    }

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

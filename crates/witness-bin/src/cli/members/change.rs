//! `witness members update` and `witness members remove`: change a member's record in the ring's log, and remove a member.

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, MemberRecord, Region};
use ring_admin::{Amendment, RecordChange};
use serde_json::json;

use crate::cli::session::{
    ChangeArgs, OrderArgs, another_answer, changed, dry_run_of, known_region, would_be_done,
};
use crate::terminal::{Attempt, Exit, Format, print};

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
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
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

impl UpdateArgs {
    fn record_change(&self) -> RecordChange {
        RecordChange {
            name: self.name.clone(),
            region: self.region.clone().map(Region),
            votes: self.votes,
            priority: self.priority,
            address: self.address.clone(),
        }
    }
}

/// Runs `witness members update`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
pub(crate) fn update(args: &UpdateArgs, format: Format) -> Attempt {
    let change = args.record_change();
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
        print(format, &json, || page(member, &done))
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

fn page(id: MemberId, done: &Amendment<MemberRecord>) -> String {
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

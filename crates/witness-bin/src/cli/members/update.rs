//! `witness members update`: changes a member's record in the ring's log.

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, MemberRecord, OpId, Region};
use ring_admin::{Amendment, RecordChange};
use serde::Serialize;

use crate::cli::session::{Consent, Patience, RingArgs, Session, another_answer, block_on};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

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
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

impl UpdateArgs {
    fn change(&self) -> RecordChange {
        RecordChange {
            name: self.name.clone(),
            region: self.region.clone().map(Region),
            votes: self.votes,
            priority: self.priority,
            address: self.address.clone(),
        }
    }
}

/// Output of `witness members update --output json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    member: MemberId,
    dry_run: bool,
    before: &'a MemberRecord,
    after: &'a MemberRecord,
    voter_sets: &'a [std::collections::BTreeSet<MemberId>],
    wanted_sets: &'a [std::collections::BTreeSet<MemberId>],
    /// The log entry with the change.
    entry: Option<OpId>,
}

/// Runs `witness members update`.
///
/// # Errors
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
pub(crate) fn run(args: &UpdateArgs, format: Format) -> Result<(), Failure> {
    let change = args.change();
    if change == RecordChange::default() {
        return Err(Failure::new(
            Exit::Usage,
            "there is nothing to change",
            "give --name, --address, --priority, --region or --votes",
        ));
    }
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let place = directory.find(&args.member)?.clone();
        let known = |region: &String| directory.places().any(|place| place.region.0 == *region);
        if let Some(region) = args
            .region
            .as_ref()
            .filter(|region| !args.new_region && !known(region))
        {
            return Err(Failure::new(
                Exit::Refused,
                format!("no member of the ring runs in region `{region}`"),
                "give --new-region for a region that begins with this member",
            ));
        }
        if !args.dry_run {
            let changes = words(&change);
            args.consent.to(&format!(
                "Change `{}` (member {}): {changes}?",
                place.name, place.id
            ))?;
        }
        let command = OperatorCommand::UpdateMember {
            member: place.id,
            change,
            dry_run: args.dry_run,
        };
        let until = args.patience.until();
        let done = match session.order(&report, &command, until, format).await? {
            CommandResult::MemberUpdated(done) => done,
            other => return Err(another_answer(&other)),
        };
        match format {
            Format::Json => print_json(&Document {
                member: place.id,
                dry_run: args.dry_run,
                before: &done.before,
                after: &done.after,
                voter_sets: &done.sets,
                wanted_sets: &done.wanted,
                entry: done.entry,
            }),
            Format::Table => print_text(&page(place.id, &done)),
        }
    })
}

fn words(change: &RecordChange) -> String {
    let said = [
        change.name.as_ref().map(|name| format!("name = {name}")),
        change
            .region
            .as_ref()
            .map(|region| format!("region = {region}")),
        change.votes.map(|votes| format!("votes = {votes}")),
        change
            .priority
            .map(|priority| format!("priority = {priority}")),
        change
            .address
            .as_ref()
            .map(|address| format!("address = {address}")),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn page(id: MemberId, done: &Amendment<MemberRecord>) -> String {
    let line = |what: &str, before: String, after: String| match before == after {
        true => String::new(),
        false => format!("  {what}: {before} -> {after}\n"),
    };
    let (before, after) = (&done.before, &done.after);
    let changes = [
        line("name", before.name.clone(), after.name.clone()),
        line(
            "region",
            before.region.to_string(),
            after.region.to_string(),
        ),
        line("votes", before.votes.to_string(), after.votes.to_string()),
        line(
            "priority",
            before.priority.to_string(),
            after.priority.to_string(),
        ),
        line("address", before.address.clone(), after.address.clone()),
    ];
    let quorum = match done.sets == done.wanted {
        true => String::new(),
        false => "The quorum follows, step by step; check with `witness quorum show`\n".to_owned(),
    };
    let end = match done.entry {
        Some(entry) => format!(
            "Member {id} was changed by entry {entry}; change [[members]] in every member's file as well\n"
        ),
        None => format!("Nothing was changed; without --dry-run member {id} would be as shown\n"),
    };
    format!("{}{quorum}{end}", changes.concat())
}

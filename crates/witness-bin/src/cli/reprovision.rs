//! `witness reprovision`: replaces the data of a member's mysqld that cannot follow the ring with a clone of another member's. First shows
//! what would be lost.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand, ProvisionPlan, Provisioned};
use raft_types::{MemberId, MemberKind};
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::session::{
    Consent, Phases, RingArgs, Session, another_answer, block_on, milliseconds,
};
use crate::config::duration_of;
use crate::operator::{Directory, MemberAddress, MemberReport, RingReport};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness reprovision`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReprovisionArgs {
    /// Name or number of the member whose mysqld is reprovisioned; without it, the member of this configuration
    member: Option<String>,
    /// Name or number of the member whose data are copied; without a name the follower that is least behind
    #[arg(long, value_name = "DONOR", num_args = 0..=1, required = true)]
    from: Option<Option<String>>,
    /// Only say what would be lost
    #[arg(long)]
    dry_run: bool,
    /// Also when not all errant transactions can be kept, because they are in no binlog file, or those cannot be read
    #[arg(long)]
    force: bool,
    /// How long to wait for the end, e.g. 30m; the copy itself continues on the members
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness reprovision --output json`.
#[derive(Debug, Serialize)]
struct Document {
    member: MemberId,
    name: String,
    dry_run: bool,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    Planned(ProvisionPlan),
    Done(Provisioned),
}

const BEFORE_FORCE: &str = "nothing was changed; dump the schemas that they changed first (mysqldump, from this mysqld), then add --force";
/// Time limit of the member's checks before the question.
const LOOK: Duration = Duration::from_secs(60);

/// Runs `witness reprovision`.
///
/// # Errors
/// Exit 3 when the ring cannot report its committed set, 4 when it is refused, 5 when its result is unknown, 1 when the copy was
/// interrupted or mysqld does not follow afterwards.
pub(crate) fn run(args: &ReprovisionArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    let own = match &args.member {
        Some(_) => None,
        None => Some(args.ring.own_member()?),
    };
    block_on(async {
        let (report, directory) = session.ring().await?;
        let named = args.member.as_ref().or(own.as_ref());
        let place = directory.find(named.map_or("", String::as_str))?.clone();
        let donor = match args.from.as_ref().and_then(Option::as_ref) {
            Some(name) => directory.find(name)?.id,
            None => best_donor(&report, place.id)?,
        };
        let until = Instant::now() + args.timeout;
        let plan = plan(&session, &place, &directory, donor).await?;
        let shown = |outcome| Document {
            member: place.id,
            name: place.name.clone(),
            dry_run: args.dry_run,
            outcome,
        };
        let refused = (!args.force).then(|| plan.needs_force.clone()).flatten();
        if format == Format::Table {
            print_text(&losses(&place.name, &plan))?;
        } else if args.dry_run {
            print_json(&shown(Outcome::Planned(plan.clone())))?;
        }
        if let Some(why) = refused {
            return Err(Failure::new(Exit::Refused, why, BEFORE_FORCE));
        }
        if args.dry_run {
            return Ok(());
        }
        args.consent.to(&format!(
            "Replace all data of the mysqld of `{}` with a copy from `{}`?",
            place.name, plan.donor
        ))?;
        let mut phases = Phases::new(format);
        let command = OperatorCommand::Provision {
            donor,
            dry_run: false,
            force: args.force,
        };
        let tell = |told| phases.show(told);
        let operator = &session.operator;
        let done = operator
            .at(&place, &directory, &command, until, tell)
            .await?;
        let CommandResult::Provisioned(done) = done else {
            return Err(another_answer(&done));
        };
        drop(phases);
        let follows = done.follows;
        let text = page(&place.name, &done);
        match format {
            Format::Json => print_json(&shown(Outcome::Done(done)))?,
            Format::Table => print_text(&text)?,
        }
        if follows {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Error,
            format!(
                "the mysqld of `{}` has its copy and does not follow yet",
                place.name
            ),
            "`witness status` says what it waits for",
        ))
    })
}

async fn plan(
    session: &Session,
    place: &MemberAddress,
    directory: &Directory,
    donor: MemberId,
) -> Result<ProvisionPlan, Failure> {
    let command = OperatorCommand::Provision {
        donor,
        dry_run: true,
        force: false,
    };
    let until = Instant::now() + LOOK;
    let planned = session
        .operator
        .at(place, directory, &command, until, |_| {});
    match planned.await? {
        CommandResult::ProvisionPlan(plan) => Ok(plan),
        other => Err(another_answer(&other)),
    }
}

/// The idle follower with the smallest lag; without a follower, the primary.
fn best_donor(report: &RingReport, recipient: MemberId) -> Result<MemberId, Failure> {
    let others = report
        .members
        .iter()
        .filter(|member| member.id != recipient && member.kind == MemberKind::Database);
    let fit = others.filter_map(|member| Some((rank(member)?, member.id)));
    fit.min().map(|(_, id)| id).ok_or_else(|| {
        Failure::new(
            Exit::Refused,
            "no other database member follows the ring or is its primary: there is nobody to copy from",
            "check with `witness status`",
        )
    })
}

/// Suitability of a member's mysqld, lowest is best; none if unsuitable.
fn rank(member: &MemberReport) -> Option<(bool, u64)> {
    let mysql = member.view.as_ref()?.mysql.as_ref()?;
    let follows = mysql.follows();
    let fits = follows || mysql.writable;
    fits.then(|| (!follows, mysql.lag_ms.unwrap_or(u64::MAX)))
}

/// The losses as text.
fn losses(name: &str, plan: &ProvisionPlan) -> String {
    let mut out = format!(
        "The mysqld of `{name}` gets a copy of the data of `{}`, and loses everything that it has:\n",
        plan.donor
    );
    if let Some(unknown) = &plan.unknown {
        return out + &format!("  it cannot be examined now: {unknown}\n");
    }
    for schema in &plan.schemas {
        out += &format!("  schema {}, about {} bytes\n", schema.name, schema.bytes);
    }
    if let Some(why) = &plan.sizes_unknown {
        out += &format!("  its schemas, whose sizes are not known: {why}\n");
    }
    if plan.errant_transactions == 0 {
        return out + "  no transaction that the ring does not have\n";
    }
    out += &format!(
        "  {} transactions that the ring does not have: {}\n",
        plan.errant_transactions, plan.errant
    );
    out + &match &plan.needs_force {
        None => "  (binlog files that hold them are kept; see `witness log trimmed`)\n".to_owned(),
        Some(why) => format!("  refused without --force: {why}\n"),
    }
}

fn page(name: &str, done: &Provisioned) -> String {
    let mut out = String::new();
    for file in &done.kept {
        out += &format!(
            "{} is kept as {}, with {}\n",
            file.from, file.kept_as, file.gtids
        );
    }
    if let Some(why) = &done.not_kept {
        out += &format!("Lost: {why}\n");
    }
    let state = if done.follows {
        "and follows the ring"
    } else {
        "and does not follow yet"
    };
    out + &format!(
        "The mysqld of `{name}` has the data of `{}` {state}, after {}\n",
        done.donor,
        milliseconds(done.seconds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::protocol::KeptBinlog;
    use member::protocol::SchemaSize;

    #[test]
    fn what_is_lost_is_told() {
        let mut plan = ProvisionPlan {
            donor: "db-2".into(),
            errant: "u:7-8".into(),
            errant_transactions: 2,
            schemas: vec![SchemaSize {
                name: "shop".into(),
                bytes: 4096,
            }],
            ..ProvisionPlan::default()
        };
        let text = losses("db-1", &plan);
        assert!(text.contains("schema shop, about 4096 bytes\n"), "{text}");
        assert!(
            text.contains("  2 transactions that the ring does not have: u:7-8\n"),
            "{text}"
        );
        assert!(text.contains("are kept"), "{text}");
        plan.sizes_unknown = Some("mysqld did not finish a statement".into());
        let text = losses("db-1", &plan);
        assert!(
            text.contains("sizes are not known: mysqld did not"),
            "{text}"
        );
        plan.needs_force = Some("2 errant transactions are in no binlog file: u:7-8".into());
        let text = losses("db-1", &plan);
        assert!(
            text.contains("refused without --force: 2 errant") && !text.contains("are kept"),
            "{text}"
        );
        plan.errant_transactions = 0;
        assert!(losses("db-1", &plan).contains("no transaction that the ring does not have"));
        plan.unknown = Some("mysqld is held down".into());
        assert!(losses("db-1", &plan).ends_with("cannot be examined now: mysqld is held down\n"));
    }

    #[test]
    fn what_was_done_is_told() {
        let done = Provisioned {
            donor: "db-2".into(),
            kept: vec![KeptBinlog {
                from: "/d/binlog.000002".into(),
                gtids: "u:7-8".into(),
                kept_as: "binlog.000002.from-197.00c0ffee".into(),
            }],
            not_kept: None,
            follows: true,
            seconds: 2.5,
        };
        assert_eq!(
            page("db-1", &done),
            "/d/binlog.000002 is kept as binlog.000002.from-197.00c0ffee, with u:7-8\nThe mysqld of `db-1` has the data of `db-2` and follows the ring, after 2.50 s\n"
        );
    }
}

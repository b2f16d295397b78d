//! `witness reprovision` replaces the data of a mysqld that cannot follow the ring with a clone of another member's data. It first shows
//! the data that would be lost. `witness replace-statement` is for a follower that has stopped at a statement that no server can execute:
//! it executes another statement instead.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand, ProvisionPlan, Provisioned};
use raft_types::{MemberId, MemberKind};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::session::{
    ChangeArgs, Consent, Progress, RingArgs, about, another_answer, milliseconds,
};
use crate::config::duration_of;
use crate::operator::RingReport;
use crate::terminal::{Attempt, Exit, Failure, Format, print, print_json, print_text};
use crate::text::lines;

/// Arguments of `witness reprovision`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReprovisionArgs {
    /// Name or number of the member with the mysqld to reprovision; without it, the member of this configuration
    member: Option<String>,
    /// Name or number of the member whose data are copied; without a name the follower with the smallest lag
    #[arg(long, value_name = "DONOR", num_args = 0..=1, required = true)]
    from: Option<Option<String>>,
    /// Also when not all errant transactions can be kept, because they are in no binlog file, or those cannot be read
    #[arg(long)]
    force: bool,
    /// How long to wait for the end, e.g. 30m; the copy itself continues on the members
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    ring: RingArgs,
}

const BEFORE_FORCE: &str = "nothing was changed; dump the schemas that they changed first (mysqldump, from this mysqld), then add --force";
/// Time limit for the member's checks, after which the operator is asked for confirmation.
const PLAN_LIMIT: Duration = Duration::from_secs(60);

/// Runs `witness reprovision`.
///
/// # Errors
/// Exit 3 if the ring cannot report its committed GTIDs, 4 if the command is refused, 5 if the result is unknown, 1 if the copy was
/// interrupted or mysqld does not follow afterwards.
pub(crate) fn reprovision(args: &ReprovisionArgs, format: Format) -> Attempt {
    let named = match &args.member {
        Some(named) => named.clone(),
        None => args.ring.own_member()?,
    };
    args.ring.session(args.timeout, format, async |ring| {
        let place = ring.directory.find(&named)?;
        let (name, dry_run) = (place.name.as_str(), args.change.dry_run);
        let donor = match args.from.as_ref().and_then(Option::as_ref) {
            Some(name) => ring.directory.find(name)?.id,
            None => best_donor(&ring.report, place.id)?,
        };
        let until = ring.until();
        let command = |dry_run, force| OperatorCommand::Provision {
            donor,
            dry_run,
            force,
        };
        let limit = Instant::now() + PLAN_LIMIT;
        let plan = match ring.at_until(place, &command(true, false), limit).await? {
            CommandResult::ProvisionPlan(plan) => plan,
            other => return Err(another_answer(&other)),
        };
        if format == Format::Table {
            print_text(&losses(name, &plan))?;
        } else if dry_run {
            print_json(&about(place.id, name, true, &plan))?;
        }
        if let Some(why) = plan.needs_force.as_ref().filter(|_| !args.force) {
            return Err(Exit::Refused.because(why, BEFORE_FORCE));
        }
        if dry_run {
            return Ok(());
        }
        args.change.confirm(&format!(
            "Replace all data of the mysqld of `{name}` with a copy from `{}`?",
            plan.donor
        ))?;
        let mut progress = Progress::new(format);
        let command = command(false, args.force);
        let tell = |told| progress.show(told);
        let ordered = ring.asker.at(place, &ring.directory, &command, until, tell);
        let done = ordered.await?;
        let CommandResult::Provisioned(done) = done else {
            return Err(another_answer(&done));
        };
        drop(progress);
        let json = about(place.id, name, false, &done);
        print(format, &json, || page(name, &done))?;
        match done.follows {
            true => Ok(()),
            false => Err(does_not_follow(
                name,
                "has its copy and does not follow yet",
            )),
        }
    })
}

fn does_not_follow(name: &str, state: &str) -> Failure {
    Exit::Error.because(
        format!("the mysqld of `{name}` {state}"),
        "check with `witness status` what it waits for",
    )
}

/// Chooses the donor: the follower with the smallest lag; without a follower, the primary.
fn best_donor(report: &RingReport, recipient: MemberId) -> Attempt<MemberId> {
    let others = report
        .members
        .iter()
        .filter(|member| member.id != recipient && member.kind == MemberKind::Database);
    let fit = others.filter_map(|member| {
        let mysql = member.view.as_ref()?.mysql.as_ref()?;
        let follows = mysql.follows();
        let fits = follows || mysql.writable;
        fits.then(|| (!follows, mysql.lag_ms.unwrap_or(u64::MAX), member.id))
    });
    fit.min().map(|(.., id)| id).ok_or_else(|| {
        Exit::Refused.because(
            "no other database member follows the ring or is its primary: no data can be copied",
            "check with `witness status`",
        )
    })
}

/// Describes the data that the mysqld would lose.
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
    let unknown = "  its schemas, whose sizes are not known: ";
    out += &lines(unknown, &plan.sizes_unknown);
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
    out += &lines("Lost: ", &done.not_kept);
    let state = match done.follows {
        true => "and follows the ring",
        false => "and does not follow yet",
    };
    let (donor, after) = (&done.donor, milliseconds(done.seconds));
    out + &format!("The mysqld of `{name}` has the data of `{donor}` {state}, after {after}\n")
}

/// Arguments of `witness replace-statement`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceStatementArgs {
    /// Name or number of the member with the stopped follower
    member: String,
    /// The transaction at which it is stopped, as `witness status` shows it
    #[arg(long)]
    gtid: String,
    /// The statement to execute under that GTID, with the names of schemas in it
    #[arg(long, value_name = "SQL")]
    statement: String,
    /// How long to wait for the end, e.g. 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// Runs `witness replace-statement`.
///
/// # Errors
/// Exit 4 if the follower has not stopped at this transaction, 1 if mysqld rejects the statement or does not follow afterwards, 5 if the
/// result is unknown.
pub(crate) fn replace_statement(args: &ReplaceStatementArgs, format: Format) -> Attempt {
    let (gtid, statement) = (args.gtid.as_str(), args.statement.as_str());
    args.ring.session(args.timeout, format, async |ring| {
        let place = ring.directory.find(&args.member)?;
        let name = place.name.as_str();
        args.consent.to(&format!(
            "Execute this at the mysqld of `{name}` in the place of {gtid}? Its data differ from those of other members, unless they \
             execute the same: {statement}"
        ))?;
        let command = OperatorCommand::ReplaceStatement {
            gtid: gtid.to_owned(),
            statement: statement.to_owned(),
        };
        let follows = match ring.at(place, command).await? {
            CommandResult::StatementReplaced { follows } => follows,
            other => return Err(another_answer(&other)),
        };
        let json = json!({ "name": name, "gtid": gtid, "follows": follows });
        print(format, &json, || {
            format!("The mysqld of `{name}` has executed it in the place of {gtid}\n")
        })?;
        match follows {
            true => Ok(()),
            false => Err(does_not_follow(name, "does not follow yet")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::protocol::KeptBinlog;
    use member::protocol::SchemaSize;

    #[test]
    fn losses_are_listed() {
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
    fn the_result_names_kept_files() {
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

//! `witness reload`: makes members reload their own configurations.

use member::protocol::{CommandResult, OperatorCommand, Reloaded};
use raft_types::MemberId;
use serde::Serialize;

use super::session::{DryRun, Patience, RingArgs, Session, another_answer, block_on};
use crate::operator::MemberAddress;
use crate::terminal::{Failure, Format, print_json, print_text};

/// Arguments of `witness reload`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    /// Names or numbers of the members; without one, all members of the ring
    #[arg(value_name = "MEMBER")]
    named: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
}

/// One member's output of `witness reload --output json`.
#[derive(Debug, Serialize)]
struct Document {
    member: MemberId,
    name: String,
    dry_run: bool,
    #[serde(flatten)]
    reloaded: Option<Reloaded>,
    error: Option<String>,
}

/// Runs `witness reload`. A refusing member does not prevent the reload of the others.
///
/// # Errors
/// That of the first member that did not reload: exit 4 when it refused, 3 when it does not answer, 5 when its result is unknown.
pub(crate) fn run(args: &ReloadArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let all = || report.members.iter().map(|member| member.id.to_string());
        let named = match &args.named[..] {
            [] => all().collect(),
            named => named.to_vec(),
        };
        let places = named.iter().map(|name| directory.find(name));
        let places: Vec<&MemberAddress> = places.collect::<Result<_, _>>()?;
        let until = args.patience.until();
        let (mut documents, mut first_failure) = (Vec::new(), None);
        for place in places {
            let command = args.dry_run.of(OperatorCommand::Reload);
            let operator = &session.operator;
            let told = operator
                .at(place, &directory, &command, until, |_| {})
                .await;
            let outcome = match told {
                Ok(CommandResult::Reloaded(reloaded)) => Ok(reloaded),
                Ok(other) => Err(another_answer(&other)),
                Err(failure) => Err(failure),
            };
            documents.push(Document {
                member: place.id,
                name: place.name.clone(),
                dry_run: args.dry_run.wanted(),
                error: outcome.as_ref().err().map(|failure| failure.what.clone()),
                reloaded: outcome.as_ref().ok().cloned(),
            });
            first_failure = first_failure.or(outcome.err());
        }
        match format {
            Format::Json => print_json(&documents)?,
            Format::Table => print_text(&documents.iter().map(line).collect::<String>())?,
        }
        first_failure.map_or(Ok(()), Err)
    })
}

fn line(document: &Document) -> String {
    let name = &document.name;
    let Some(reloaded) = &document.reloaded else {
        return format!("`{name}` has not reloaded\n");
    };
    let mut out = match document.dry_run {
        true => format!("`{name}` would reload its configuration\n"),
        false => format!("`{name}` has reloaded its configuration\n"),
    };
    for warning in &reloaded.warnings {
        out += &format!("  {warning}\n");
    }
    if !reloaded.needs_restart.is_empty() {
        let keys = reloaded.needs_restart.join("`, `");
        out += &format!("  needs a restart: `{keys}`\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_restart_is_named() {
        let document = |reloaded| Document {
            member: MemberId(2),
            name: "db-2".to_owned(),
            dry_run: false,
            reloaded,
            error: None,
        };
        let partly = Reloaded {
            needs_restart: vec!["log.keep_for".to_owned(), "raft.heartbeat".to_owned()],
            warnings: Vec::new(),
        };
        assert_eq!(
            line(&document(Some(partly))),
            "`db-2` has reloaded its configuration\n  needs a restart: `log.keep_for`, `raft.heartbeat`\n"
        );
        assert_eq!(line(&document(None)), "`db-2` has not reloaded\n");
    }
}

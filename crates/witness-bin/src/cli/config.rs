//! `witness config`: prints an initial configuration, checks a configuration, and prints the reference of all keys. `witness reload`: makes
//! members reload their own configurations.

use std::net::ToSocketAddrs;

use member::HeardHereAlone;
use member::protocol::{CommandResult, OperatorCommand, Reloaded};
use member::settings::{MemberEntry, Settings};
use serde_json::json;

use crate::cli::config_args::{ConfigArgs, counted};
use crate::cli::session::{OrderArgs, about, another_answer, dry_run_of};
use crate::config::{Config, Place, example, read, reference};
use crate::terminal::{Attempt, Exit, Format, print, print_text};
use crate::text::{self, ring};

/// Subcommands of `witness config`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a commented configuration to begin with: `witness config init > witness.toml`
    Init,
    /// Check a configuration and name every mistake with its line
    Check(ConfigArgs),
    /// Print the reference of every key, as Markdown
    Reference,
}

/// Runs `witness config`.
///
/// # Errors
/// Exit 1 if the file cannot be read, 2 if the configuration has mistakes.
pub(crate) fn run(command: &ConfigCommand, format: Format) -> Attempt {
    match command {
        ConfigCommand::Init => print_text(&example()),
        ConfigCommand::Reference => print_text(&reference()),
        ConfigCommand::Check(config) => check(config, format),
    }
}

fn check(config: &ConfigArgs, format: Format) -> Attempt {
    let sources = config.sources()?;
    let (mut config, mut problems) = read(&sources);
    let (name, place) = match &sources.file {
        None => ("the configuration", Place::Default),
        Some((file, _)) => (file.as_str(), Place::of_file(file)),
    };
    let alone = |read: &Config| heard_here_alone(&read.member);
    if let Some(alone) = config.as_ref().and_then(alone) {
        problems.warning(&place, "members.address", alone.what, alone.advice);
    }
    // Like a reload, this command checks whether other members would accept the certificate. A start omits this check, so that a member
    // with an expired certificate still starts.
    let certificate = config.as_ref().map(|read| read.member.check_certificate());
    if let Some(Err(error)) = certificate {
        problems.error(&place, "tls.certificate_file", error.to_string(), "");
        config = None;
    }
    // The configuration is valid if a member would start with it and the other members would accept its certificate.
    let valid = config.is_some();
    let json = json!({ "valid": valid, "problems": problems });
    print(format, &json, || {
        let verdict = match &config {
            Some(Config { member, .. }) => {
                let tolerated = ring::of_configuration(&member.rules, &member.members);
                let tolerated = tolerated.map_or_else(String::new, |clause| format!("; {clause}"));
                format!(
                    "is valid: member {} `{}` of ring `{}`{tolerated}",
                    member.own.id, member.own.name, member.ring_name
                )
            }
            None => format!("has {}", counted(problems.error_count())),
        };
        format!("{problems}{name} {verdict}\n")
    })?;
    Exit::Usage.unless(valid)
}

/// Reports a member that other hosts could not reach, because this host resolves its listen address to a loopback address. The member
/// resolves its address in the same way when it begins to listen.
fn heard_here_alone(settings: &Settings) -> Option<HeardHereAlone> {
    let mut found = settings.listens_at_its_address()?.to_socket_addrs().ok()?;
    settings.heard_here_alone(found.next()?.ip())
}

/// Arguments of `witness reload`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    /// Names or numbers of the members; without one, all members of the ring
    #[arg(value_name = "MEMBER")]
    named: Vec<String>,
    /// Only report what would happen; nothing is changed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    order: OrderArgs,
}

/// Runs `witness reload`. If one member refuses, the others reload nevertheless.
///
/// # Errors
/// The error of the first member that did not reload: exit 4 if it refused, 3 if it does not answer, 5 if the result is unknown.
pub(crate) fn reload(args: &ReloadArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        let places: Vec<&MemberEntry> = match &args.named[..] {
            [] => ring.directory.places().collect(),
            named => {
                let places = named.iter().map(|name| ring.directory.find(name));
                places.collect::<Result<_, _>>()?
            }
        };
        let command = dry_run_of(args.dry_run, OperatorCommand::Reload);
        let until = ring.until();
        let (mut documents, mut text, mut first_failure) = (Vec::new(), String::new(), None);
        for place in places {
            let outcome = match ring.at_until(place, &command, until).await {
                Ok(CommandResult::Reloaded(reloaded)) => Ok(reloaded),
                Ok(other) => Err(another_answer(&other)),
                Err(failure) => Err(failure),
            };
            let name = place.name.as_str();
            let mut json = about(place.id, name, args.dry_run, &outcome.as_ref().ok());
            json["error"] = json!(outcome.as_ref().err().map(|failure| &failure.what));
            documents.push(json);
            text += &lines(name, args.dry_run, outcome.as_ref().ok());
            first_failure = first_failure.or(outcome.err());
        }
        print(format, &documents, || text)?;
        first_failure.map_or(Ok(()), Err)
    })
}

fn lines(name: &str, dry_run: bool, reloaded: Option<&Reloaded>) -> String {
    let Some(reloaded) = reloaded else {
        return format!("`{name}` has not reloaded\n");
    };
    let mut out = match dry_run {
        true => format!("`{name}` would reload its configuration\n"),
        false => format!("`{name}` has reloaded its configuration\n"),
    };
    out += &text::lines("  ", &reloaded.warnings);
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
    fn keys_that_need_a_restart_are_listed() {
        let partly = Reloaded {
            needs_restart: vec!["log.keep_for".to_owned(), "raft.heartbeat".to_owned()],
            warnings: Vec::new(),
        };
        assert_eq!(
            lines("db-2", false, Some(&partly)),
            "`db-2` has reloaded its configuration\n  needs a restart: `log.keep_for`, `raft.heartbeat`\n"
        );
        assert_eq!(lines("db-2", false, None), "`db-2` has not reloaded\n");
    }
}

//! `witness config`: writes an initial configuration, checks one, and prints the reference of its keys.

use std::net::ToSocketAddrs;

use member::HeardHereAlone;
use member::settings::Settings;
use serde::Serialize;

use crate::cli::config_args::{ConfigArgs, counted};
use crate::config::{Place, Problem, example, read, reference};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};
use crate::text::tolerance;

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

/// Output of `witness config check --output json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether a member would start with it, and the others accept its certificate.
    valid: bool,
    problems: Vec<&'a Problem>,
}

/// Runs `witness config`.
///
/// # Errors
/// Exit 1 when the file cannot be read, 2 when it has mistakes.
pub(crate) fn run(command: &ConfigCommand, format: Format) -> Result<(), Failure> {
    match command {
        ConfigCommand::Init => print_text(&example()),
        ConfigCommand::Reference => print_text(&reference()),
        ConfigCommand::Check(config) => check(config, format),
    }
}

fn check(config: &ConfigArgs, format: Format) -> Result<(), Failure> {
    let sources = config.sources()?;
    let name = sources
        .file
        .as_ref()
        .map_or("the configuration", |(name, _)| name.as_str());
    let (mut config, mut problems) = read(&sources);
    let place = sources
        .file
        .as_ref()
        .map_or(Place::Default, |(file, _)| Place::File {
            file: file.clone(),
            line: 0,
            column: 0,
        });
    if let Some(alone) = config
        .as_ref()
        .and_then(|read| heard_here_alone(&read.member))
    {
        problems.warning(&place, "members.address", alone.what, alone.advice);
    }
    // A start does not check this: it would fail when a certificate has expired overnight.
    let certificate = config.as_ref().map(|read| read.member.check_certificate());
    if let Some(Err(error)) = certificate {
        problems.error(&place, "tls.certificate_file", error.to_string(), "");
        config = None;
    }
    match format {
        Format::Json => print_json(&Report {
            valid: config.is_some(),
            problems: problems.iter().collect(),
        })?,
        Format::Table => {
            let verdict = match (&config, problems.error_count()) {
                (Some(config), _) => format!(
                    "{name} is valid: member {} `{}` of ring `{}`{}\n",
                    config.member.own.id,
                    config.member.own.name,
                    config.member.ring_name,
                    tolerance::of_configuration(&config.member.rules, &config.member.members)
                        .map_or_else(String::new, |clause| format!("; {clause}"))
                ),
                (None, errors) => format!("{name} has {}\n", counted(errors)),
            };
            print_text(&format!("{problems}{verdict}"))?;
        }
    }
    if config.is_some() {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Usage))
    }
}

/// Resolves this member's address on this host, as the member does when it begins to listen.
fn heard_here_alone(settings: &Settings) -> Option<HeardHereAlone> {
    let mut found = settings.listens_at_its_address()?.to_socket_addrs().ok()?;
    settings.heard_here_alone(found.next()?.ip())
}

//! `witness check`: names every mistake of a configuration with its place.

use serde::Serialize;

use crate::cli::config_args::{ConfigArgs, counted};
use crate::config::{Problem, example, read, reference};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Print a commented configuration that validates, and nothing else
    #[arg(long, conflicts_with = "reference")]
    example: bool,
    /// Print the reference of every key, as Markdown
    #[arg(long)]
    reference: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// What `witness check --output json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether a member would start with it.
    valid: bool,
    problems: Vec<&'a Problem>,
}

/// Runs `witness check`.
///
/// # Errors
/// Exit 1 when the file cannot be read, 2 when it has mistakes.
pub(crate) fn run(args: &CheckArgs, format: Format) -> Result<(), Failure> {
    if args.example {
        return print_text(&example());
    }
    if args.reference {
        return print_text(&reference());
    }
    let sources = args.config.sources()?;
    let name = sources
        .file
        .as_ref()
        .map_or("the configuration", |(name, _)| name.as_str());
    let (config, problems) = read(&sources);
    match format {
        Format::Json => print_json(&Report {
            valid: config.is_some(),
            problems: problems.iter().collect(),
        })?,
        Format::Table => {
            let verdict = match (&config, problems.error_count()) {
                (Some(config), _) => format!(
                    "{name} is valid: member {} `{}` of ring `{}`\n",
                    config.member.own.id, config.member.own.name, config.member.ring_name
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

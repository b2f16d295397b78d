//! `witness bootstrap`: has the member of this host, which runs and waits, create the ring. For members that a service manager
//! starts, which `witness run --bootstrap` is not for.

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::RingId;
use serde::Serialize;

use crate::cli::config_args::ConfigArgs;
use crate::cli::session::{Consent, Patience, Session, another_answer, block_on};
use crate::terminal::{Failure, Format, print_json, print_text};

/// Arguments of `witness bootstrap`.
#[derive(Debug, clap::Args)]
pub(crate) struct BootstrapArgs {
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    config: ConfigArgs,
}

/// What `witness bootstrap --output json` prints.
#[derive(Debug, Serialize)]
struct Document {
    ring: String,
    ring_id: RingId,
}

/// Runs `witness bootstrap`.
///
/// # Errors
/// Exit 3 when the member does not answer, 4 when not all members are new or reachable, 5 when the ring is not made in time.
pub(crate) fn run(args: &BootstrapArgs, format: Format) -> Result<(), Failure> {
    let settings = args.config.member()?;
    let session = Session::configured(&args.config)?;
    args.consent.to(&format!(
        "Create the ring `{}` of {} members, with an empty log?",
        settings.ring_name,
        settings.members.len()
    ))?;
    block_on(async {
        let (_, directory) = session.ring().await?;
        let own = directory.find(&settings.own.id.to_string())?;
        let command = OperatorCommand::Bootstrap {
            origin: String::new(),
        };
        let until = args.patience.until();
        let operator = &session.operator;
        match operator
            .at(own, &directory, &command, until, |_| {})
            .await?
        {
            CommandResult::Bootstrapped(ring_id) => match format {
                Format::Json => print_json(&Document {
                    ring: settings.ring_name,
                    ring_id,
                }),
                Format::Table => print_text(&format!(
                    "ring `{}` exists: {ring_id}; `witness status` shows its members\n",
                    settings.ring_name
                )),
            },
            other => Err(another_answer(&other)),
        }
    })
}

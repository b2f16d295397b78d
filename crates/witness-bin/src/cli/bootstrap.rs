//! `witness bootstrap`: makes this host's running, waiting member create the ring. For members started by a service manager, where `witness
//! run --bootstrap` is unsuitable.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::RingId;
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::config_args::ConfigArgs;
use crate::cli::session::{Consent, Patience, Session, another_answer, block_on};
use crate::operator::Operator;
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Interval between checks for the first leader.
const LOOK: Duration = Duration::from_millis(100);

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

/// Output of `witness bootstrap --output json`.
#[derive(Debug, Serialize)]
struct Document {
    ring: String,
    ring_id: RingId,
}

/// Runs `witness bootstrap`.
///
/// # Errors
/// Exit 3 when the member does not answer, or the ring exists and gets no leader in time, 4 when not all members are new or reachable, 5
/// when the ring is not created in time.
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
        let result = operator
            .at(own, &directory, &command, until, |_| {})
            .await?;
        let CommandResult::Bootstrapped(ring_id) = result else {
            return Err(another_answer(&result));
        };
        has_leader(operator, &settings.ring_name, until).await?;
        match format {
            Format::Json => print_json(&Document {
                ring: settings.ring_name,
                ring_id,
            }),
            Format::Table => print_text(&format!(
                "ring `{}` exists: {ring_id}; `witness status` shows its members\n",
                settings.ring_name
            )),
        }
    })
}

/// Waits for a leader: a script after this command needs a ring that commits.
async fn has_leader(operator: &Operator, ring: &str, until: Instant) -> Result<(), Failure> {
    while operator.ring().await.leader.is_none() {
        if Instant::now() >= until {
            return Err(Failure::new(
                Exit::NoQuorum,
                format!("ring `{ring}` exists, and no member leads yet"),
                "check with `witness status` what it waits for",
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

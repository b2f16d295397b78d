//! `witness enable-raft`: takes a running primary and its replicas into a ring.

use std::time::Duration;

use member::conversion::{Direction, Enabling};

use crate::cli::config_args::ConfigArgs;
use crate::cli::conversion::arguments::{Given, StockArgs, host_and_port};
use crate::cli::conversion::screen::Screen;
use crate::cli::session::{Consent, block_on};
use crate::config::duration_of;
use crate::terminal::{Failure, Format};

/// Arguments of `witness enable-raft`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArgs {
    /// Only look, and say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    stock: StockArgs,
    /// The binlog server that the replicas without a member are to follow; its account is that of this [binlog_server] section
    #[arg(long, value_name = "HOST:PORT")]
    binlog_server: Option<String>,
    /// How long all of it may take, as in 30s or 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `witness enable-raft`.
///
/// # Errors
/// Exit 4 when there is an obstacle, 3 when a member does not answer, 5 when a step is not complete in time.
pub(crate) fn run(args: &EnableArgs, format: Format) -> Result<(), Failure> {
    let settings = args.config.member()?;
    let binlog_server = args
        .binlog_server
        .as_deref()
        .map(host_and_port)
        .transpose()?;
    let given = Given::new(settings, &args.stock)?;
    let members = given.members()?;
    let direction = Direction::EnableRaft;
    let screen = Screen {
        direction,
        format,
        dry_run: args.dry_run,
        consent: &args.consent,
        question: format!(
            "Create ring `{}` from these servers? Clients cannot write for a moment.",
            given.ring_name()
        ),
    };
    let end = |noticed: &str| {
        format!(
            "\nRing `{}` has taken over the primary of `{}`. {noticed}\n",
            given.ring_name(),
            given.own_name()
        )
    };
    block_on(async {
        let conversion = given.conversion(direction, &members, args.timeout);
        let mut course = Enabling::course(&conversion, binlog_server).await?;
        screen.go(&mut course, end).await
    })
}

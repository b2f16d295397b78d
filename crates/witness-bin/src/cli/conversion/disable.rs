//! `witness disable-raft`: restores plain MySQL replication, without moving the primary.

use std::path::PathBuf;
use std::time::Duration;

use member::conversion::{Detaching, Direction, ReplicationAccount};

use crate::cli::config_args::ConfigArgs;
use crate::cli::conversion::arguments::{Given, StockArgs, host_and_port, password_in};
use crate::cli::conversion::screen::Screen;
use crate::cli::session::{Consent, block_on};
use crate::config::duration_of;
use crate::terminal::{Failure, Format};

/// Arguments of `witness disable-raft`.
#[derive(Debug, clap::Args)]
pub(crate) struct DisableArgs {
    /// Only look, and say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Where the replicas reach the primary; without it the host of its member's address, and mysqld's port
    #[arg(long, value_name = "HOST:PORT")]
    source: Option<String>,
    /// The account at the primary that the replicas log in with; not that of the members
    #[arg(long, value_name = "USER", requires = "replication_password_file")]
    replication_user: Option<String>,
    /// The file on this host whose first line is that account's password, which the members are sent
    #[arg(long, value_name = "FILE", requires = "replication_user")]
    replication_password_file: Option<PathBuf>,
    #[command(flatten)]
    stock: StockArgs,
    /// How long all of it may take, as in 30s or 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `witness disable-raft`.
///
/// # Errors
/// Exit 4 when there is an obstacle, 3 when a member does not answer, 5 when a step is not complete in time.
pub(crate) fn run(args: &DisableArgs, format: Format) -> Result<(), Failure> {
    let settings = args.config.member()?;
    let account = ReplicationAccount {
        source: args.source.as_deref().map(host_and_port).transpose()?,
        login: args
            .replication_user
            .clone()
            .zip(args.replication_password_file.as_deref())
            .map(|(user, file)| password_in(file).map(|password| (user, password)))
            .transpose()?,
    };
    let given = Given::new(settings, &args.stock)?;
    let members = given.members()?;
    let direction = Direction::DisableRaft;
    let screen = Screen {
        direction,
        format,
        dry_run: args.dry_run,
        consent: &args.consent,
        question: format!(
            "Return the servers of ring `{}` to plain replication? There is no failover afterwards.",
            given.ring_name()
        ),
    };
    let end = |noticed: &str| {
        format!(
            "\nThe mysqld of `{}` is a plain primary. {noticed}\nThe members no longer manage any server; stop them when you like. Their data directories stay.\n",
            given.own_name()
        )
    };
    block_on(async {
        let conversion = given.conversion(direction, &members, args.timeout);
        let mut course = Detaching::course(&conversion, account).await?;
        screen.go(&mut course, end).await
    })
}

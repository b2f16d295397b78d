//! The command line: its commands and their results.

mod apply;
mod archive;
mod config;
pub(crate) mod config_args;
mod conversion;
mod failover;
mod history;
mod log;
mod members;
mod mysqld;
mod own_member;
pub(crate) mod process;
mod quorum;
mod run;
mod session;
pub(crate) mod status;
pub(crate) mod tls;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use crate::cli::config_args::ConfigArgs;
use crate::terminal::{Attempt, Exit, Failure, Format, print};

/// Consensus for MySQL as it ships: a ring of members keeps a replicaset's binlog.
#[derive(Debug, Parser)]
#[command(name = "witness", version, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 usage, 3 no quorum or not the leader, 4 refused \
precondition, 5 timed out with outcome unknown, 6 not allowed, 7 corruption found."
)]
struct Arguments {
    /// Form of what is printed
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one member of a ring, until SIGTERM or SIGINT
    Run(run::RunArgs),
    /// Create the ring: have the member of this host, which runs and waits, start it
    Bootstrap(own_member::BootstrapArgs),
    /// Guard process of a database member (started by `witness run`)
    #[command(hide = true)]
    Guard(Box<ConfigArgs>),
    /// Ask the member of this host whether it is alive, ready or the primary, as a container's health check
    Health(own_member::HealthArgs),
    /// Ask every member and show the ring
    Status(status::StatusArgs),
    /// Show what happened to the ring: its leaders, why they changed, and operators' orders
    History(history::HistoryArgs),
    /// List, add, update and remove members
    #[command(subcommand)]
    Members(members::MembersCommand),
    /// Switchover: make another member the leader, and its mysqld the primary
    Switchover(failover::SwitchoverArgs),
    /// Reprovision: replace a mysqld's data with a clone of another member's
    #[command(visible_alias = "reinit")]
    Reprovision(mysqld::ReprovisionArgs),
    /// Execute another statement where a follower is stopped at one that no server can execute
    ReplaceStatement(mysqld::ReplaceStatementArgs),
    /// Have members read their configuration again: certificates, passwords, tokens, log level and hooks
    Reload(config::ReloadArgs),
    /// Maintenance mode: no automatic failover until `resume`
    Pause(failover::PauseArgs),
    /// End maintenance mode: automatic failover again
    Resume(session::OrderArgs),
    /// Ask whether a member would be elected; changes nothing
    MockElection(failover::MockElectionArgs),
    /// Show what a commit waits for, and repair a quorum that is permanently lost
    #[command(subcommand)]
    Quorum(quorum::QuorumCommand),
    /// Take a running primary and its replicas into a ring; run next to the primary
    EnableRaft(Box<conversion::EnableArgs>),
    /// Turn a ring back into plain MySQL replication; run next to the primary
    DisableRaft(Box<conversion::DisableArgs>),
    /// Read a log on disk, whether or not its member runs
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Read the archive of a ring's log: verify it, get files of the log from it, and prune it
    #[command(subcommand)]
    Archive(archive::ArchiveCommand),
    /// Apply a log to a mysqld, in parallel by rows
    Apply(Box<apply::ApplyArgs>),
    /// Make the certificates of a ring, and show what is in a certificate
    #[command(subcommand)]
    Tls(tls::TlsCommand),
    /// Show a ring under load: members crash and come back, nothing acknowledged is lost
    #[cfg(feature = "demo")]
    Demo(crate::demo::DemoArgs),
    /// Write a configuration to begin with, check one, show every key
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the version of this program
    Version,
}

/// Returns the definition of the command line, for manual pages and shell completions.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap returns the help and the version as errors that print to standard output; they end the command successfully. A failure
            // to print, such as a closed pipe, is ignored.
            let _ = error.print();
            return match error.use_stderr() {
                true => Exit::Usage.into(),
                false => Exit::Done.into(),
            };
        }
    };
    let format = arguments.output;
    let outcome = match arguments.command {
        Command::Run(args) => run::run(&args),
        Command::Bootstrap(args) => own_member::bootstrap(&args, format),
        Command::Guard(args) => run::guard(&args),
        Command::Health(args) => own_member::health(&args, format),
        Command::Status(args) => status::run(&args, format),
        Command::History(args) => history::run(&args, format),
        Command::Members(command) => members::run(&command, format),
        Command::Switchover(args) => failover::switchover(&args, format),
        Command::Reprovision(args) => mysqld::reprovision(&args, format),
        Command::ReplaceStatement(args) => mysqld::replace_statement(&args, format),
        Command::Reload(args) => config::reload(&args, format),
        Command::Pause(args) => failover::pause(&args, format),
        Command::Resume(args) => failover::resume(&args, format),
        Command::MockElection(args) => failover::mock_election(&args, format),
        Command::Quorum(command) => quorum::run(&command, format),
        Command::EnableRaft(args) => conversion::enable(&args, format),
        Command::DisableRaft(args) => conversion::disable(&args, format),
        Command::Log(command) => log::run(&command, format),
        Command::Archive(command) => archive::run(&command, format),
        Command::Apply(args) => apply::run(&args, format),
        Command::Tls(command) => tls::run(&command, format),
        #[cfg(feature = "demo")]
        Command::Demo(args) => crate::demo::run(&args, format),
        Command::Config(command) => config::run(&command, format),
        Command::Version => version(format),
    };
    match outcome {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            complain(&failure, format);
            failure.exit.into()
        }
    }
}

/// Parses the command line in a separate thread. The definition of the commands briefly takes megabytes in many small allocations. On the
/// main thread, they would fragment the memory of a long-running member. The allocator returns the memory of a finished thread.
fn parse() -> Result<Arguments, clap::Error> {
    let parsing = std::thread::spawn(Arguments::try_parse);
    match parsing.join() {
        Ok(parsed) => parsed,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs `witness version`.
fn version(format: Format) -> Attempt {
    let version = env!("CARGO_PKG_VERSION");
    let json = serde_json::json!({ "version": version });
    print(format, &json, || format!("witness {version}\n"))
}

/// Prints on standard error why the command failed.
fn complain(failure: &Failure, format: Format) {
    use std::io::Write;
    if failure.what.is_empty() {
        return;
    }
    let mut err = std::io::stderr().lock();
    let _ = match format {
        Format::Table => writeln!(err, "witness: {failure}"),
        Format::Json => writeln!(
            err,
            "{}",
            serde_json::json!({
                "error": failure.what,
                "advice": failure.advice,
                "exit_code": failure.exit as u8,
            })
        ),
    };
}

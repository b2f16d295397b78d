//! A database member without a mysqld, for comparisons that measure only the ring. It is the whole node of `witness run`, with HTTP, and a
//! writer in place of the database. While the member serves as the leader, the writer commits small transactions at an even pace and
//! records each acknowledged one.
//!
//! `run` takes a member's configuration file. SIGUSR1 stops the writer, SIGTERM the member. `lost` compares the acknowledged commits with
//! the members' logs. `cargo lab compare failover` uses both.

mod account;
mod lost;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use account::Account;
use anyhow::{Context, Result, anyhow};
use clap::{Args, Parser, Subcommand};
use member::{Opened, Surroundings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use witness_bin::config::{Config, Sources, read};
use witness_bin::http::{Histograms, serve_member};

#[derive(Parser)]
#[command(about = "A database member with a writer in the place of mysqld")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the member
    Run(Run),
    /// Print acknowledged commits that are missing in any log, as JSON
    Lost(lost::Options),
}

#[derive(Args)]
struct Run {
    /// The member's configuration file
    #[arg(long)]
    config: PathBuf,
    /// Bootstrap the ring
    #[arg(long)]
    bootstrap: bool,
    /// File for acknowledged commits
    #[arg(long)]
    acknowledged: PathBuf,
    /// Transactions committed per second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    commits_per_second: u32,
    /// Bytes of the text in each; with 330 a transaction takes about 500 bytes in the log
    #[arg(long, default_value_t = 330)]
    text_bytes: u16,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Lost(options) => lost::run(&options),
        Command::Run(options) => {
            let config = load(&options)?;
            start_log(&config)?;
            tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()?
                .block_on(run(config, &options))
        }
    }
}

/// Reads the configuration file, and removes its mysqld.
fn load(options: &Run) -> Result<Config> {
    let name = options.config.display().to_string();
    let text =
        std::fs::read_to_string(&options.config).with_context(|| format!("cannot read {name}"))?;
    let (config, problems) = read(&Sources {
        file: Some((name, text)),
        ..Sources::default()
    });
    let mut config = config.ok_or_else(|| anyhow!("{problems}"))?;
    config.member.mysql = None;
    Ok(config)
}

fn start_log(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(format!("openraft=error,sled=warn,{}", config.logging.level))?;
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .json()
        .flatten_event(true)
        .try_init();
    started.map_err(|error| anyhow!("{error}"))
}

async fn run(config: Config, options: &Run) -> Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quiet = signal(SignalKind::user_defined1())?;
    let account = Account::open(&options.acknowledged)?;
    let mut opened = Opened::open(config.member.clone(), Surroundings::default()).await?;
    serve_member(&config, &opened, &Histograms::default()).await?;
    let joined = tokio::select! {
        joined = opened.join(options.bootstrap) => joined?,
        _ = end.recv() => return Ok(opened.close().await?),
        _ = interrupt.recv() => return Ok(opened.close().await?),
    };
    let member = opened.take_part(joined).await?;
    let ring = member.ring().clone();
    let stop_writing = CancellationToken::new();
    let interval = Duration::from_secs(1) / options.commits_per_second;
    let writing = writer::write(
        ring,
        account,
        interval,
        options.text_bytes,
        stop_writing.clone(),
    );
    let mut writing = tokio::spawn(writing);
    let mut written = None;
    loop {
        tokio::select! {
            error = member.failed() => {
                member.end_failed().await?;
                return Err(error.into());
            }
            done = &mut writing, if written.is_none() => written = Some(done??),
            _ = quiet.recv() => stop_writing.cancel(),
            _ = end.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    stop_writing.cancel();
    member.stop().await?;
    if written.is_none() {
        writing.await??;
    }
    Ok(())
}

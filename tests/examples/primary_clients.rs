//! Clients of a replicaset for comparisons: an ordinary account that finds the primary by its members' `/primary`, again after every error.
//! They insert numbered rows at an even pace, and record each acknowledged one in the account of the answering server. SIGTERM ends them
//! after their pending commits.
//!
//! `cargo lab compare failover --mysql` uses it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use mysql_link::{ConnectOptions, Connection, Endpoint};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use witness_tests::{Place, connect_to_primary};

/// Pause between two searches for the primary.
const LOOK_PAUSE: Duration = Duration::from_millis(2);
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// If an answer takes longer than this, the client searches for the primary again.
const STATEMENT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(about = "Clients that write to the member that reports to be the primary")]
struct Arguments {
    /// A server: its member's HTTP address, its socket, and the file for its acknowledged commits
    #[arg(long = "server", required = true, value_name = "HTTP,SOCKET,ACCOUNT")]
    servers: Vec<Server>,
    /// Number of clients
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Transactions per second of all clients together
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    commits_per_second: u32,
    /// Their account
    #[arg(long)]
    user: String,
    /// Its password
    #[arg(long)]
    password: String,
    /// The table, with its schema: (BIGINT UNSIGNED, VARCHAR)
    #[arg(long)]
    table: String,
}

#[derive(Clone, Debug)]
struct Server {
    place: Place,
    account: PathBuf,
}

impl FromStr for Server {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, ',');
        let mut part = || {
            parts
                .next()
                .ok_or_else(|| anyhow!("{text} is not HTTP,SOCKET,ACCOUNT"))
        };
        Ok(Self {
            place: Place {
                http: part()?.parse()?,
                socket: part()?.into(),
            },
            account: part()?.into(),
        })
    }
}

struct Shared {
    arguments: Arguments,
    next: AtomicU64,
    stop: CancellationToken,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(arguments))
}

async fn run(arguments: Arguments) -> Result<()> {
    let shared = Arc::new(Shared {
        arguments,
        next: AtomicU64::new(1),
        stop: CancellationToken::new(),
    });
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..shared.arguments.clients {
        clients.spawn(live(shared.clone(), number));
    }
    let mut end = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = end.recv() => shared.stop.cancel(),
            ended = clients.join_next() => match ended {
                Some(ended) => ended??,
                None => return Ok(()),
            },
        }
    }
}

/// Runs one client until it is stopped.
async fn live(shared: Arc<Shared>, number: u32) -> Result<()> {
    let arguments = &shared.arguments;
    let pace = Duration::from_secs(1) * arguments.clients / arguments.commits_per_second;
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The clients do not all begin at the same time.
    tokio::time::sleep(pace * number / arguments.clients).await;
    let mut connected: Option<(Connection, File)> = None;
    while !shared.stop.is_cancelled() {
        let Some((connection, account)) = &mut connected else {
            connected = find(arguments).await?;
            if connected.is_none() {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            continue;
        };
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let insert = format!(
            "INSERT INTO {} VALUES ({id}, REPEAT('x', 100))",
            arguments.table
        );
        match connection.execute(&insert).await {
            Ok(_) => {
                let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
                // One write for each line, so that concurrent readers see whole lines.
                account.write_all(format!("{at} {id}\n").as_bytes())?;
                ticks.tick().await;
            }
            Err(_) => connected = None,
        }
    }
    Ok(())
}

/// Connects to the member that reports that it is the primary. Returns the connection and the file for its acknowledged commits.
async fn find(arguments: &Arguments) -> Result<Option<(Connection, File)>> {
    let servers = &arguments.servers;
    let places: Vec<Place> = servers.iter().map(|server| server.place.clone()).collect();
    let options = |socket: &Path| {
        let endpoint = Endpoint::unix(socket);
        let mut options =
            ConnectOptions::new(endpoint, &arguments.user, arguments.password.as_str());
        options.timeouts.statement = STATEMENT_LIMIT;
        options
    };
    let Some((index, connection)) = connect_to_primary(&places, LOOK_LIMIT, options).await else {
        return Ok(None);
    };
    let path = &servers[index].account;
    let account = OpenOptions::new().create(true).append(true).open(path);
    let account = account.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Some((connection, account)))
}

//! Clients that insert numbered rows into `acked.rows`. They record the acknowledged commits with their times and latencies.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError};
use testkit::cluster::{CLIENT, CLIENT_PASSWORD, Cluster, http_get_within};
use testkit::mysqld::Mysqld;

use crate::written_rows::{Record, WrittenRows, insert};

/// If an answer takes longer than this, the client searches for the primary again. The outcome of its commit is then
/// unknown.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Longer than any wait that a test causes intentionally.
const ADMINISTRATOR_LIMIT: Duration = Duration::from_secs(120);
/// The pause of a writer after each commit. Without one, the writers of a single test keep all cores busy, and everything that the test
/// waits for takes longer.
const COMMIT_PAUSE: Duration = Duration::from_millis(20);
const LOOK_PAUSE: Duration = Duration::from_millis(5);
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// A database member, and its mysqld.
#[derive(Clone, Debug)]
pub struct Place {
    /// The member's HTTP address.
    pub http: SocketAddr,
    /// The socket of the member's mysqld.
    pub socket: PathBuf,
}

/// How a writer finds its server.
#[derive(Clone, Debug)]
enum Way {
    /// As the administrator of the mysqld with this socket, whatever the server's role.
    At(PathBuf),
    /// As a client that asks each member for the primary, and again after every error.
    Asking(Vec<Place>),
    /// As a client of a proxy with this address.
    Through(SocketAddr),
}

/// Running writers.
pub struct Writers {
    stop: Arc<AtomicBool>,
    record: Record,
    thread: JoinHandle<Result<()>>,
}

impl Writers {
    /// Starts this many writers, which connect to a server over its socket. Their first row has the number `first_id`.
    #[must_use]
    pub fn at(server: &Mysqld, writers: u64, first_id: u64) -> Self {
        Self::on(Way::At(server.socket()), writers, first_id, COMMIT_PAUSE)
    }

    /// As [`Self::at`], with the current primary of a cluster.
    #[must_use]
    pub fn of(cluster: &Cluster, writers: u64, first_id: u64) -> Self {
        Self::on(Way::to(cluster), writers, first_id, COMMIT_PAUSE)
    }

    /// As [`Self::of`], without pauses: to fill a disk or a queue.
    #[must_use]
    pub fn without_pauses(cluster: &Cluster, writers: u64, first_id: u64) -> Self {
        Self::on(Way::to(cluster), writers, first_id, Duration::ZERO)
    }

    /// As [`Self::at`], for clients that have only an address, which must lead to the primary.
    #[must_use]
    pub fn through(address: SocketAddr, writers: u64, first_id: u64) -> Self {
        Self::on(Way::Through(address), writers, first_id, COMMIT_PAUSE)
    }

    fn on(way: Way, writers: u64, first_id: u64, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let record = Record::default();
        let thread = thread::spawn({
            let (stop, record) = (stop.clone(), record.clone());
            let next = Arc::new(AtomicU64::new(first_id));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(async {
                    let mut tasks = tokio::task::JoinSet::new();
                    for writer in 0..writers {
                        let (next, stop, record) = (next.clone(), stop.clone(), record.clone());
                        let way = way.clone();
                        tasks.spawn(async move {
                            write(writer, &way, &next, &stop, &record, pause).await;
                        });
                    }
                    while let Some(ended) = tasks.join_next().await {
                        ended?;
                    }
                    Ok(())
                })
            }
        });
        Self {
            stop,
            record,
            thread,
        }
    }

    /// Returns the number of acknowledged commits so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.record.acknowledged()
    }

    /// Waits until `more` further commits are acknowledged. Returns how long it took.
    ///
    /// # Errors
    /// If it takes longer than `limit`.
    pub fn wait_for_more(&self, more: usize, limit: Duration) -> Result<Duration> {
        self.record.wait_for_more(more, limit)
    }

    /// Waits until every writer has finished its pending commit. Returns all attempted commits.
    ///
    /// # Errors
    /// If a writer could not run.
    pub fn finish(self) -> Result<WrittenRows> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended
            .map_err(|_| anyhow!("the writers panicked"))?
            .context("a writer could not run")?;
        Ok(self.record.written())
    }
}

async fn write(
    writer: u64,
    way: &Way,
    next: &AtomicU64,
    stop: &AtomicBool,
    record: &Record,
    pause: Duration,
) {
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut connection else {
            connection = way.connect().await;
            if connection.is_none() {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            continue;
        };
        let id = next.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = connected.execute(&insert(id, writer)).await;
        let error = answer.err().map(|error| error.to_string());
        if error.is_some() {
            connection = None;
        }
        record.add(id, started, error);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Way {
    fn to(cluster: &Cluster) -> Self {
        let members = cluster.databases().into_iter();
        let places = members.map(|member| Place {
            http: cluster.http(member),
            socket: cluster.server(member).socket(),
        });
        Self::Asking(places.collect())
    }

    async fn connect(&self) -> Option<Connection> {
        match self {
            Self::At(socket) => {
                let mut options = ConnectOptions::new(Endpoint::unix(socket), "root", "");
                options.timeouts.statement = ADMINISTRATOR_LIMIT;
                Connection::open(&options).await.ok()
            }
            Self::Asking(places) => {
                let options = |socket: &Path| client(Endpoint::unix(socket), CLIENT_LIMIT);
                let found = connect_to_primary(places, LOOK_LIMIT, options).await;
                found.map(|(_, connection)| connection)
            }
            Self::Through(address) => {
                let endpoint = Endpoint::tcp(address.ip().to_string(), address.port());
                let options = client(endpoint, CLIENT_LIMIT);
                Connection::open(&options).await.ok()
            }
        }
    }
}

/// Connects to the member that reports that it is the primary. Returns the connection and the index in `places`. A member
/// that does not answer within `limit` is skipped.
pub async fn connect_to_primary(
    places: &[Place],
    limit: Duration,
    options: impl Fn(&Path) -> ConnectOptions,
) -> Option<(usize, Connection)> {
    for (index, place) in places.iter().enumerate() {
        let http = place.http;
        let ask = move || http_get_within(http, "/primary", limit);
        let asked = tokio::task::spawn_blocking(ask).await;
        let is_primary = asked.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status == 200));
        if is_primary && let Ok(connection) = Connection::open(&options(&place.socket)).await {
            return Some((index, connection));
        }
    }
    None
}

/// Opens a session of the clients' account over mysqld's socket, with this time limit for each statement.
///
/// # Errors
/// If mysqld refuses the login.
pub async fn client_session(socket: &Path, limit: Duration) -> Result<Connection, LinkError> {
    Connection::open(&client(Endpoint::unix(socket), limit)).await
}

fn client(endpoint: Endpoint, limit: Duration) -> ConnectOptions {
    let mut options = ConnectOptions::new(endpoint, CLIENT, CLIENT_PASSWORD);
    options.timeouts.statement = limit;
    options
}

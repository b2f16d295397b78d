//! Clients as an application has them: an ordinary account, the primary found by its members' `/primary`, and another look
//! for it after every error. They insert numbered rows and remember which commits were acknowledged.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::ring::http_get;

use crate::replicaset::{CLIENT, CLIENT_PASSWORD, Replicaset};
use crate::written_rows::{Record, WrittenRows, insert};

/// A client that waits longer for an answer looks for the primary again; what became of its commit it does not know.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// A database member, and the mysqld beside it.
#[derive(Clone, Debug)]
struct Place {
    http: SocketAddr,
    socket: PathBuf,
}

/// How a client comes to the primary.
#[derive(Clone, Debug)]
enum Way {
    /// It asks each member.
    Asking(Vec<Place>),
    /// Somebody at this address sends it there.
    Through(SocketAddr),
}

/// Writers that run until they are stopped. Rows go to `acked.rows`.
pub struct ClientWriters {
    stop: Arc<AtomicBool>,
    record: Record,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl ClientWriters {
    /// Starts so many clients. Their first row is `first_id`.
    #[must_use]
    pub fn start(set: &Replicaset, writers: u64, first_id: u64) -> Self {
        let places = set.sockets().into_iter().map(|(member, socket)| Place {
            http: set.ring.http(member),
            socket,
        });
        Self::on(&Way::Asking(places.collect()), writers, first_id)
    }

    /// The same, of clients that know nothing but an address, which is to lead to the primary.
    #[must_use]
    pub fn start_through(address: SocketAddr, writers: u64, first_id: u64) -> Self {
        Self::on(&Way::Through(address), writers, first_id)
    }

    fn on(way: &Way, writers: u64, first_id: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let record = Record::default();
        let next = Arc::new(AtomicU64::new(first_id));
        let threads = (0..writers).map(|writer| {
            let (stop, record, next) = (stop.clone(), record.clone(), next.clone());
            let way = way.clone();
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(write(writer, &way, &next, &stop, &record));
                Ok(())
            })
        });
        let threads = threads.collect();
        Self {
            stop,
            record,
            threads,
        }
    }

    /// How many commits were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.record.acknowledged()
    }

    /// Waits until `more` further commits are acknowledged.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub fn wait_for_more(&self, more: usize, limit: Duration) -> Result<Duration> {
        self.record.wait_for_more(more, limit)
    }

    /// Ends them, and returns what they tried.
    ///
    /// # Errors
    /// When one could not run.
    pub fn finish(mut self) -> Result<WrittenRows> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread
                .join()
                .map_err(|_| anyhow!("a client panicked"))?
                .context("a client could not run")?;
        }
        Ok(self.record.written())
    }
}

async fn write(writer: u64, way: &Way, next: &AtomicU64, stop: &AtomicBool, record: &Record) {
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut connection else {
            connection = match way {
                Way::Asking(places) => find(places).await,
                Way::Through(address) => {
                    let (host, port) = (address.ip().to_string(), address.port());
                    open(Endpoint::tcp(host, port)).await
                }
            };
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
    }
}

/// A connection to who says that it is the primary.
async fn find(places: &[Place]) -> Option<Connection> {
    for place in places {
        let http = place.http;
        let asked = tokio::task::spawn_blocking(move || http_get(http, "/primary"));
        let is_primary = asked
            .await
            .is_ok_and(|answer| answer.is_ok_and(|answer| answer.status == 200));
        if !is_primary {
            continue;
        }
        if let Some(connection) = open(Endpoint::unix(&place.socket)).await {
            return Some(connection);
        }
    }
    None
}

async fn open(endpoint: Endpoint) -> Option<Connection> {
    let mut options = ConnectOptions::new(endpoint, CLIENT, CLIENT_PASSWORD);
    options.timeouts.statement = STATEMENT_LIMIT;
    Connection::open(&options).await.ok()
}

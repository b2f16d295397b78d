//! Clients that write through HAProxy continuously. Records each acknowledgement with its time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::MysqlClient;
use testkit::wait::eventually;

const SESSIONS: u64 = 2;
/// Time limit for a statement. Afterwards the client reconnects and writes another row.
const STATEMENT_LIMIT: Duration = Duration::from_secs(3);
const BETWEEN: Duration = Duration::from_millis(50);

/// The running clients. Dropping this value ends them.
pub(super) struct Writer {
    shared: Arc<Shared>,
    sessions: Vec<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    next: AtomicU64,
    acknowledged: Mutex<Vec<Acknowledged>>,
    /// The last error of a client.
    failure: Mutex<String>,
}

/// An acknowledged row.
#[derive(Clone, Copy)]
struct Acknowledged {
    id: u64,
    began: Instant,
    at: Instant,
}

impl Writer {
    /// Starts clients that write rows into a table with a column `id`.
    pub(super) fn start(
        tree: &MysqlTree,
        address: SocketAddr,
        (user, password): (&str, &str),
        table: &'static str,
    ) -> Self {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            next: AtomicU64::new(1),
            acknowledged: Mutex::default(),
            failure: Mutex::default(),
        });
        let sessions = (0..SESSIONS).map(|_| {
            let client = MysqlClient::over_tcp(tree, address, user, password);
            let shared = shared.clone();
            thread::spawn(move || shared.write(&client, table))
        });
        Self {
            sessions: sessions.collect(),
            shared,
        }
    }

    /// Waits until a row that was begun after `since` is acknowledged. Returns the time from `since` to the acknowledgement.
    ///
    /// # Errors
    /// No row is acknowledged within the limit.
    pub(super) fn wrote_again(&self, since: Instant, limit: Duration) -> Result<Duration> {
        eventually("clients write", limit, || {
            let failed = || self.shared.failure.lock().map(|error| error.clone());
            self.first_since(since)
                .ok_or_else(|| failed().unwrap_or_default())
        })
    }

    fn first_since(&self, since: Instant) -> Option<Duration> {
        let first = self
            .acknowledged()
            .into_iter()
            .find(|row| row.began >= since)?;
        Some(first.at - since)
    }

    /// Returns whether a row that was begun after `since` was acknowledged.
    pub(super) fn has_written_since(&self, since: Instant) -> bool {
        self.first_since(since).is_some()
    }

    /// Returns the longest time without an acknowledgement since `since`.
    pub(super) fn longest_gap(&self, since: Instant) -> Duration {
        let mut last = since;
        let mut longest = Duration::ZERO;
        for row in self.acknowledged() {
            if row.at > last {
                longest = longest.max(row.at - last);
                last = row.at;
            }
        }
        longest
    }

    /// Ends the clients. Returns the acknowledged rows.
    pub(super) fn stop(mut self) -> BTreeSet<u64> {
        self.end();
        self.acknowledged().into_iter().map(|row| row.id).collect()
    }

    fn acknowledged(&self) -> Vec<Acknowledged> {
        let rows = self.shared.acknowledged.lock();
        rows.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for session in self.sessions.drain(..) {
            let _ = session.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn write(&self, client: &MysqlClient, table: &str) {
        while !self.stop.load(Ordering::Relaxed) {
            let (id, began) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
            let insert = format!("INSERT INTO {table} (id) VALUES ({id})");
            // After an error, the outcome of the row is unknown. The row is not written again.
            match client.sql_within(&insert, STATEMENT_LIMIT) {
                Ok(_) => {
                    let at = Instant::now();
                    let row = Acknowledged { id, began, at };
                    let rows = self.acknowledged.lock();
                    rows.unwrap_or_else(PoisonError::into_inner).push(row);
                }
                Err(error) => {
                    let failure = self.failure.lock();
                    *failure.unwrap_or_else(PoisonError::into_inner) = format!("{error:#}");
                }
            }
            thread::sleep(BETWEEN);
        }
    }
}

//! Statements sent to a server at given times: a load of a given rate, and queries during it.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;

use crate::bounded_run::Running;
use crate::mysqld::workload::Workload;
use crate::mysqld::{MysqlClient, Mysqld};

/// After the end a client that does not answer is killed; the server may finish the statements that it received.
const GRACE: Duration = Duration::from_millis(500);

/// The schedule of statements.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one to the next; `None`: as fast as the server accepts them. A late one is followed by the next immediately.
    pub interval: Option<Duration>,
    /// The first one.
    pub from: Instant,
    /// Nothing is sent after this.
    pub until: Instant,
}

/// A client that sends statements at a pace. Dropping it kills the client.
#[derive(Debug)]
pub struct Paced {
    running: Running,
    until: Instant,
    sent: Arc<AtomicU64>,
}

impl Paced {
    /// Starts to send the result of `text` for each number from 0 on.
    ///
    /// # Errors
    /// When the client cannot be started.
    pub fn start(
        client: &MysqlClient,
        pace: Pace,
        mut text: impl FnMut(u64) -> String + Send + 'static,
    ) -> Result<Self> {
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let feed = move |mut to: ChildStdin| {
            for number in 0.. {
                let now = Instant::now();
                let nanos = pace.interval.unwrap_or_default().as_nanos() * u128::from(number);
                let due =
                    pace.from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
                if now.max(due) >= pace.until {
                    return;
                }
                thread::sleep(due.saturating_duration_since(now));
                // The client has ended.
                if to.write_all(text(number).as_bytes()).is_err() {
                    return;
                }
                counted.fetch_add(1, Relaxed);
            }
        };
        Ok(Self {
            running: client.fed_by(feed)?,
            until: pace.until,
            sent,
        })
    }

    /// Waits for the end. Returns the server's answers and the number of texts sent; one more or less may be in flight.
    ///
    /// # Errors
    /// When the client stopped with an error.
    pub fn finish(self) -> Result<(String, u64)> {
        let rest = self.until.saturating_duration_since(Instant::now());
        let done = self.running.finish_or_kill(rest + GRACE)?;
        Ok((
            String::from_utf8_lossy(&done.stdout).into_owned(),
            self.sent.load(Relaxed),
        ))
    }
}

/// A load of one rate.
#[derive(Clone, Copy, Debug)]
pub struct PacedLoad {
    /// Transactions a second of all clients together; `None`: as many as the server accepts.
    pub per_second: Option<f64>,
    /// Concurrent clients.
    pub clients: u32,
    /// How long.
    pub duration: Duration,
    /// The random seed, which also numbers the transactions: it must be unique among the loads of one server.
    pub seed: u32,
}

impl PacedLoad {
    /// Runs it to its end.
    ///
    /// # Errors
    /// When a client cannot be started.
    pub fn run(self, workload: Workload, server: &Mysqld) -> Result<()> {
        let began = Instant::now();
        let clients = f64::from(self.clients.max(1));
        let between = self.per_second.map(|rate| clients / rate.max(0.1));
        let client = |number: u32| {
            let mut dice = Rng::with_seed(u64::from(self.seed) << 32 | u64::from(number));
            let first = u64::from(self.seed) << 32 | u64::from(number) << 24;
            let schema = workload.schema();
            let offset = between.unwrap_or_default() * f64::from(number) / clients;
            let pace = Pace {
                interval: between.map(Duration::from_secs_f64),
                from: began + Duration::from_secs_f64(offset),
                until: began + self.duration,
            };
            Paced::start(&server.client(), pace, move |at| {
                let text = workload.transaction(first + at, &mut dice);
                match at {
                    0 => format!("USE {schema};\n{text}"),
                    _ => text,
                }
            })
        };
        let all: Result<Vec<_>> = (0..self.clients).map(client).collect();
        for one in all? {
            one.finish()?;
        }
        Ok(())
    }
}

//! Sends statements to a server at given times: a workload at a given rate, and queries during it.

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

/// After the end of the schedule, a client that does not answer within this time is killed. The server may still execute
/// the statements that it received.
const GRACE: Duration = Duration::from_millis(500);

/// The times at which statements are sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time between two statements; `None`: as fast as the server accepts them. If a statement is late, the next one
    /// follows immediately.
    pub interval: Option<Duration>,
    /// When the first statement is sent.
    pub from: Instant,
    /// No statement is sent after this time.
    pub until: Instant,
}

/// A client that sends statements on a schedule. Dropping it kills the client.
#[derive(Debug)]
pub struct Paced {
    running: Running,
    until: Instant,
    sent: Arc<AtomicU64>,
}

impl Paced {
    /// Starts to send `text(n)` for n = 0, 1, 2 and so on.
    ///
    /// # Errors
    /// If the client cannot be started.
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

    /// Waits for the end of the schedule. Returns the server's answers, and the number of texts sent. One more or one
    /// less may be in flight.
    ///
    /// # Errors
    /// If the client stopped with an error.
    pub fn finish(self) -> Result<(String, u64)> {
        let rest = self.until.saturating_duration_since(Instant::now());
        let done = self.running.finish_or_kill(rest + GRACE)?;
        Ok((
            String::from_utf8_lossy(&done.stdout).into_owned(),
            self.sent.load(Relaxed),
        ))
    }
}

/// A load at a given rate.
#[derive(Clone, Copy, Debug)]
pub struct PacedLoad {
    /// Transactions per second of all clients together; `None`: as many as the server accepts.
    pub per_second: Option<f64>,
    /// The number of concurrent clients.
    pub clients: u32,
    /// How long the load runs.
    pub duration: Duration,
    /// The random seed. It also determines the transactions' numbers, so it must be unique among the loads of one
    /// server.
    pub seed: u32,
}

impl PacedLoad {
    /// Runs the load to its end.
    ///
    /// # Errors
    /// If a client cannot be started.
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

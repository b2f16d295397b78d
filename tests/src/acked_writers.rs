//! Clients that insert numbered rows and remember which commits the server acknowledged, when, and how long each took.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::mysqld::Mysqld;

/// Longer than any wait that a test provokes on purpose.
const STATEMENT_LIMIT: Duration = Duration::from_secs(120);
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// One commit that was tried.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The row's number.
    pub id: u64,
    /// When it was sent.
    pub started: Instant,
    /// How long its answer took.
    pub took: Duration,
    /// The server's error; `None` if it was acknowledged.
    pub error: Option<String>,
}

/// The rows that were tried, for comparison with those that are there.
#[derive(Clone, Debug, Default)]
pub struct WrittenRows {
    /// Every commit, in the order of the answers.
    pub commits: Vec<Commit>,
}

/// Writers that run until they are stopped. Rows go to `acked.rows`.
pub struct AckedWriters {
    stop: Arc<AtomicBool>,
    commits: Arc<Mutex<Vec<Commit>>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl AckedWriters {
    /// Makes the table, if it is not there yet.
    ///
    /// # Errors
    /// With the server's message.
    pub fn prepare(server: &Mysqld) -> Result<()> {
        server.client().sql(
            "CREATE DATABASE IF NOT EXISTS acked; \
             CREATE TABLE IF NOT EXISTS acked.rows (id BIGINT UNSIGNED PRIMARY KEY, writer INT, note VARCHAR(64))",
        )?;
        Ok(())
    }

    /// Starts `writers` clients over the server's socket. Their first row is `first_id`.
    #[must_use]
    pub fn start(server: &Mysqld, writers: u64, first_id: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let commits = Arc::new(Mutex::new(Vec::new()));
        let next = Arc::new(AtomicU64::new(first_id));
        let socket = server.socket();
        let thread = thread::spawn({
            let (stop, commits) = (stop.clone(), commits.clone());
            move || write_until_stopped(&socket, writers, &next, &stop, &commits)
        });
        Self {
            stop,
            commits,
            thread: Some(thread),
        }
    }

    /// How many commits were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.lock()
            .iter()
            .filter(|commit| commit.error.is_none())
            .count()
    }

    /// Waits until `more` further commits are acknowledged.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub fn wait_for_more(&self, more: usize, limit: Duration) -> Result<Duration> {
        let (started, wanted) = (Instant::now(), self.acknowledged() + more);
        while self.acknowledged() < wanted {
            if started.elapsed() > limit {
                return Err(anyhow!("no {more} further commits within {limit:?}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(started.elapsed())
    }

    /// Lets every writer finish the commit that it waits for, and returns all of them.
    ///
    /// # Errors
    /// When a writer could not connect at all.
    pub fn finish(mut self) -> Result<WrittenRows> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("finished once")?;
        thread.join().map_err(|_| anyhow!("a writer panicked"))??;
        Ok(WrittenRows {
            commits: self.lock().clone(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Commit>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WrittenRows {
    /// The numbers of the acknowledged rows.
    #[must_use]
    pub fn acknowledged(&self) -> BTreeSet<u64> {
        self.commits
            .iter()
            .filter(|commit| commit.error.is_none())
            .map(|commit| commit.id)
            .collect()
    }

    /// The errors, each with its row.
    #[must_use]
    pub fn errors(&self) -> Vec<(u64, String)> {
        self.commits
            .iter()
            .filter_map(|commit| Some((commit.id, commit.error.clone()?)))
            .collect()
    }

    /// The longest wait for an acknowledgement.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.commits
            .iter()
            .map(|commit| commit.took)
            .max()
            .unwrap_or_default()
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.commits.extend(more.commits);
        self
    }
}

fn write_until_stopped(
    socket: &PathBuf,
    writers: u64,
    next: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
    commits: &Arc<Mutex<Vec<Commit>>>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let mut options = ConnectOptions::new(Endpoint::unix(socket), "root", "");
                options.timeouts.statement = STATEMENT_LIMIT;
                let (next, stop, commits) = (next.clone(), stop.clone(), commits.clone());
                tokio::spawn(
                    async move { one_writer(writer, &options, &next, &stop, &commits).await },
                )
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}

async fn one_writer(
    writer: u64,
    options: &ConnectOptions,
    next: &AtomicU64,
    stop: &AtomicBool,
    commits: &Mutex<Vec<Commit>>,
) -> Result<()> {
    let mut connection = Connection::open(options)
        .await
        .context("a writer cannot connect")?;
    while !stop.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = connection
            .execute(&format!(
                "INSERT INTO acked.rows VALUES ({id}, {writer}, REPEAT('x', {}))",
                id % 60
            ))
            .await;
        let error = answer.err().map(|error| error.to_string());
        let failed = error.is_some();
        commits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Commit {
                id,
                started,
                took: started.elapsed(),
                error,
            });
        if failed {
            tokio::time::sleep(RECONNECT_PAUSE).await;
            if let Ok(again) = Connection::open(options).await {
                connection = again;
            }
        }
    }
    connection.close().await;
    Ok(())
}

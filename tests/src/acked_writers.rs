//! Clients that insert numbered rows and remember which commits the server acknowledged, when, and how long each took.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::mysqld::Mysqld;

use crate::written_rows::{MAKE_ROWS, Record, WrittenRows, insert};

/// Longer than any wait that a test provokes on purpose.
const STATEMENT_LIMIT: Duration = Duration::from_secs(120);
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Writers that run until they are stopped. Rows go to `acked.rows`.
pub struct AckedWriters {
    stop: Arc<AtomicBool>,
    record: Record,
    thread: Option<JoinHandle<Result<()>>>,
}

impl AckedWriters {
    /// Makes the table, if it is not there yet.
    ///
    /// # Errors
    /// With the server's message.
    pub fn prepare(server: &Mysqld) -> Result<()> {
        server.client().sql(MAKE_ROWS)?;
        Ok(())
    }

    /// Starts `writers` clients over the server's socket. Their first row is `first_id`.
    #[must_use]
    pub fn start(server: &Mysqld, writers: u64, first_id: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let record = Record::default();
        let next = Arc::new(AtomicU64::new(first_id));
        let socket = server.socket();
        let thread = thread::spawn({
            let (stop, record) = (stop.clone(), record.clone());
            move || write_until_stopped(&socket, writers, &next, &stop, &record)
        });
        Self {
            stop,
            record,
            thread: Some(thread),
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

    /// Lets every writer finish the commit that it waits for, and returns all of them.
    ///
    /// # Errors
    /// When a writer could not connect at all.
    pub fn finish(mut self) -> Result<WrittenRows> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("finished once")?;
        thread.join().map_err(|_| anyhow!("a writer panicked"))??;
        Ok(self.record.written())
    }
}

fn write_until_stopped(
    socket: &PathBuf,
    writers: u64,
    next: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
    record: &Record,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let mut options = ConnectOptions::new(Endpoint::unix(socket), "root", "");
                options.timeouts.statement = STATEMENT_LIMIT;
                let (next, stop, record) = (next.clone(), stop.clone(), record.clone());
                tokio::spawn(
                    async move { one_writer(writer, &options, &next, &stop, &record).await },
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
    record: &Record,
) -> Result<()> {
    let mut connection = Connection::open(options)
        .await
        .context("a writer cannot connect")?;
    while !stop.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = connection.execute(&insert(id, writer)).await;
        let error = answer.err().map(|error| error.to_string());
        let failed = error.is_some();
        record.add(id, started, error);
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

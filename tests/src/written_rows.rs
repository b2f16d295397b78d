//! Numbered rows of a table: the commits that writers attempted, the acknowledgements with their times, and a check that
//! all acknowledged rows are present.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::mysqld::{MysqlClient, Mysqld};
use testkit::statistics::longest_gap;
use testkit::wait::eventually;

/// The statements that create the table, if it is missing.
pub const MAKE_ROWS: &str = "CREATE DATABASE IF NOT EXISTS acked; \
    CREATE TABLE IF NOT EXISTS acked.rows (id BIGINT UNSIGNED PRIMARY KEY, writer INT, note VARCHAR(64))";

/// Creates the table, if it is missing.
///
/// # Errors
/// If a statement fails; with the server's message.
pub fn make_rows(server: &Mysqld) -> Result<()> {
    server.client().sql(MAKE_ROWS).map(drop)
}

/// The statement that writes one row.
pub(crate) fn insert(id: u64, writer: u64) -> String {
    let length = id % 60;
    format!("INSERT INTO acked.rows VALUES ({id}, {writer}, REPEAT('x', {length}))")
}

/// One attempted commit.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The row's number.
    pub id: u64,
    /// When the statement was sent.
    pub started: Instant,
    /// The time from the statement until its answer.
    pub took: Duration,
    /// The server's error; `None` if the commit was acknowledged.
    pub error: Option<String>,
}

/// The rows that writers attempted to insert, for comparison with a server's rows.
#[derive(Clone, Debug, Default)]
pub struct WrittenRows {
    /// Every commit, in the order of the answers.
    pub commits: Vec<Commit>,
}

impl WrittenRows {
    fn answered(&self) -> impl Iterator<Item = &Commit> {
        self.commits.iter().filter(|commit| commit.error.is_none())
    }

    /// Returns the numbers of the acknowledged rows.
    #[must_use]
    pub fn acknowledged(&self) -> BTreeSet<u64> {
        self.answered().map(|commit| commit.id).collect()
    }

    /// Returns the errors, each with the number of its row.
    #[must_use]
    pub fn errors(&self) -> Vec<(u64, String)> {
        self.commits
            .iter()
            .filter_map(|commit| Some((commit.id, commit.error.clone()?)))
            .collect()
    }

    /// Returns the longest time until an answer.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.commits
            .iter()
            .map(|commit| commit.took)
            .max()
            .unwrap_or_default()
    }

    /// Returns the longest time between two acknowledgements.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        let moments = self.answered().map(|commit| commit.started + commit.took);
        longest_gap(moments).unwrap_or_default()
    }

    /// Combines two records.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.commits.extend(more.commits);
        self
    }

    /// Checks that a server has every acknowledged row.
    ///
    /// # Errors
    /// If rows are missing; with these rows.
    pub fn ensure_all_are_in(&self, client: &MysqlClient) -> Result<()> {
        let rows = client.sql("SELECT id FROM acked.rows")?;
        let present: BTreeSet<u64> = rows
            .0
            .iter()
            .map(|row| row.concat().parse())
            .collect::<Result<_, _>>()
            .context("row numbers")?;
        let lost: Vec<u64> = self.acknowledged().difference(&present).copied().collect();
        ensure!(
            lost.is_empty(),
            "{} acknowledged rows are missing, the first is {:?}",
            lost.len(),
            lost.first()
        );
        Ok(())
    }
}

/// The record to which all running writers add.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<WrittenRows>>);

impl Record {
    /// Records an answer with the current time.
    pub(crate) fn add(&self, id: u64, started: Instant, error: Option<String>) {
        let took = started.elapsed();
        self.lock().commits.push(Commit {
            id,
            started,
            took,
            error,
        });
    }

    /// Returns the number of acknowledged commits so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.lock().answered().count()
    }

    /// Waits until `more` further commits are acknowledged. Returns how long it took.
    pub(crate) fn wait_for_more(&self, more: usize, limit: Duration) -> Result<Duration> {
        let (started, wanted) = (Instant::now(), self.acknowledged() + more);
        let what = format!("{more} further commits are acknowledged");
        eventually(&what, limit, || self.acknowledged() >= wanted)?;
        Ok(started.elapsed())
    }

    /// Returns everything recorded so far.
    pub(crate) fn written(&self) -> WrittenRows {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, WrittenRows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The clients of the real mysqld: each inserts one row after the other and waits for the answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::demo::scoreboard::Scoreboard;
use crate::terminal::Failure;

/// A commit may wait for as long as the longest event of the demonstration.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);
/// After a lost connection.
const AGAIN: Duration = Duration::from_millis(200);
/// Rows of one client have numbers in a range of their own.
const ROWS_OF_ONE: u64 = 1_000_000_000;

/// Numbers of the rows whose insertion was acknowledged.
pub(crate) type Acknowledged = Arc<Mutex<BTreeSet<u64>>>;

/// Clients at work.
pub(crate) struct Clients {
    tasks: JoinSet<()>,
    stop: CancellationToken,
    pub(crate) acknowledged: Acknowledged,
}

/// Makes the table that the clients write to.
pub(crate) async fn prepare(options: &ConnectOptions) -> Result<(), Failure> {
    let mut connection = Connection::open(options).await.map_err(failure)?;
    for statement in [
        "CREATE DATABASE demo",
        "CREATE TABLE demo.transfers (id BIGINT UNSIGNED PRIMARY KEY, client INT NOT NULL, note VARCHAR(200) NOT NULL)",
    ] {
        connection.execute(statement).await.map_err(failure)?;
    }
    connection.close().await;
    Ok(())
}

/// Runs one query on a connection of its own and answers with its first column.
pub(crate) async fn column(options: &ConnectOptions, sql: &str) -> Result<Vec<String>, Failure> {
    let mut connection = Connection::open(options).await.map_err(failure)?;
    let result = connection
        .query_within(sql, LONGEST_COMMIT)
        .await
        .map_err(failure)?;
    connection.close().await;
    let texts = result
        .rows
        .iter()
        .filter_map(|row| row.text_at(0).map(str::to_owned));
    Ok(texts.collect())
}

fn failure(error: LinkError) -> Failure {
    Failure::error(format!("mysqld: {error}"))
}

impl Clients {
    /// Starts that many.
    pub(crate) fn start(count: u64, options: &ConnectOptions, board: &Arc<Scoreboard>) -> Self {
        let acknowledged = Acknowledged::default();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for number in 1..=count {
            let client = Client {
                number,
                options: options.clone(),
                board: board.clone(),
                acknowledged: acknowledged.clone(),
            };
            tasks.spawn(client.work(stop.clone()));
        }
        Self {
            tasks,
            stop,
            acknowledged,
        }
    }

    /// Lets every client finish the row that it is at.
    pub(crate) async fn finish(mut self) -> BTreeSet<u64> {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        let acknowledged = self.acknowledged.lock();
        acknowledged.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Client {
    number: u64,
    options: ConnectOptions,
    board: Arc<Scoreboard>,
    acknowledged: Acknowledged,
}

impl Client {
    async fn work(self, stop: CancellationToken) {
        let mut next = self.number * ROWS_OF_ONE;
        while !stop.is_cancelled() {
            let Ok(mut connection) = Connection::open(&self.options).await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            while !stop.is_cancelled() {
                // Whether a row whose answer is lost was written is not known, so its number is not
                // used again.
                next += 1;
                if self.insert(&mut connection, next).await.is_err() {
                    tokio::time::sleep(AGAIN).await;
                    break;
                }
            }
        }
    }

    async fn insert(&self, connection: &mut Connection, id: u64) -> Result<(), LinkError> {
        let note = "-".repeat(100);
        let sql = format!(
            "INSERT INTO demo.transfers VALUES ({id}, {}, '{note}')",
            self.number
        );
        let asked = Instant::now();
        connection.query_within(&sql, LONGEST_COMMIT).await?;
        self.acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        self.board.committed(asked.elapsed());
        Ok(())
    }
}

//! The clients of the mysqld: each inserts one row after the other and waits for the answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::demo::scoreboard::Scoreboard;
use crate::terminal::{Exit, Failure};

const CLIENTS: u64 = 8;
/// Each client's rows have numbers in a range of its own.
const ROWS_PER_CLIENT: u64 = 1_000_000_000;
/// A commit may wait for as long as the longest event of the demonstration.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// Creates the table of the clients.
pub(crate) async fn prepare(account: &ConnectOptions) -> Result<(), Failure> {
    column(account, "CREATE DATABASE demo").await?;
    let table = "CREATE TABLE demo.notes (id BIGINT PRIMARY KEY, note VARCHAR(160) NOT NULL)";
    column(account, table).await.map(drop)
}

/// The number of rows that a reader sees.
pub(crate) async fn visible_rows(account: &ConnectOptions) -> Result<u64, Failure> {
    let count = column(account, "SELECT COUNT(*) FROM demo.notes").await?;
    count.concat().parse().map_err(Failure::error)
}

/// Writes until `stop` is cancelled and every client has its last answer; returns the executed
/// transactions.
///
/// # Errors
/// Exit 7 when mysqld lacks a row that it acknowledged.
pub(crate) async fn write(
    account: ConnectOptions,
    board: Arc<Scoreboard>,
    stop: CancellationToken,
) -> Result<GtidSet, Failure> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let first = client * ROWS_PER_CLIENT;
        clients.spawn(insert_rows(
            account.clone(),
            first,
            board.clone(),
            stop.clone(),
        ));
    }
    let acknowledged = clients.join_all().await.concat();
    let rows = column(&account, "SELECT id FROM demo.notes").await?;
    let rows: HashSet<u64> = rows.iter().filter_map(|id| id.parse().ok()).collect();
    let missing = acknowledged.iter().filter(|id| !rows.contains(id));
    match missing.count() {
        0 => {}
        missing => {
            let why = format!("mysqld lacks {missing} rows that it acknowledged");
            let advice = "keep the files (--data-dir) and report it";
            return Err(Failure::new(Exit::Corrupt, why, advice));
        }
    }
    let executed = column(&account, "SELECT @@GLOBAL.gtid_executed").await?;
    executed.concat().parse().map_err(Failure::error)
}

/// One client, which connects again after an error; returns the numbers of its acknowledged rows.
async fn insert_rows(
    account: ConnectOptions,
    first: u64,
    board: Arc<Scoreboard>,
    stop: CancellationToken,
) -> Vec<u64> {
    let note = "-".repeat(160);
    let mut acknowledged = Vec::new();
    // A number is used once: after a lost answer, its row can be in the table.
    let mut ids = first..;
    while !stop.is_cancelled() {
        if let Ok(mut connection) = Connection::open(&account).await {
            for id in ids.by_ref().take_while(|_| !stop.is_cancelled()) {
                let insert = format!("INSERT INTO demo.notes VALUES ({id}, '{note}')");
                let begun = Instant::now();
                let answer = connection.query_within(&insert, LONGEST_COMMIT).await;
                if answer.is_err() {
                    break;
                }
                acknowledged.push(id);
                board.committed(begun.elapsed());
            }
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
    acknowledged
}

/// Runs a statement on a connection of its own; returns the first column of its result.
async fn column(account: &ConnectOptions, sql: &str) -> Result<Vec<String>, Failure> {
    let error = |error: LinkError| Failure::error(format!("mysqld: {error}"));
    let mut connection = Connection::open(account).await.map_err(error)?;
    let result = connection.query_within(sql, LONGEST_COMMIT).await;
    let rows = result.map_err(error)?.rows;
    connection.close().await;
    let values = rows.iter().filter_map(|row| row.text_at(0));
    Ok(values.map(str::to_owned).collect())
}

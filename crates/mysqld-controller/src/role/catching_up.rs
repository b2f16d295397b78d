//! Whether a server has everything of the ring's log.

use std::time::{Duration, Instant};

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection};

use crate::ring::Ring;
use crate::role::errant::errant;
use crate::settings::parse_gtid_owned;

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    /// Transactions of the log that the server lacks.
    pub(super) lacks: GtidSet,
    /// Transactions of the server that the log lacks.
    pub(super) beyond: GtidSet,
    /// All transactions of the log.
    pub(super) log: GtidSet,
}

/// Compares what the server has with the log of a member that serves. What waits there for an ACK it has: the ACK comes with
/// the attachment.
///
/// # Errors
/// In words: one of the two cannot be asked.
pub(super) async fn compare<R: Ring>(
    ring: &R,
    connection: &mut Connection,
) -> Result<Compared, String> {
    let log = ring.log().await.map_err(|error| error.to_string())?;
    // First, so that a transaction that commits meanwhile is seen in one of the two.
    let owned = text(connection, "SELECT @@GLOBAL.gtid_owned").await?;
    let owned = parse_gtid_owned(&owned);
    let owned = owned.map_err(|error| format!("gtid_owned cannot be read: {error}"))?;
    let executed = ask(connection).await?;
    Ok(Compared {
        lacks: log.gtids.difference(&executed).difference(&owned),
        beyond: errant(&executed, &log.gtids),
        log: log.gtids,
    })
}

/// What the server has executed, asked on a connection of its own.
///
/// # Errors
/// In words: it cannot be asked, or its answer cannot be read.
pub async fn executed_gtids(connect: &ConnectOptions) -> Result<GtidSet, String> {
    let mut connection = open(connect).await?;
    let executed = ask(&mut connection).await?;
    connection.close().await;
    Ok(executed)
}

async fn ask(connection: &mut Connection) -> Result<GtidSet, String> {
    let executed = text(connection, "SELECT @@GLOBAL.gtid_executed").await?;
    executed
        .parse()
        .map_err(|error| format!("gtid_executed cannot be read: {error}"))
}

async fn text(connection: &mut Connection, query: &str) -> Result<String, String> {
    let answer = connection.query(query).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let text = answer.first().and_then(|row| row.text_at(0));
    let text = text.ok_or_else(|| format!("`{query}` did not answer with a text"));
    Ok(text?.to_owned())
}

/// Waits until the server has executed all of `wanted`, for `limit` at most, and says what it lacks then, so that the way can
/// be shown. Asked again and again, which costs a question each two milliseconds during a change of the primary.
///
/// # Errors
/// In words: the server cannot be asked.
pub(super) async fn lacks_of(
    connection: &mut Connection,
    wanted: &GtidSet,
    limit: Duration,
) -> Result<GtidSet, String> {
    let deadline = Instant::now() + limit;
    loop {
        let lacks = wanted.difference(&ask(connection).await?);
        if lacks.is_empty() || Instant::now() >= deadline {
            return Ok(lacks);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// A session for the questions.
///
/// # Errors
/// In words.
pub(super) async fn open(connect: &ConnectOptions) -> Result<Connection, String> {
    let opened = Connection::open(connect).await;
    opened.map_err(|error| error.to_string())
}

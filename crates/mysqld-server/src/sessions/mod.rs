//! Finds and ends sessions in mysqld. `performance_schema` shows the sessions whose locks block the member: [`lock_holders`] of a follower,
//! [`long_statements`] before a switchover, and [`backup_lock`]. Without `performance_schema`, no such sessions are visible.

pub mod backup_lock;
pub mod lock_holders;
pub mod long_statements;
mod statement_logging;
mod waiting_commits;

use mysql_link::{ConnectOptions, Connection, LinkError, Row, server_code};

pub use crate::sessions::statement_logging::{StatementLoggingError, end_statement_logging};
pub(crate) use crate::sessions::waiting_commits::let_commits_through;

/// Ids of members' own sessions.
pub const OF_MEMBERS: &str = "(SELECT processlist_id FROM performance_schema.session_connect_attrs \
     WHERE attr_name = 'program_name' AND attr_value LIKE 'witness%' AND processlist_id IS NOT NULL)";

/// Columns for a session that holds a lock, as [`asked`] reads them.
pub(crate) const COLUMNS: &str =
    "t.PROCESSLIST_ID, t.PROCESSLIST_TIME, t.PROCESSLIST_USER, t.PROCESSLIST_HOST";

/// A session with a blocking lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockingSession {
    /// The session's connection id in mysqld.
    pub id: u32,
    /// How long the session has run its statement, or been idle. Whole seconds.
    pub seconds: u64,
    /// The session's account: ``user`@`host``.
    pub account: String,
    /// The lock that the session holds, as mysqld names it.
    pub holds: String,
    /// The statement that waits for the lock, where queried.
    pub waiting: Option<String>,
    /// True if the session is a member's own, where queried.
    pub of_member: bool,
}

impl BlockingSession {
    /// Kills the session, and logs why.
    ///
    /// # Errors
    /// When the session cannot be killed, for example because its account has `SYSTEM_USER` and the member's has not.
    pub async fn kill(&self, connect: &ConnectOptions, why: &str) -> Result<(), LinkError> {
        let (id, account, holds) = (self.id, &self.account, &self.holds);
        let killed = Connection::kill(connect, id).await;
        match &killed {
            Ok(()) => {
                tracing::warn!(session = id, %account, seconds = self.seconds, %holds, "a session is killed, because {why}");
            }
            Err(error) => {
                tracing::warn!(session = id, %account, %holds, "a session cannot be killed, although {why}: {error}");
            }
        }
        killed
    }
}

/// Returns the clients' sessions that hold the metadata lock `held` and match the condition `which`.
///
/// # Errors
/// mysqld cannot be queried.
async fn holding(session: &mut Connection, which: &str) -> Result<Vec<BlockingSession>, LinkError> {
    let query = format!(
        "SELECT {COLUMNS}, held.OBJECT_TYPE FROM performance_schema.metadata_locks AS held \
         JOIN performance_schema.threads AS t ON t.THREAD_ID = held.OWNER_THREAD_ID \
         WHERE held.LOCK_STATUS = 'GRANTED' AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID() AND {which}"
    );
    asked(session, &query).await
}

/// Runs a query and returns each session in the result once. Its columns are [`COLUMNS`], the held lock, and optionally the waiting
/// statement and whether the session is a member's own.
///
/// # Errors
/// mysqld cannot be queried.
pub(crate) async fn asked(
    session: &mut Connection,
    query: &str,
) -> Result<Vec<BlockingSession>, LinkError> {
    let answer = session.query(query).await?;
    let mut found: Vec<BlockingSession> = answer.rows.iter().filter_map(read).collect();
    found.sort_by_key(|session| session.id);
    found.dedup_by_key(|session| session.id);
    Ok(found)
}

fn read(row: &Row) -> Option<BlockingSession> {
    let text = |place| row.text_at(place).unwrap_or_default();
    Some(BlockingSession {
        id: text(0).parse().ok()?,
        seconds: text(1).parse().unwrap_or(0),
        account: format!("`{}`@`{}`", text(2), text(3)),
        holds: text(4).to_owned(),
        waiting: row.text_at(5).map(str::to_owned),
        of_member: row.text_at(6) == Some("1"),
    })
}

/// Returns the sessions. If the query failed, logs the error and returns none, so that the caller continues.
pub(crate) fn seen(
    looked: Result<Vec<BlockingSession>, LinkError>,
    of: &str,
) -> Vec<BlockingSession> {
    looked.unwrap_or_else(|error| {
        tracing::warn!("{of} cannot be seen: {error}");
        Vec::new()
    })
}

/// Ends the sessions of clients that `selects` chooses by the account's user and the command. Does not end the server's threads and
/// `connection`.
///
/// # Errors
/// The connection fails. If a session may not be ended, for example because its account has `SYSTEM_USER`, that is only logged.
pub(crate) async fn end_clients(
    connection: &mut Connection,
    selects: impl Fn(&str, &str) -> bool,
) -> Result<(), LinkError> {
    let own = connection.id().to_string();
    let sessions = connection.query("SHOW PROCESSLIST").await?;
    for session in &sessions.rows {
        let text = |column: &str| session.text(column).unwrap_or_default();
        let (id, user, command) = (text("Id"), text("User"), text("Command"));
        if id != own && is_a_clients(user, command) && selects(user, command) {
            kill(connection, id).await?;
        }
    }
    Ok(())
}

fn is_a_clients(user: &str, command: &str) -> bool {
    !["system user", "event_scheduler"].contains(&user) && command != "Daemon"
}

/// Whether a session with this command sends the binlog to a replica.
pub(crate) fn is_a_dump(command: &str) -> bool {
    command.starts_with("Binlog Dump")
}

/// Ends a session. A session that no longer exists is no error. A session that may not be ended is logged.
///
/// # Errors
/// The connection fails.
pub async fn kill(connection: &mut Connection, session: &str) -> Result<(), LinkError> {
    match connection.execute(format!("KILL {session}")).await {
        Err(LinkError::Server(error)) if error.code != server_code::NO_SUCH_THREAD => {
            tracing::warn!(%error, session, "a session cannot be closed");
            Ok(())
        }
        Ok(_) | Err(LinkError::Server(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

// Sessions that are kept open. Beyond `max_connections`, mysqld has one connection for accounts with CONNECTION_ADMIN.

/// Opens a session. Returns `None` if the session would occupy the connection beyond `max_connections`, which more urgent callers need.
///
/// # Errors
/// mysqld refuses logins, or does not answer.
pub async fn spare_connection(connect: &ConnectOptions) -> Result<Option<Connection>, LinkError> {
    let mut session = Connection::open_with_own_settings(connect).await?;
    let limit = number(&mut session, "SELECT @@GLOBAL.max_connections", 0).await?;
    let connected = "SHOW GLOBAL STATUS LIKE 'Threads_connected'";
    let count = number(&mut session, connected, 1).await?;
    if matches!((count, limit), (Some(count), Some(limit)) if count <= limit) {
        return Ok(Some(session));
    }
    session.close().await;
    Ok(None)
}

async fn number(
    session: &mut Connection,
    query: &str,
    column: usize,
) -> Result<Option<u64>, LinkError> {
    let answer = session.query(query).await?;
    let text = answer.first().and_then(|row| row.text_at(column));
    Ok(text.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_threads_and_dumps_are_not_clients_to_be_closed() {
        let table = [
            ("app", "Sleep", true),
            ("root", "Query", true),
            ("witness", "Binlog Dump GTID", false),
            ("replica", "Binlog Dump", false),
            ("event_scheduler", "Daemon", false),
            ("system user", "Query", false),
        ];
        for (user, command, expected) in table {
            let closed = is_a_clients(user, command) && !is_a_dump(command);
            assert_eq!(closed, expected, "{user} {command}");
        }
    }
}

//! Sessions that began before `binlog_format` was ROW. A session keeps the value that the server had when the session began, and continues
//! to log statements, whose effect may differ between servers.

use std::time::Duration;

use mysql_link::{Connection, LinkError};
use thiserror::Error;
use tokio::time::Instant;

use crate::sessions::{OF_MEMBERS, kill};
use crate::settings::unless_refused;

/// The pause between two checks whether the sessions have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Excludes members' sessions, which write no statement; replica threads, which log changes in the format that they receive; and daemons,
/// which log nothing. The query uses the primary keys of both tables, because mysqld materialises each session's variables on access.
const OLD: &str = "SELECT STRAIGHT_JOIN t.processlist_id AS id, t.processlist_user AS user \
     FROM performance_schema.threads t JOIN performance_schema.variables_by_thread v USING (thread_id) \
     WHERE t.processlist_id IS NOT NULL AND v.variable_name = 'binlog_format' AND v.variable_value <> 'ROW' \
     AND COALESCE(t.processlist_command, '') NOT IN ('Daemon', 'Binlog Dump', 'Binlog Dump GTID') \
     AND t.name NOT LIKE 'thread/sql/replica%' AND t.name NOT LIKE 'thread/sql/slave%' \
     AND t.processlist_id NOT IN";

/// Why sessions may still log statements.
#[derive(Debug, Error)]
pub enum StatementLoggingError {
    /// mysqld cannot be queried.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// These sessions have not ended in time.
    #[error(
        "{} sessions log statements and not rows (binlog_format), because they began before that was ROW, and could not be closed \
         (KILL): {}",
        .0.len(),
        named(.0)
    )]
    NotEnded(Vec<OldSession>),
}

/// The number of a session that logs statements, and its user.
type OldSession = (String, String);

/// Ends the sessions that log statements, of any account. Once the server's own value is ROW, no such session begins, except for accounts
/// that may set the variable for themselves.
///
/// # Errors
/// Some have not ended in time, or mysqld cannot be queried.
pub async fn end_statement_logging(
    connection: &mut Connection,
    limit: Duration,
) -> Result<(), StatementLoggingError> {
    let until = Instant::now() + limit;
    let mut ended = 0;
    loop {
        let old = look(connection).await?;
        if old.is_empty() {
            if ended > 0 {
                tracing::warn!(
                    "{ended} sessions from before binlog_format was ROW were closed: they would have gone on logging statements"
                );
            }
            return Ok(());
        }
        if Instant::now() > until {
            return Err(StatementLoggingError::NotEnded(old));
        }
        // Kill each session only once: it then rolls back, which may take time.
        if ended == 0 {
            for (id, _) in &old {
                kill(connection, id).await?;
            }
            ended = old.len();
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(connection: &mut Connection) -> Result<Vec<OldSession>, LinkError> {
    let sessions = connection.query(format!("{OLD} {OF_MEMBERS}")).await;
    // If the account lacks the privilege, the sessions are unknown.
    let Some(sessions) = unless_refused(sessions)? else {
        return Ok(Vec::new());
    };
    let session = |row: &mysql_link::Row| {
        let user = row.text("user").unwrap_or_default();
        Some((row.text("id")?.to_owned(), user.to_owned()))
    };
    Ok(sessions.rows.iter().filter_map(session).collect())
}

fn named(old: &[OldSession]) -> String {
    let names = old.iter().take(5);
    let names = names.map(|(id, user)| format!("{id} of {user}"));
    names.collect::<Vec<_>>().join(", ")
}

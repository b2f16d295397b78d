//! Finds the sessions that block another session, by row locks or by metadata locks. A statement of the log waits for a metadata lock
//! as long as it may run, and queries that use its table queue after it. Therefore the sessions that hold the lock are logged.

use std::convert::Infallible;
use std::time::Duration;

use binlog_format::events::shown_statement;
use mysql_link::{Connection, LinkError};

use crate::backend::SessionId;
use crate::mysql::options::MysqlOptions;

/// Interval of the repeated log message.
const LOGGED_EVERY: Duration = Duration::from_secs(600);

/// Logs the sessions that block session `waiting`, after its statement has taken as long as the lock wait timeout. Never returns.
pub(super) async fn log_holders(
    options: &MysqlOptions,
    waiting: SessionId,
    statement: &[u8],
) -> Infallible {
    const SHOWN: usize = 200;
    let text = shown_statement(statement, SHOWN);
    let mut pause = options.lock_wait;
    loop {
        tokio::time::sleep(pause).await;
        pause = LOGGED_EVERY;
        match holders(options, waiting).await {
            Ok(holders) if holders.is_empty() => {}
            Ok(holders) => tracing::warn!(
                holders = holders.join("; "),
                statement = %text,
                "a statement of the log waits for a table that others use here, and everything behind it waits, too; it goes on when \
                 they have ended, and KILL ends one"
            ),
            Err(error) => {
                tracing::debug!(%error, "the sessions that block a statement are unknown")
            }
        }
    }
}

/// Returns the sessions that block another session by metadata locks: on a table, or for a backup.
async fn holders(options: &MysqlOptions, waiting: SessionId) -> Result<Vec<String>, LinkError> {
    let query = format!(
        "SELECT DISTINCT CONCAT('session ', holder.processlist_id, ' of ', holder.processlist_user, ' on ', held.object_type, \
         ' ', CONCAT_WS('.', held.object_schema, held.object_name)) FROM performance_schema.metadata_locks AS wanted \
         JOIN performance_schema.threads AS waiter ON waiter.thread_id = wanted.owner_thread_id \
         JOIN performance_schema.metadata_locks AS held ON held.object_type = wanted.object_type \
         AND held.object_schema <=> wanted.object_schema AND held.object_name <=> wanted.object_name \
         AND held.lock_status = 'GRANTED' AND held.owner_thread_id <> wanted.owner_thread_id \
         JOIN performance_schema.threads AS holder ON holder.thread_id = held.owner_thread_id \
         WHERE wanted.lock_status = 'PENDING' AND waiter.processlist_id = {}",
        waiting.0
    );
    let mut connection = Connection::open_with_own_settings(&options.connect).await?;
    let answer = connection.query(query).await;
    connection.close().await;
    let rows = answer?.rows;
    let holders = rows.iter().filter_map(|row| row.text_at(0));
    Ok(holders.map(str::to_owned).collect())
}

// The holders of row locks for which a session waits.

/// Returns the query for the sessions that block another session by InnoDB row locks.
pub(super) fn blockers_query(waiting: SessionId) -> String {
    format!(
        "SELECT DISTINCT holder.processlist_id FROM performance_schema.data_lock_waits AS waits \
         JOIN performance_schema.threads AS waiter ON waiter.thread_id = waits.requesting_thread_id \
         JOIN performance_schema.threads AS holder ON holder.thread_id = waits.blocking_thread_id \
         WHERE waiter.processlist_id = {}",
        waiting.0
    )
}

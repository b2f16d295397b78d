//! Sessions that are kept for later. Beyond `max_connections` mysqld has one connection, for an account with CONNECTION_ADMIN.

use mysql_link::{ConnectOptions, Connection, LinkError};

/// A session that leaves the connection beyond `max_connections` to more urgent callers; `None` where it would occupy it.
///
/// # Errors
/// mysqld refuses logins, or does not answer.
pub async fn spare_connection(connect: &ConnectOptions) -> Result<Option<Connection>, LinkError> {
    let mut session = Connection::open_with_own_settings(connect).await?;
    let limit = number(&mut session, "SELECT @@GLOBAL.max_connections", 0).await?;
    let count = number(
        &mut session,
        "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
        1,
    )
    .await?;
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

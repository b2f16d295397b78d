//! Sessions with a lock that blocks the member: their identification and termination. Where `performance_schema` is off, none are visible.

use mysql_link::{ConnectOptions, Connection, LinkError, Row};

/// Ids of members' own sessions.
pub const OF_MEMBERS: &str = "(SELECT processlist_id FROM performance_schema.session_connect_attrs \
     WHERE attr_name = 'program_name' AND attr_value LIKE 'witness%' AND processlist_id IS NOT NULL)";

/// Columns queried of a session that holds a lock, as [`asked`] reads them.
pub const COLUMNS: &str =
    "t.PROCESSLIST_ID, t.PROCESSLIST_TIME, t.PROCESSLIST_USER, t.PROCESSLIST_HOST";

/// A session with a blocking lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockingSession {
    /// Its number in mysqld.
    pub id: u32,
    /// How long it has run its statement, or been idle. Whole seconds.
    pub seconds: u64,
    /// Its account: ``user`@`host``.
    pub account: String,
    /// The lock that it holds, as mysqld names it.
    pub holds: String,
    /// The statement that waits for it, where queried.
    pub waiting: Option<String>,
    /// Whether it is a member's own, where queried.
    pub of_member: bool,
}

impl BlockingSession {
    /// Ends it, and logs why.
    ///
    /// # Errors
    /// For example where its account has `SYSTEM_USER` and the member's has not.
    pub async fn kill(&self, connect: &ConnectOptions, why: &str) -> Result<(), LinkError> {
        let Self {
            id,
            seconds,
            account,
            holds,
            ..
        } = self;
        let killed = Connection::kill(connect, *id).await;
        match &killed {
            Ok(()) => {
                tracing::warn!(session = id, %account, seconds, %holds, "a session is killed, because {why}");
            }
            Err(error) => {
                tracing::warn!(session = id, %account, %holds, "a session cannot be killed, although {why}: {error}");
            }
        }
        killed
    }
}

/// The clients' sessions that hold a metadata lock, `held`, and match the condition `which`.
///
/// # Errors
/// mysqld cannot be queried.
pub async fn holding(
    session: &mut Connection,
    which: &str,
) -> Result<Vec<BlockingSession>, LinkError> {
    let query = format!(
        "SELECT {COLUMNS}, held.OBJECT_TYPE FROM performance_schema.metadata_locks AS held \
         JOIN performance_schema.threads AS t ON t.THREAD_ID = held.OWNER_THREAD_ID \
         WHERE held.LOCK_STATUS = 'GRANTED' AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID() AND {which}"
    );
    asked(session, &query).await
}

/// The sessions that a query returns, each once: [`COLUMNS`], the held lock, and optionally the waiting statement and whether they are a
/// member's own.
///
/// # Errors
/// mysqld cannot be queried.
pub async fn asked(
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

/// None where the query fails: the blocked operation is then tried all the same.
pub fn seen(looked: Result<Vec<BlockingSession>, LinkError>, of: &str) -> Vec<BlockingSession> {
    looked.unwrap_or_else(|error| {
        tracing::warn!("{of} cannot be seen: {error}");
        Vec::new()
    })
}

//! `LOCK INSTANCE FOR BACKUP`: while somebody holds it no binlog file can be dropped, and a follower whose files are not dropped
//! cannot be the primary. A backup takes hours, and clients would wait for as long.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::time::Instant;

use crate::apply::catching_up::open;

/// How long a killed session may take to let go.
const LETTING_GO: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

/// Statements about tables take the lock as well, in a mode that does not keep files from being dropped.
const HOLDERS: &str = "SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER FROM performance_schema.metadata_locks AS held \
     JOIN performance_schema.threads AS t ON t.THREAD_ID = held.OWNER_THREAD_ID \
     WHERE held.OBJECT_TYPE = 'BACKUP LOCK' AND held.LOCK_TYPE = 'SHARED' AND held.LOCK_STATUS = 'GRANTED' \
     AND t.PROCESSLIST_ID <> CONNECTION_ID()";

/// A session that holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    id: u32,
    user: String,
}

impl Holder {
    fn in_words(&self) -> String {
        format!(
            "a backup holds LOCK INSTANCE FOR BACKUP (session {} of `{}`)",
            self.id, self.user
        )
    }
}

/// That a backup is under way, in words, if one is seen.
///
/// # Errors
/// In words: the server cannot be reached.
pub async fn backup_under_way(connect: &ConnectOptions) -> Result<Option<String>, String> {
    let mut session = open(connect).await?;
    // Where it cannot be seen, the server is as fit as before it was asked.
    let holders = holders(&mut session).await.unwrap_or_default();
    session.close().await;
    Ok(holders.first().map(Holder::in_words))
}

/// Ends backups, if they may be `killed`, before a server becomes the primary.
///
/// # Errors
/// In words, what holds the lock.
pub(super) async fn end_backups(
    session: &mut Connection,
    connect: &ConnectOptions,
    killed: bool,
) -> Result<(), String> {
    let deadline = Instant::now() + LETTING_GO;
    let mut found = seen(holders(session).await);
    for holder in found.iter().filter(|_| killed) {
        let Holder { id, user } = holder;
        tracing::warn!(session = id, %user, "a session is killed, because its backup keeps mysqld from being the primary");
        Connection::kill(connect, *id).await.map_err(told)?;
    }
    while let Some(holder) = found.first() {
        if !killed || Instant::now() >= deadline {
            return Err(format!(
                "{}, and no binlog file can be dropped: end it",
                holder.in_words()
            ));
        }
        tokio::time::sleep(LOOK).await;
        found = seen(holders(session).await);
    }
    Ok(())
}

/// Nobody, where it cannot be seen: then dropping the files is tried all the same.
fn seen(looked: Result<Vec<Holder>, LinkError>) -> Vec<Holder> {
    looked.unwrap_or_else(|error| {
        tracing::warn!("whether a backup is under way cannot be seen: {error}");
        Vec::new()
    })
}

async fn holders(session: &mut Connection) -> Result<Vec<Holder>, LinkError> {
    let answer = session.query(HOLDERS).await?;
    let holder = |row: &mysql_link::Row| {
        Some(Holder {
            id: row.text_at(0)?.parse().ok()?,
            user: row.text_at(1).unwrap_or_default().to_owned(),
        })
    };
    Ok(answer.rows.iter().filter_map(holder).collect())
}

fn told(error: LinkError) -> String {
    error.to_string()
}

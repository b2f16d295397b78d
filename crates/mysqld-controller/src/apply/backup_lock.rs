//! What backups lock: while somebody holds `LOCK INSTANCE FOR BACKUP` no binlog file can be dropped, and a follower whose files are
//! not dropped cannot be the primary; while somebody holds `FLUSH TABLES WITH READ LOCK` it can be opened, and no write of a client
//! comes through. A backup takes hours, and clients would wait for as long.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::time::Instant;

use crate::apply::catching_up::open;
use crate::blocking_sessions::{BlockingSession, OF_MEMBERS, holding, seen};

/// How long a killed session may take to let go.
const LETTING_GO: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

/// Statements about tables and rows take both locks as well, in a mode that is in nobody's way. A member closes mysqld by the
/// second one.
async fn holders(session: &mut Connection) -> Result<Vec<BlockingSession>, LinkError> {
    let which = format!(
        "(held.OBJECT_TYPE = 'BACKUP LOCK' OR held.OBJECT_TYPE = 'GLOBAL') AND held.LOCK_TYPE = 'SHARED' \
         AND t.PROCESSLIST_ID NOT IN {OF_MEMBERS}"
    );
    holding(session, &which).await
}

fn in_words(holder: &BlockingSession) -> String {
    let statement = match holder.holds.as_str() {
        "GLOBAL" => "FLUSH TABLES WITH READ LOCK",
        _ => "LOCK INSTANCE FOR BACKUP",
    };
    let BlockingSession { id, account, .. } = holder;
    format!("a backup holds {statement} (session {id} of {account})")
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
    Ok(holders.first().map(in_words))
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
    const OF: &str = "whether a backup is under way";
    let deadline = Instant::now() + LETTING_GO;
    let mut found = seen(holders(session).await, OF);
    for holder in found.iter().filter(|_| killed) {
        let why = "its backup keeps mysqld from being the primary";
        let killed = holder.kill(connect, why).await;
        killed.map_err(|error| error.to_string())?;
    }
    while let Some(holder) = found.first() {
        if !killed || Instant::now() >= deadline {
            return Err(format!(
                "{}, and clients could not write here: end it",
                in_words(holder)
            ));
        }
        tokio::time::sleep(LOOK).await;
        found = seen(holders(session).await, OF);
    }
    Ok(())
}

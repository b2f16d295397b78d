//! Locks of backups. Under `LOCK INSTANCE FOR BACKUP`, no binlog file can be dropped, and a follower that keeps its files cannot become the
//! primary. Under `FLUSH TABLES WITH READ LOCK`, the server can be opened, but client writes block. A backup may take hours, and clients
//! would wait that long.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};
use thiserror::Error;
use tokio::time::Instant;

use crate::sessions::{BlockingSession, OF_MEMBERS, holding, seen};

/// How long a killed session may take to release its locks.
const LETTING_GO: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

/// Returns the sessions that hold a backup lock. Ordinary statements take both locks as well, in a mode that blocks no other session. The
/// member itself takes the second lock when it closes mysqld.
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

/// Describes a running backup. If backups are not visible, assumes that none runs.
pub async fn backup_under_way(session: &mut Connection) -> Option<String> {
    let holders = holders(session).await.unwrap_or_default();
    holders.first().map(in_words)
}

/// Why a backup may still run.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The server cannot be queried, or the backup's session cannot be killed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The backup's session may not be killed, or has not ended in time.
    #[error("{0}, and clients could not write here: end it")]
    UnderWay(String),
}

/// Ends backups before a server becomes the primary. With `killed` false, an existing backup is an error.
///
/// # Errors
/// [`BackupError::UnderWay`] names the lock's holder.
pub async fn end_backups(
    session: &mut Connection,
    connect: &ConnectOptions,
    killed: bool,
) -> Result<(), BackupError> {
    const OF: &str = "whether a backup is under way";
    let deadline = Instant::now() + LETTING_GO;
    let mut found = seen(holders(session).await, OF);
    for holder in found.iter().filter(|_| killed) {
        let why = "its backup keeps mysqld from being the primary";
        holder.kill(connect, why).await?;
    }
    while let Some(holder) = found.first() {
        if !killed || Instant::now() >= deadline {
            return Err(BackupError::UnderWay(in_words(holder)));
        }
        tokio::time::sleep(LOOK).await;
        found = seen(holders(session).await, OF);
    }
    Ok(())
}

//! The binlog of a mysqld that follows by `rows`, which no replica may read. It lacks the applied rows, and has an empty transaction for
//! each DDL, statement or XA. A replica that read this binlog would count those transactions as executed, without an error. No setting of
//! mysqld refuses dumps. So the member ends dumps and drops the files. mysqld then refuses such a replica with error 1236.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, literal};
use thiserror::Error;

use crate::channels::drop_channel;
use crate::sessions::{COLUMNS, OF_MEMBERS, asked, seen};

/// Why a follower's binlog still has its files.
#[derive(Debug, Error)]
pub enum FollowerBinlogError {
    /// The server cannot be queried, or refuses a statement.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The answer to `SHOW BINARY LOGS` cannot be read.
    #[error("mysqld lists its binlog files in an unknown way")]
    UnknownList,
    /// A dump reads the files.
    #[error(
        "binlog files of the time in which this mysqld followed cannot be dropped, because a dump reads them. A replica would get \
         empty transactions from them: end it (SHOW PROCESSLIST, `Binlog Dump`)"
    )]
    DumpReads,
}

/// Attempts to drop files that a dump reads: a killed session may need some time to end.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The size in bytes of an empty newest file, learned from flushes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Emptied {
    /// The size after the last flush. Something may have been written since the flush.
    last: Option<u64>,
    /// The size that two successive flushes left: that of an empty file.
    empty: Option<u64>,
}

impl Emptied {
    /// Records the newest file's size after a flush.
    fn flushed(&mut self, bytes: u64) {
        self.empty = (self.last == Some(bytes)).then_some(bytes);
        self.last = Some(bytes);
    }

    fn is(self, bytes: u64) -> bool {
        self.empty == Some(bytes)
    }
}

/// Names and sizes in bytes of the binlog files, the newest last.
async fn files(connection: &mut Connection) -> Result<Vec<(String, u64)>, FollowerBinlogError> {
    let answer = connection.query("SHOW BINARY LOGS").await?;
    let file = |row: &mysql_link::Row| {
        let bytes = row.text_at(1)?.parse().ok()?;
        Some((row.text_at(0)?.to_owned(), bytes))
    };
    let files: Option<Vec<_>> = answer.rows.iter().map(file).collect();
    files.ok_or(FollowerBinlogError::UnknownList)
}

/// Begins a new file if the only file has content. Returns whether there are files to drop. Begins no file while files cannot be dropped,
/// for example during a backup.
///
/// # Errors
/// [`FollowerBinlogError`]; a server without a binlog refuses.
pub async fn rotate_if_written(
    connection: &mut Connection,
    emptied: &mut Emptied,
) -> Result<bool, FollowerBinlogError> {
    match &files(connection).await?[..] {
        [(_, bytes)] if emptied.is(*bytes) => Ok(false),
        [_] => begin_a_file(connection, emptied).await.map(|()| true),
        _ => Ok(true),
    }
}

/// Begins a new binlog file.
///
/// # Errors
/// [`FollowerBinlogError`].
async fn begin_a_file(
    connection: &mut Connection,
    emptied: &mut Emptied,
) -> Result<(), FollowerBinlogError> {
    connection.execute("FLUSH BINARY LOGS").await?;
    if let Some((_, bytes)) = files(connection).await?.last() {
        emptied.flushed(*bytes);
    }
    Ok(())
}

/// Drops all binlog files except the newest. mysqld silently keeps files that a dump reads, so the dumps of other readers are ended first.
/// Call this only after a comparison, made since the newest file began, found nothing errant in the older files: errant transactions would
/// be lost.
///
/// # Errors
/// [`FollowerBinlogError`]; a retry continues where it stopped.
pub async fn drop_earlier_files(
    connection: &mut Connection,
    connect: &ConnectOptions,
) -> Result<(), FollowerBinlogError> {
    for _ in 0..TRIES {
        let files = files(connection).await?;
        let [_, .., (newest, _)] = &files[..] else {
            return Ok(());
        };
        let purge = format!("PURGE BINARY LOGS TO {}", literal(newest));
        connection.execute(&purge).await?;
        if self::files(connection).await?.len() <= 1 {
            return Ok(());
        }
        end_dumps(connection, connect).await;
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    Err(FollowerBinlogError::DumpReads)
}

/// Makes a closed server sync its binlog again, and drops the binlog files written while it followed. Those files name the applied
/// transactions without their content, so a replica would skip every row. Call this only for a server without errant transactions, which
/// would be lost from its binlog.
///
/// # Errors
/// [`FollowerBinlogError`]; a retry continues where it stopped.
pub async fn leave_following(
    connection: &mut Connection,
    connect: &ConnectOptions,
) -> Result<(), FollowerBinlogError> {
    drop_channel(connection).await?;
    connection.execute("SET GLOBAL sync_binlog = 1").await?;
    begin_a_file(connection, &mut Emptied::default()).await?;
    drop_earlier_files(connection, connect).await
}

/// Ends the dumps of replicas and other consumers. If dumps cannot be listed, ends none.
pub async fn end_dumps(connection: &mut Connection, connect: &ConnectOptions) {
    let query = format!(
        "SELECT {COLUMNS}, t.PROCESSLIST_COMMAND FROM performance_schema.threads AS t \
         WHERE t.PROCESSLIST_COMMAND LIKE 'Binlog Dump%' AND t.PROCESSLIST_ID NOT IN {OF_MEMBERS}"
    );
    let dumps = asked(connection, &query).await;
    for dump in seen(dumps, "whether a replica reads this mysqld's binlog") {
        let why = "this mysqld follows, and its binlog has empty transactions in the place of what the ring has: attach the \
                   replica to a member's binlog server";
        // A failure is logged and retried at the next check.
        dump.kill(connect, why).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_empty_that_is_as_large_as_two_flushes_left_theirs() {
        let mut emptied = Emptied::default();
        assert!(!emptied.is(198), "nothing is known");
        emptied.flushed(198);
        assert!(!emptied.is(198), "something may have been appended");
        emptied.flushed(198);
        assert!(emptied.is(198));
        assert!(!emptied.is(300));
        // With more sources, the header of a file is longer.
        emptied.flushed(238);
        assert!(!emptied.is(238));
    }
}

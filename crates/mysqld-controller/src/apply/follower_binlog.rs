//! The binlog of a mysqld that follows by `rows`: nobody may read it. Rows are not in it, and of DDL, statements and XA an empty
//! transaction is: a replica that read that would count them as executed, without an error. mysqld cannot be told to refuse
//! dumps. So they are ended, and what they would come back for is dropped: mysqld refuses a replica that lacks what is in no file
//! any more, with error 1236.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, literal};

use crate::blocking_sessions::{COLUMNS, OF_MEMBERS, asked, seen};

/// How often it is tried to drop files that a dump was reading: a session that was killed ends within moments.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// How large the newest file is while there is nothing in it, as flushes show it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Emptied {
    /// Behind the last flush, when something may have been written already.
    last: Option<u64>,
    /// The same behind two flushes.
    empty: Option<u64>,
}

impl Emptied {
    /// How large the newest file was behind a flush.
    fn flushed(&mut self, bytes: u64) {
        self.empty = (self.last == Some(bytes)).then_some(bytes);
        self.last = Some(bytes);
    }

    fn is(self, bytes: u64) -> bool {
        self.empty == Some(bytes)
    }
}

/// Names and sizes of the binlog files, the newest one last.
async fn files(connection: &mut Connection) -> Result<Vec<(String, u64)>, String> {
    let answer = connection.query("SHOW BINARY LOGS").await.map_err(told)?;
    let file = |row: &mysql_link::Row| {
        let bytes = row.text_at(1)?.parse().ok()?;
        Some((row.text_at(0)?.to_owned(), bytes))
    };
    let files: Option<Vec<_>> = answer.rows.iter().map(file).collect();
    files.ok_or_else(|| "mysqld lists its binlog files in an unknown way".to_owned())
}

/// Begins a new file where the only one has something in it, and says whether there are files to drop: never another one while files
/// could not be dropped, as during a backup.
///
/// # Errors
/// In words; a server without a binlog refuses.
pub(super) async fn rotate_if_written(
    connection: &mut Connection,
    emptied: &mut Emptied,
) -> Result<bool, String> {
    match &files(connection).await?[..] {
        [(_, bytes)] if emptied.is(*bytes) => Ok(false),
        [_] => begin_a_file(connection, emptied).await.map(|()| true),
        _ => Ok(true),
    }
}

/// Begins a new file.
///
/// # Errors
/// In words.
pub(super) async fn begin_a_file(
    connection: &mut Connection,
    emptied: &mut Emptied,
) -> Result<(), String> {
    connection
        .execute("FLUSH BINARY LOGS")
        .await
        .map_err(told)?;
    if let Some((_, bytes)) = files(connection).await?.last() {
        emptied.flushed(*bytes);
    }
    Ok(())
}

/// Drops all binlog files but the newest one. mysqld keeps those that a dump reads, and says nothing: dumps of others end. Only for
/// files that have nothing beyond the ring's log, as a comparison behind the newest one's begin says: that would be gone.
///
/// # Errors
/// In words; done again, it goes on where it was.
pub(super) async fn drop_earlier_files(
    connection: &mut Connection,
    connect: &ConnectOptions,
) -> Result<(), String> {
    for _ in 0..TRIES {
        let files = files(connection).await?;
        let [_, .., (newest, _)] = &files[..] else {
            return Ok(());
        };
        let purge = format!("PURGE BINARY LOGS TO {}", literal(newest));
        connection.execute(&purge).await.map_err(told)?;
        if self::files(connection).await?.len() <= 1 {
            return Ok(());
        }
        end_dumps(connection, connect).await;
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    Err(
        "binlog files of the time in which this mysqld followed cannot be dropped, because a dump reads them. A replica would get \
         empty transactions from them: end it (SHOW PROCESSLIST, `Binlog Dump`)"
            .to_owned(),
    )
}

/// Ends the dumps of replicas and other consumers. Where they cannot be seen, none is.
pub(super) async fn end_dumps(connection: &mut Connection, connect: &ConnectOptions) {
    let query = format!(
        "SELECT {COLUMNS}, t.PROCESSLIST_COMMAND FROM performance_schema.threads AS t \
         WHERE t.PROCESSLIST_COMMAND LIKE 'Binlog Dump%' AND t.PROCESSLIST_ID NOT IN {OF_MEMBERS}"
    );
    let dumps = seen(
        asked(connection, &query).await,
        "whether a replica reads this mysqld's binlog",
    );
    for dump in &dumps {
        let why = "this mysqld follows, and its binlog has empty transactions in the place of what the ring has: attach the \
                   replica to a member's binlog server";
        // Said in the log; it is tried again at the next look.
        dump.kill(connect, why).await.ok();
    }
}

fn told(error: LinkError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_empty_that_is_as_large_as_two_flushes_left_theirs() {
        let mut emptied = Emptied::default();
        assert!(!emptied.is(198), "nothing is known");
        emptied.flushed(198);
        assert!(!emptied.is(198), "something may have come behind it");
        emptied.flushed(198);
        assert!(emptied.is(198));
        assert!(!emptied.is(300));
        // More sources, and what stands at the head of a file is longer.
        emptied.flushed(238);
        assert!(!emptied.is(238));
    }
}

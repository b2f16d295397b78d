//! The steps between following and being the primary, after the last transaction was applied.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::apply::follower_binlog::{self, Emptied};
use crate::apply::native::drop_channel;
use crate::write_fence::read_only;

/// How long a lock may be waited for. No client writes, so that there is nothing to wait for.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Closes the server to administrators too.
///
/// # Errors
/// In words.
pub(super) async fn close_to_all(
    connection: &mut Connection,
    connect: &ConnectOptions,
) -> Result<(), String> {
    let closed = read_only::close_by(connection, connect, LOCK_WAIT).await;
    closed.map_err(|error| error.to_string())
}

/// Ends replica threads of this member's channel, which an earlier life of it may have left at work.
///
/// # Errors
/// In words.
pub(super) async fn end_replication(connection: &mut Connection) -> Result<(), String> {
    drop_channel(connection).await.map_err(told)
}

/// Has a closed server force its binlog again, and drops the binlog files of the time in which it followed: they name the
/// transactions that were applied without holding them, and a dump that read them would pass over every row. Only for a
/// server that has nothing beyond the ring's log: what it has beyond would be gone from its binlog.
///
/// # Errors
/// In words; done again, it goes on where it was.
pub(crate) async fn leave_following(
    connection: &mut Connection,
    connect: &ConnectOptions,
) -> Result<(), String> {
    drop_channel(connection).await.map_err(told)?;
    connection
        .execute("SET GLOBAL sync_binlog = 1")
        .await
        .map_err(told)?;
    follower_binlog::begin_a_file(connection, &mut Emptied::default()).await?;
    follower_binlog::drop_earlier_files(connection, connect).await
}

fn told(error: LinkError) -> String {
    error.to_string()
}

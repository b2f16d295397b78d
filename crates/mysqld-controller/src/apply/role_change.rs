//! The steps between following and being the primary, after the last transaction is applied.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::apply::follower_binlog::{self, Emptied};
use crate::apply::native::drop_channel;
use crate::write_fence::read_only;

/// Lock wait timeout. No client writes, so there is nothing to wait for.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Closes the server to administrators, too.
///
/// # Errors
/// The cause, as a message.
pub(super) async fn close_to_all(
    connection: &mut Connection,
    connect: &ConnectOptions,
) -> Result<(), String> {
    let closed = read_only::close_by(connection, connect, LOCK_WAIT).await;
    closed.map_err(|error| error.to_string())
}

/// Ends replica threads of this member's channel, which an earlier run of the member may have left running.
///
/// # Errors
/// The cause, as a message.
pub(super) async fn end_replication(connection: &mut Connection) -> Result<(), String> {
    drop_channel(connection).await.map_err(told)
}

/// Makes a closed server sync its binlog again, and drops the binlog files written while it followed. They name the applied transactions
/// without their content, and a dump from them would skip every row. Only for a server without errant transactions: they would be lost from
/// its binlog.
///
/// # Errors
/// The cause, as a message; a retry continues where it stopped.
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

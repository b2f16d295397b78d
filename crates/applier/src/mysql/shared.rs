//! The state that a backend and its sessions share.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use binlog_format::gtid::Gtid;
use mysql_link::{ConnectOptions, Connection, LinkError, ServerError, server_code};

use crate::mysql::checkpoint::{Begun, Checkpoint};
use crate::mysql::options::{MysqlOptions, STATEMENT_LIMIT};

/// The state that a backend and its sessions share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: MysqlOptions,
    /// The checkpoint, if transactions commit as one.
    pub(super) checkpoint: Option<Arc<Checkpoint>>,
    /// State for rows that are larger than the target's packets.
    pub(super) room: PacketRoom,
    /// Longer time limits of batches and barriers that exceeded the limit before, by their first transactions, until they are
    /// completed.
    pub(super) more_time: Mutex<BTreeMap<Gtid, Duration>>,
    /// State for writes that a rollback does not remove.
    pub(super) for_good: Begun,
}

// Time limits for packets of rows that exceeded the limit before.
//
// A packet that exceeds its limit is retried in another session. It would fail indefinitely if the target needs longer than the
// limit, such as for a large table without a primary key, which is searched for each row. So each retry of a batch has twice the
// time.

/// Returns the time limit for the retry of a packet that exceeded `limit`: at most the limit of a statement.
pub(super) fn limit_of_retry(limit: Duration) -> Duration {
    limit.saturating_mul(2).min(STATEMENT_LIMIT).max(limit)
}

// Larger packets, for rows that exceed the target's `max_allowed_packet`.
//
// A row of n bytes is a `BINLOG` statement of 4/3 n bytes, so a row may fit into a packet on the source and not here. The limit
// of a session is the server's limit at the moment of its connection, and cannot be changed afterwards. So the server's limit is
// raised while one connection is opened, and then restored. That is safe: the setting limits a client's packets and affects no
// data. Only a client that connects at that moment may send larger packets than other clients. If the applier is killed at that
// moment, the raised value remains until the target is restarted or an operator resets it.

/// The largest `max_allowed_packet` that a server supports.
pub(super) const LARGEST: usize = 1 << 30;

/// True if new sessions are opened with larger packets. They are opened one at a time.
#[derive(Debug, Default)]
pub(super) struct PacketRoom {
    /// True if sessions opened from now on get larger packets.
    pub(super) asked: AtomicBool,
    opening: tokio::sync::Mutex<()>,
}

impl PacketRoom {
    /// Opens a connection with the server's largest packets. If the account may not change the limit, opens one with ordinary
    /// packets and logs that.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) async fn open(&self, connect: &ConnectOptions) -> Result<Connection, LinkError> {
        let _one = self.opening.lock().await;
        let mut first = Connection::open(connect).await?;
        let answer = first.query("SELECT @@GLOBAL.max_allowed_packet").await?;
        let before = answer.value().and_then(|text| text.parse().ok());
        let before: usize = before.unwrap_or(LARGEST);
        if before >= LARGEST {
            return Connection::open(connect).await;
        }
        match first.execute(set_statement(LARGEST)).await {
            Ok(_) => {}
            Err(LinkError::Server(error)) => {
                tracing::warn!(
                    %error,
                    "a row needs a larger packet than the target takes: GRANT SYSTEM_VARIABLES_ADMIN lets the applier \
                     raise max_allowed_packet for the moment in which it connects"
                );
                return Ok(first);
            }
            Err(error) => return Err(error),
        }
        let opened = Connection::open(connect).await;
        let mut back = first.execute(set_statement(before)).await;
        if back.is_err()
            && let Ok(mut again) = Connection::open(connect).await
        {
            back = again.execute(set_statement(before)).await;
        }
        if let Err(error) = back {
            tracing::warn!(%error, "max_allowed_packet of the target stays raised; it was {before}");
        }
        opened
    }
}

/// Returns the error for a row that fits into no packet.
pub(super) fn no_packet(length: usize) -> ServerError {
    ServerError {
        code: server_code::PACKET_TOO_LARGE,
        sqlstate: "08S01".to_owned(),
        message: format!(
            "A row takes a statement of {length} bytes, and no packet is larger than {LARGEST}. mysqld's own replica threads \
             can apply it (mysql.apply = \"native\" for the member beside it), or a copy of another server's data brings it"
        ),
    }
}

fn set_statement(bytes: usize) -> String {
    format!("SET GLOBAL max_allowed_packet = {bytes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_retry_gets_twice_the_time_up_to_a_bound() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let mut limits = vec![hours(4)];
        for at in 0..4 {
            limits.push(limit_of_retry(limits[at]));
        }
        assert_eq!(limits, [4, 8, 16, 24, 24].map(hours));
        // A limit that is above the bound is unchanged.
        assert_eq!(limit_of_retry(hours(30)), hours(30));
    }
}

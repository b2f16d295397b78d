//! Packets for rows that are larger than the target's `max_allowed_packet`.
//!
//! A row of n bytes is a `BINLOG` statement of 4/3 n, so that what fitted into a packet on the source may not fit into one
//! here. A session's limit is the server's at the moment in which it connects, and cannot be changed afterwards. So the
//! server's is raised for the moment of one connection and put back. That is safe: the setting bounds what a client may
//! send and decides nothing about data, and a client that connects in that moment may send more than others. If the applier
//! is killed in it, the raised value stays until the target is restarted or set back.

use std::sync::atomic::{AtomicBool, Ordering};

use mysql_link::{ConnectOptions, Connection, LinkError, ServerError, server_code};

/// The largest `max_allowed_packet` that a server has.
pub(super) const LARGEST: usize = 1 << 30;

/// Whether new sessions are opened with more room, and one opening at a time.
#[derive(Debug, Default)]
pub(super) struct PacketRoom {
    asked: AtomicBool,
    opening: tokio::sync::Mutex<()>,
}

impl PacketRoom {
    /// Sessions that are opened from now on get more room.
    pub(super) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether it was asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Opens a connection with the largest packets that the server has; with its ordinary ones if the account may not set
    /// them, which is said.
    ///
    /// # Errors
    /// When there is no connection.
    pub(super) async fn open(&self, connect: &ConnectOptions) -> Result<Connection, LinkError> {
        let _one = self.opening.lock().await;
        let mut first = Connection::open(connect).await?;
        let answer = first.query("SELECT @@GLOBAL.max_allowed_packet").await?;
        let before = answer.first().and_then(|row| row.text_at(0));
        let before: usize = before.and_then(|text| text.parse().ok()).unwrap_or(LARGEST);
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

/// What is said of a row for which there is no packet.
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

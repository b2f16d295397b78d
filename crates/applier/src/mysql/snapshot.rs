//! Readers that wait for a prefix of the log.

use std::sync::{Mutex, PoisonError};

use mysql_link::{Connection, LinkError};
use tokio::sync::oneshot;

/// How many readers may wait for the next prefix point.
pub(super) const MOST_WAITING: usize = 256;

/// What a reader is given.
pub(super) type Given = Result<Connection, LinkError>;

/// Connections whose snapshot is to be taken at the next prefix point.
#[derive(Debug, Default)]
pub(super) struct WaitingReaders {
    waiting: Mutex<Vec<(Connection, oneshot::Sender<Given>)>>,
}

impl WaitingReaders {
    /// Lets a connection wait; `None` when too many do.
    pub(super) fn add(&self, connection: Connection) -> Option<oneshot::Receiver<Given>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST_WAITING {
            // Those whose reader has gone make room.
            waiting.retain(|(_, reader)| !reader.is_closed());
        }
        if waiting.len() >= MOST_WAITING {
            return None;
        }
        waiting.push((connection, sender));
        Some(receiver)
    }

    /// Takes all snapshots, at the same time, and hands them out.
    pub(super) async fn take_snapshots(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let snapshots = waiting
            .into_iter()
            .map(|(mut connection, reader)| async move {
                let began = connection
                    .execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                    .await;
                // A reader that has gone needs nothing.
                let _ = reader.send(began.map(|_| connection));
            });
        futures::future::join_all(snapshots).await;
    }
}

//! The gate between a leader's stream of entries and the engine. A request waits here until the log can take it, because
//! the engine cannot refuse and does not wait.

use std::sync::Arc;
use std::time::Duration;

use openraft::raft::AppendEntriesRequest;
use raft_types::{AppEntry, EntryPayload, LogIntake, OpId, TypeConfig, stored_bytes};

/// Interval between two checks of a full disk.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Bytes of the transactions in a request that the log lacks. The ring's own entries never wait for room on the disk. A new
/// leader searches for the end of a log by sending entries that the log has.
fn transactions(
    log: &dyn LogIntake,
    request: &AppendEntriesRequest<TypeConfig>,
) -> impl Iterator<Item = u64> {
    let entries = request.entries.iter();
    entries.filter_map(|entry| match &entry.payload {
        EntryPayload::Normal(AppEntry::Transaction(payload)) => {
            let lacks = !log.has(OpId::from(entry.log_id));
            lacks.then(|| payload.bytes().len() as u64)
        }
        _ => None,
    })
}

/// Waits until a log can take a request: its disk has room for the request's transactions, and the pending writes
/// leave room for it in memory. A member whose stream waits lags, and resumes by itself.
pub(crate) async fn wait_for_room(
    log: Option<Arc<dyn LogIntake>>,
    request: &AppendEntriesRequest<TypeConfig>,
) {
    let Some(log) = log else {
        return;
    };
    let bytes: u64 = transactions(&*log, request).sum();
    if bytes == 0 {
        return;
    }
    let stored: u64 = transactions(&*log, request).map(stored_bytes).sum();
    let mut told = false;
    while log.room(stored).in_all < stored {
        if !told {
            tracing::warn!(
                bytes = stored,
                "the log's disk has no room for the leader's entries; they wait until it has: purge old log files, or add space"
            );
            told = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if told {
        tracing::info!("the log's disk has room again; the leader's entries are written again");
    }
    log.queue_room(bytes).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use futures::FutureExt;
    use raft_types::Entry;
    use raft_types::LogId;
    use raft_types::LogRoom;
    use raft_types::MemberId;
    use raft_types::TransactionPayload;
    use raft_types::Vote;
    use raft_types::WaitingForLog;

    use super::*;

    #[derive(Default)]
    struct Disk {
        free: AtomicU64,
        /// How many entries the log has.
        entries: AtomicU64,
    }

    impl LogIntake for Disk {
        fn room(&self, _: u64) -> LogRoom {
            LogRoom {
                transactions: 0,
                in_all: self.free.load(Ordering::Relaxed),
            }
        }

        fn queue_room(&self, _: u64) -> WaitingForLog<'_> {
            Box::pin(std::future::ready(()))
        }

        fn has(&self, entry: OpId) -> bool {
            entry.term == 1 && entry.index < self.entries.load(Ordering::Relaxed)
        }
    }

    fn request(payloads: Vec<EntryPayload>) -> AppendEntriesRequest<TypeConfig> {
        let entries = (0..).zip(payloads).map(|(index, payload)| Entry {
            log_id: LogId::from(OpId::new(1, index)),
            payload,
        });
        AppendEntriesRequest {
            vote: Vote::new_committed(1, MemberId(1)),
            prev_log_id: None,
            entries: entries.collect(),
            leader_commit: None,
        }
    }

    fn transaction(bytes: usize) -> EntryPayload {
        let payload = TransactionPayload::seal(Bytes::from(vec![1; bytes]));
        EntryPayload::Normal(AppEntry::Transaction(payload))
    }

    #[tokio::test(start_paused = true)]
    async fn transactions_wait_for_the_disk_and_the_rings_own_entries_do_not() {
        let disk = Arc::new(Disk::default());
        let log: Option<Arc<dyn LogIntake>> = Some(disk.clone());
        let own = request(vec![EntryPayload::Blank]);
        assert!(wait_for_room(log.clone(), &own).now_or_never().is_some());

        let request = request(vec![
            EntryPayload::Blank,
            transaction(700),
            transaction(300),
        ]);
        let needed = stored_bytes(700) + stored_bytes(300);
        disk.free.store(needed - 1, Ordering::Relaxed);
        let waited = tokio::time::timeout(
            Duration::from_secs(60),
            wait_for_room(log.clone(), &request),
        );
        assert!(waited.await.is_err());
        disk.free.store(needed, Ordering::Relaxed);
        wait_for_room(log, &request).await;
        wait_for_room(None, &request).await;
    }

    /// Regression: a new leader's search with existing entries waited for room on a full disk, so no member could lead.
    #[tokio::test(start_paused = true)]
    async fn what_a_full_disk_has_waits_for_no_room() {
        let disk = Arc::new(Disk::default());
        let log: Option<Arc<dyn LogIntake>> = Some(disk.clone());
        let request = request(vec![transaction(700), transaction(300)]);
        disk.entries.store(2, Ordering::Relaxed);
        let waits = wait_for_room(log.clone(), &request).now_or_never();
        assert!(waits.is_some());
        disk.entries.store(1, Ordering::Relaxed);
        disk.free.store(stored_bytes(300) - 1, Ordering::Relaxed);
        let waits = wait_for_room(log.clone(), &request).now_or_never();
        assert!(waits.is_none(), "the second one is new");
        disk.free.store(stored_bytes(300), Ordering::Relaxed);
        wait_for_room(log, &request).await;
    }
}

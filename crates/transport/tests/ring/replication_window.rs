//! The bytes in flight to a slow follower stay within the window, and the ring commits without that follower.

use std::time::Duration;

use raft_types::MemberKind::Database;
use raft_types::{MAX_MESSAGE_BYTES, REPLICATION_WINDOW_BYTES};

use crate::support::grpc_ring::{GrpcRing, transaction};

/// Size of an entry. It is so large that the engine's limit of 64 unanswered requests does not matter.
const ENTRY_BYTES: usize = 900 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_with_a_slow_disk_is_sent_one_window() {
    let ring = GrpcRing::of(&[Database; 3]).await;
    let first = ring.commit(transaction("small")).await;
    ring.committed_everywhere(first).await;
    let (leader, _) = ring.serving().await;
    let slow = *ring.records.keys().find(|id| **id != leader).unwrap();
    let disk = &ring.nodes[&slow].disk;
    disk.set_flush_time(Duration::from_secs(4));

    let count = 3 * REPLICATION_WINDOW_BYTES / ENTRY_BYTES;
    for number in 0..count {
        ring.commit(transaction(vec![number as u8; ENTRY_BYTES]))
            .await;
    }
    // Waits until the follower has received everything that was sent.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let received = (disk.transactions().len() - 1) * ENTRY_BYTES;
    assert!(
        received >= REPLICATION_WINDOW_BYTES / 2,
        "it was sent only {received} bytes"
    );
    assert!(
        received <= REPLICATION_WINDOW_BYTES + 2 * MAX_MESSAGE_BYTES,
        "{received} bytes are under way"
    );

    disk.set_flush_time(Duration::ZERO);
    let last = ring.commit(transaction("last")).await;
    ring.committed_everywhere(last).await;
    assert_eq!(disk.transactions().len(), count + 2);
}

//! Entries that are not answered do not block their stream forever.

use std::time::Duration;

use raft_types::MemberKind::Database;
use transport::TransportConfig;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_stream_is_restarted() {
    let config = TransportConfig {
        stall_deadline: Duration::from_millis(500),
        ..TransportConfig::for_timers(&TIMERS)
    };
    let ring = GrpcRing::waiting(&[Database; 3], config).await;
    let first = ring.commit(transaction("before")).await;
    ring.committed_everywhere(first).await;
    let (leader, _) = ring.serving().await;
    let hung = *ring.records.keys().find(|id| **id != leader).unwrap();
    let disk = &ring.nodes[&hung].disk;
    disk.set_flush_time(Duration::from_secs(3_600));
    ring.commit(transaction("without it")).await;
    within("the end of the stream", async {
        loop {
            let troubles = ring.nodes[&leader].factory.troubles();
            if troubles
                .get(&hung)
                .is_some_and(|trouble| trouble.message.contains("no progress for"))
            {
                return;
            }
            // Heartbeats are answered in the meantime, which clears the recorded failure.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    disk.set_flush_time(Duration::ZERO);
    let last = ring.commit(transaction("after")).await;
    ring.committed_everywhere(last).await;
}

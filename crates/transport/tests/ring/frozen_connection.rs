//! A frozen connection is closed, and entries use a new one.

use raft_types::MemberKind::Database;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_behind_frozen_connections_catches_up() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let first = ring.commit(transaction("before")).await;
    ring.committed_everywhere(first).await;
    let (leader, term) = ring.serving().await;
    let follower = *ring.records.keys().find(|id| **id != leader).unwrap();
    wires[&follower].freeze_connections();
    let last = ring.commit(transaction("after")).await;
    ring.committed_everywhere(last).await;
    assert_eq!(
        ring.serving().await,
        (leader, term),
        "the leader did not change"
    );
}

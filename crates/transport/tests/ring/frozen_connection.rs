//! A connection that carries nothing any more is given up, and entries go over a new one.

use raft_types::MemberKind::Database;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_behind_a_frozen_connection_catches_up() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let first = ring.commit(transaction("before")).await;
    ring.committed_everywhere(first).await;
    for wire in wires.values() {
        wire.freeze_connections();
    }
    let last = ring.commit(transaction("after")).await;
    ring.committed_everywhere(last).await;
}

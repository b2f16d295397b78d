//! A byte that changes between two members is detected, and the entry is sent again.

use raft_types::MemberKind::Database;
use raft_types::TransactionPayload;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};
use crate::support::wire::Wire;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_stores_a_damaged_entry() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    ring.commit(transaction("before")).await;
    let (leader, _) = ring.serving().await;
    let follower = *ring.records.keys().find(|id| **id != leader).unwrap();
    let wire: &Wire = &wires[&follower];
    wire.damage_next();
    let bytes: Vec<u8> = (0..700_000u32).map(|number| number as u8).collect();
    let last = ring.commit(transaction(bytes.clone())).await;
    ring.committed_everywhere(last).await;
    assert!(wire.has_damaged());
    let stored = ring.nodes[&follower].disk.transactions();
    assert_eq!(stored.len(), 2);
    let sealed = TransactionPayload::seal(bytes.into());
    assert_eq!(stored[1], sealed.bytes());
}

//! A member that can send but receives nothing requests pre-votes, and changes nothing.

use raft_types::MemberKind::Database;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_term_stays_although_a_deaf_member_campaigns() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let first = ring.commit(transaction("before")).await;
    ring.committed_everywhere(first).await;
    let (leader, term) = ring.serving().await;
    let deaf = *ring.records.keys().find(|id| **id != leader).unwrap();
    wires[&deaf].cut();
    tokio::time::sleep(TIMERS.lease * 4).await;
    assert_eq!(
        ring.member(deaf).status().term,
        term,
        "no member elected it"
    );
    assert_eq!(ring.serving().await, (leader, term));
    ring.commit(transaction("during it")).await;

    wires[&deaf].repair();
    let last = ring.commit(transaction("after")).await;
    ring.committed_everywhere(last).await;
    assert_eq!(ring.serving().await, (leader, term));
}

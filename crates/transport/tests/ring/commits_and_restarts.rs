//! Commits over gRPC; a member stops gracefully, and catches up after its restart.

use std::time::{Duration, Instant};

use raft_types::MemberKind::{Database, Witness};

use crate::support::grpc_ring::{GrpcRing, transaction, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_catches_up() {
    let mut ring = GrpcRing::of(&[Database, Witness, Witness]).await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let text = format!("together {number}");
        ring.commit(transaction(text.clone())).await;
        expected.push(text);
    }
    let (leader, term) = ring.serving().await;
    let away = *ring.records.keys().find(|id| **id != leader).unwrap();

    let begin = Instant::now();
    let disk = ring.stop(away).await;
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "streams held the shutdown up"
    );

    for number in 0..20 {
        let text = format!("without it {number}");
        ring.commit(transaction(text.clone())).await;
        expected.push(text);
    }
    within("the trouble", async {
        while !ring.nodes[&leader].factory.troubles().contains_key(&away) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    ring.restart(away, disk).await;
    let last = ring.commit(transaction("together again")).await;
    expected.push("together again".to_owned());
    ring.committed_everywhere(last).await;
    for node in ring.nodes.values() {
        assert_eq!(node.disk.transactions(), expected);
    }
    assert_eq!(
        ring.serving().await,
        (leader, term),
        "the leader did not change"
    );
    within("the end of the trouble", async {
        while ring.nodes[&leader].factory.troubles().contains_key(&away) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_is_replaced() {
    let mut ring = GrpcRing::of(&[Database; 3]).await;
    ring.commit(transaction("before")).await;
    let (leader, term) = ring.serving().await;
    let disk = ring.stop(leader).await;
    let (next, next_term) = ring.serving().await;
    assert!(next != leader && next_term > term);
    ring.commit(transaction("after")).await;
    ring.restart(leader, disk).await;
    let last = ring.commit(transaction("together")).await;
    ring.committed_everywhere(last).await;
    for node in ring.nodes.values() {
        assert_eq!(node.disk.transactions(), ["before", "after", "together"]);
    }
}

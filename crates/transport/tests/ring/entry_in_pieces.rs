//! An entry of many messages arrives completely, and no member misses a heartbeat.

use std::time::Instant;

use consensus::Outcome;
use raft_types::MAX_MESSAGE_BYTES;
use raft_types::MemberKind::Database;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_64_mib_disturbs_no_leadership() {
    let ring = GrpcRing::of(&[Database; 3]).await;
    ring.commit(transaction("small")).await;
    let (leader, term) = ring.serving().await;
    let member = ring.member(leader);
    let mut leadership = member.leadership();
    leadership.mark_unchanged();

    let bytes: Vec<u8> = (0..(64 << 20) as u32)
        .map(|number| (number >> 3) as u8)
        .collect();
    assert!(bytes.len() > 60 * MAX_MESSAGE_BYTES);
    let large = transaction(bytes.clone());
    let mut large = member.propose(large, term).await.unwrap();
    let mut after = member.propose(transaction("after"), term).await.unwrap();
    let outcome = within("the large commit", large.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    let Outcome::Committed(last) = within("the one after it", after.outcome()).await else {
        panic!("{after:?}");
    };
    ring.committed_everywhere(last).await;
    for node in ring.nodes.values() {
        let stored = node.disk.transactions();
        assert_eq!(stored.len(), 3);
        assert!(stored[1] == bytes, "the large transaction differs");
    }
    assert!(
        !leadership.has_changed().unwrap(),
        "{:?}",
        *leadership.borrow()
    );
    assert_eq!(ring.serving().await, (leader, term));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_overtake_a_large_entry_on_a_slow_link() {
    const SPEED: u64 = 8 << 20;
    const BYTES: usize = 24 << 20;
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let first = ring.commit(transaction("small")).await;
    ring.committed_everywhere(first).await;
    let (leader, term) = ring.serving().await;
    for wire in wires.values() {
        wire.slow_down(SPEED);
    }
    let member = ring.member(leader);
    let mut leadership = member.leadership();
    leadership.mark_unchanged();
    let begin = Instant::now();
    let large = transaction(vec![5; BYTES]);
    let mut large = member.propose(large, term).await.unwrap();
    let outcome = within("the large commit", large.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert!(begin.elapsed() > TIMERS.lease * 2, "the link was not slow");
    assert!(
        !leadership.has_changed().unwrap(),
        "{:?}",
        *leadership.borrow()
    );
    assert_eq!(ring.serving().await, (leader, term));
}

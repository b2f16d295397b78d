//! A crashed leader is replaced without the loss of an acknowledged entry.

use raft_types::MemberKind::Database;

use crate::support::ring::Ring;

#[tokio::test]
async fn acknowledged_entries_survive_the_leader() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let mut expected = Vec::new();
    for number in 0..50 {
        let text = format!("before {number}");
        ring.commit(&text).await;
        expected.push(text);
    }
    ring.crash(leader).await;
    let (next, next_term) = ring.serving().await;
    assert!(next != leader && next_term > term);
    ring.commit("after").await;
    expected.push("after".to_owned());

    ring.start(leader).await;
    let last = ring.commit("together").await;
    expected.push("together".to_owned());
    ring.committed_everywhere(last).await;
    for disk in ring.disks.values() {
        assert_eq!(disk.transactions(), expected);
    }
}

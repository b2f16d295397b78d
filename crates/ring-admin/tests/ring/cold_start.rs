//! After all members were down, the ring elects a leader, and has all acknowledged entries.

use raft_types::MemberKind::{Database, Witness};

use crate::support::ring::Ring;

#[tokio::test]
async fn a_restarted_ring_continues() {
    let mut ring = Ring::of(&[Database, Witness, Witness]).await;
    let (_, first_term) = ring.serving().await;
    let before = ring.commit("before").await;
    for id in ring.ids() {
        ring.crash(id).await;
    }
    for id in ring.ids() {
        ring.start(id).await;
    }
    let (_, term) = ring.serving().await;
    assert!(
        term > first_term,
        "a restarted leader must be elected again"
    );
    let after = ring.commit("after").await;
    assert!(after.index > before.index);
    ring.committed_everywhere(after).await;
    for disk in ring.disks.values() {
        assert_eq!(disk.transactions(), ["before", "after"]);
    }
}

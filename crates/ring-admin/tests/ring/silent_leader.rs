//! A member that no longer receives its leader's messages stops reporting that leader, even if no other member can be elected.

use consensus::Leadership;
use raft_types::MemberKind::Database;

use crate::support::ring::{PATIENCE, Ring};

#[tokio::test]
async fn a_silent_leader_is_not_named() {
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    let last = ring.commit("heard").await;
    ring.committed_everywhere(last).await;
    let lost = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    let names = |leadership: Leadership| {
        leadership
            == Leadership::Follower {
                leader: Some(leader),
            }
    };
    assert!(names(ring.member(lost).leadership_now()));

    ring.board.isolate(lost, ring.ids());
    let mut published = ring.member(lost).leadership();
    let forgotten = published.wait_for(|now| !names(*now));
    tokio::time::timeout(PATIENCE, forgotten)
        .await
        .unwrap()
        .unwrap();
    assert!(!names(ring.member(lost).status().leadership));

    ring.board.heal();
    let heard_again = published.wait_for(|now| names(*now));
    tokio::time::timeout(PATIENCE, heard_again)
        .await
        .unwrap()
        .unwrap();
}

//! A member that was isolated for several leases does not disturb the ring when it is reachable again.

use raft_types::MemberKind::Database;

use crate::support::ring::{Ring, TIMERS};

#[tokio::test]
async fn the_term_stays_when_a_lost_member_returns() {
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let lost = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.board.isolate(lost, ring.ids());
    // Long enough for several campaigns of the isolated member.
    tokio::time::sleep(TIMERS.lease * 5).await;
    let committed = ring.commit("committed").await;
    assert_eq!(ring.member(lost).status().term, term);
    ring.board.heal();

    let last = ring.commit("together").await;
    assert_eq!(last.index, committed.index + 1);
    ring.committed_everywhere(last).await;
    assert_eq!(ring.serving().await, (leader, term));
    assert_eq!(ring.member(lost).status().term, term);
}

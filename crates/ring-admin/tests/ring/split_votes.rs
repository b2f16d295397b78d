//! If two members received the crashed leader's last message at the same moment, they may time out at the same moment. One of them is
//! elected nevertheless.

use raft_types::MemberKind::Witness;

use crate::support::ring::Ring;

#[tokio::test(start_paused = true)]
async fn witnesses_that_campaign_at_one_moment_do_not_do_so_for_ever() {
    // In virtual time, all members start at the same instant, which is the worst case.
    let mut ring = Ring::of(&[Witness; 3]).await;
    for round in 0..5 {
        let (leader, _) = ring.serving().await;
        ring.crash(leader).await;
        ring.commit(&format!("round {round}")).await;
        ring.start(leader).await;
    }
}

//! Members with different timers, as during a rolling change: a leader serves no longer than its voters promise not to elect another one.

use std::time::Duration;

use consensus::Timers;
use consensus::quorum::QuorumPolicy;
use raft_types::MemberId;

use crate::support::ring::{Ring, TIMERS, within};

const LONG: Timers = Timers {
    heartbeat: TIMERS.heartbeat,
    lease: Duration::from_secs(2),
};
const LEADER: MemberId = MemberId(1);
const VOTERS: [MemberId; 2] = [MemberId(2), MemberId(3)];

/// Returns a ring of three that the first member leads. The other two members have these timers.
async fn ring(voters: Timers) -> Ring {
    let mut ring = Ring::laid_out("a: 1d 2d 3d", QuorumPolicy::Majority);
    ring.timers = LONG;
    ring.start(LEADER).await;
    ring.timers = voters;
    for voter in VOTERS {
        ring.start(voter).await;
    }
    ring.bootstrap().await;
    assert_eq!(ring.serving().await.0, LEADER);
    let last = ring.commit("before the change").await;
    ring.committed_everywhere(last).await;
    ring
}

/// Waits until a voter serves. By then, the first leader, which receives no answers, must have stopped serving.
async fn serves_after_the_leader(ring: &Ring) {
    let serves = |id: MemberId| ring.member(id).leadership_now().serving_term();
    within("another leader", async {
        while VOTERS.into_iter().all(|voter| serves(voter).is_none()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(serves(LEADER), None, "two members serve");
}

async fn restart(ring: &mut Ring, id: MemberId) {
    ring.crash(id).await;
    ring.start(id).await;
}

#[tokio::test]
async fn a_leader_serves_for_the_lease_of_its_voters_where_that_is_shorter() {
    let ring = ring(TIMERS).await;
    ring.board.isolate(LEADER, VOTERS);
    serves_after_the_leader(&ring).await;
}

#[tokio::test]
async fn voters_that_are_restarted_with_a_shorter_lease_are_counted_on_for_that() {
    let mut ring = ring(LONG).await;
    ring.timers = TIMERS;
    for voter in VOTERS {
        restart(&mut ring, voter).await;
        let last = ring.commit("after the restart of a voter").await;
        ring.committed_everywhere(last).await;
    }
    // After this wait, the longer promises of the voters' previous processes have expired.
    tokio::time::sleep(LONG.lease).await;
    assert_eq!(ring.serving().await.0, LEADER);
    ring.board.isolate(LEADER, VOTERS);
    serves_after_the_leader(&ring).await;
}

#[tokio::test]
async fn voters_keep_the_longer_promise_of_their_last_process() {
    let mut ring = ring(LONG).await;
    ring.board.isolate(LEADER, VOTERS);
    ring.timers = TIMERS;
    for voter in VOTERS {
        restart(&mut ring, voter).await;
    }
    serves_after_the_leader(&ring).await;
}

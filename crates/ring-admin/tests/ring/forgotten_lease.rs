//! A voter that restarts during a lease that it has granted still honours this lease.

use raft_types::MemberId;
use raft_types::MemberKind::Database;

use crate::support::ring::{Ring, TIMERS, within};

#[tokio::test]
async fn a_restarted_voter_keeps_the_lease_of_its_leader() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let last = ring.commit("everybody has it").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let others: Vec<MemberId> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let (voter, rival) = (others[0], others[1]);
    // The rival has received no message for two leases, so it is bound by no lease. The voter answers heartbeats.
    ring.board.isolate(rival, ring.ids());
    tokio::time::sleep(TIMERS.lease * 2).await;
    assert_eq!(ring.serving().await, (leader, term));

    // At the same moment, the leader is isolated, the rival is reachable again, and the voter restarts.
    ring.crash(voter).await;
    ring.board.heal();
    ring.board.isolate(leader, ring.ids());
    ring.start(voter).await;
    let rivals_engine = ring.member(rival).engine().clone();
    rivals_engine.trigger().elect(false).await.unwrap();
    within("another leader", async {
        loop {
            let old = ring.member(leader).leadership_now().serving_term();
            let leads = |id: &&MemberId| {
                let leading = ring.member(**id).leadership_now().leading_term();
                leading.is_some_and(|later| later > term)
            };
            let new = others.iter().find(leads);
            if let Some(new) = new {
                assert_eq!(
                    old, None,
                    "member {leader} serves in term {term}, and member {new} has been elected"
                );
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
    ring.board.heal();
    let last = ring.commit("with the next leader").await;
    ring.committed_everywhere(last).await;
}

#[tokio::test]
async fn a_lone_voter_leads_again_a_lease_after_its_start() {
    let mut ring = Ring::of(&[Database]).await;
    ring.commit("before").await;
    ring.crash(MemberId(1)).await;
    let began = tokio::time::Instant::now();
    ring.start(MemberId(1)).await;
    ring.commit("after").await;
    assert!(began.elapsed() >= TIMERS.lease, "{:?}", began.elapsed());
}

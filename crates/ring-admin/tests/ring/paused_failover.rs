//! During a pause of failover, every leader reserves the primary's place, and no other member becomes the primary without an order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consensus::Primacy;
use futures::future::BoxFuture;
use raft_types::MemberId;
use raft_types::MemberKind::{Database, Witness};
use ring_admin::{
    NotPaused, PauseRequest, PromotionError, PromotionPhase, PromotionProgress, PromotionRefusal,
    ReconfigurationError, Writer,
};
use tokio::sync::{oneshot, watch};

use crate::support::ring::{PATIENCE, Ring, TIMERS, within};

const FIRST: MemberId = MemberId(1);
const OTHER: MemberId = MemberId(2);

fn request(for_seconds: Option<u64>) -> PauseRequest {
    PauseRequest {
        for_seconds,
        by: "anna".to_owned(),
        reason: "work on the disks".to_owned(),
    }
}

/// Returns a ring of two database members and a witness, which the first member leads.
async fn ring() -> Ring {
    let ring = Ring::of(&[Database, Database, Witness]).await;
    within("the first member leads", async {
        while ring.serving().await.0 != FIRST {
            let (leader, _) = ring.serving().await;
            let _ = ring.member(leader).transfer_leader(FIRST).await;
        }
    })
    .await;
    ring
}

/// Returns the members that report that they may be the primary.
fn primaries(ring: &Ring) -> Vec<MemberId> {
    let primacy = |id: &MemberId| ring.member(*id).primacy_now().leadership;
    let serves = |id: &MemberId| primacy(id).serving_term().is_some();
    ring.members.keys().copied().filter(serves).collect()
}

async fn becomes_primary(ring: &Ring, id: MemberId) {
    within("the primary", async {
        while primaries(ring) != [id] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn nobody_becomes_primary(ring: &Ring) {
    let until = tokio::time::Instant::now() + TIMERS.lease * 8;
    while tokio::time::Instant::now() < until {
        assert_eq!(primaries(ring), []);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_ring_elects_a_leader_and_no_primary_until_the_old_one_is_back() {
    let mut ring = ring().await;
    let (paused, _) = ring.member(FIRST).pause(&request(None)).await.unwrap();
    assert_eq!(paused.primary, FIRST);
    becomes_primary(&ring, FIRST).await;
    let committed = ring.commit("one").await;
    ring.committed_everywhere(committed).await;

    ring.crash(FIRST).await;
    let (leader, _) = ring.serving().await;
    nobody_becomes_primary(&ring).await;
    // The leader continues its other work: entries are committed, and the pause is reported.
    assert_eq!(ring.member(leader).status().pause, Some(paused.clone()));
    ring.commit("two").await;

    ring.start(FIRST).await;
    becomes_primary(&ring, FIRST).await;
    // The pause survives restarts and elections.
    assert_eq!(ring.member(FIRST).status().pause, Some(paused));
}

#[tokio::test(start_paused = true)]
async fn resuming_lets_another_one_be_the_primary() {
    let mut ring = ring().await;
    ring.member(FIRST).pause(&request(None)).await.unwrap();
    ring.crash(FIRST).await;
    nobody_becomes_primary(&ring).await;
    let (leader, _) = ring.serving().await;
    let (was, _) = ring.member(leader).resume("anna").await.unwrap();
    assert_eq!(was.pause.reason, "work on the disks");
    becomes_primary(&ring, OTHER).await;
    let (leader, _) = ring.serving().await;
    assert_eq!(
        ring.member(leader).resume("anna").await.unwrap_err(),
        ReconfigurationError::NotPaused
    );
}

#[tokio::test(start_paused = true)]
async fn a_promotion_moves_the_reserved_place_under_any_leader() {
    let mut ring = ring().await;
    ring.member(FIRST).pause(&request(None)).await.unwrap();
    let progress = watch::Sender::default();
    ring.member(FIRST).promote(OTHER, progress).await.unwrap();
    becomes_primary(&ring, OTHER).await;
    // The primary's place is now reserved for this member.
    ring.crash(OTHER).await;
    nobody_becomes_primary(&ring).await;
    within("the leader is promoted", async {
        loop {
            let (leader, _) = ring.serving().await;
            let progress = watch::Sender::default();
            match ring.member(leader).promote(FIRST, progress).await {
                Ok(promoted) => break assert_eq!(promoted.leader, FIRST),
                // A new leader may have no heartbeat answers yet, so the promotion is tried again.
                Err(_) => tokio::time::sleep(TIMERS.heartbeat).await,
            }
        }
    })
    .await;
    becomes_primary(&ring, FIRST).await;
    let paused = ring.member(FIRST).status().pause;
    assert_eq!(paused.map(|paused| paused.primary), Some(FIRST));
}

#[tokio::test(start_paused = true)]
async fn the_primary_does_not_give_its_place_away_when_it_stops() {
    let ring = ring().await;
    ring.member(FIRST).pause(&request(None)).await.unwrap();
    let refused = ring.member(FIRST).give_leadership_away().await;
    let Err(PromotionError::Refused(PromotionRefusal::NoTarget(why))) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("member 1 stays the primary"), "{why}");
}

/// A writer whose first pause fails: it waits for a hanging commit until the test releases it, and then returns an error.
struct HangsOnce(Mutex<Option<oneshot::Receiver<()>>>);

impl Writer for HangsOnce {
    fn pause(&self) -> BoxFuture<'_, Result<(), NotPaused>> {
        let hangs = self.0.lock().unwrap().take();
        Box::pin(async move {
            match hangs {
                None => Ok(()),
                Some(told) => {
                    let _ = told.await;
                    Err("one commit waits".into())
                }
            }
        })
    }

    fn resume(&self) {}
}

/// Regression test for seed 789135939607 of `mysqld-operations`: a pause was committed while a stopping leader waited for the
/// reconfiguration lock.
#[tokio::test(start_paused = true)]
async fn a_pause_that_is_ordered_while_the_leader_stops_keeps_its_place() {
    let ring = ring().await;
    let first = ring.member(FIRST).clone();
    let (tell, hangs) = oneshot::channel();
    first.set_writer(Arc::new(HangsOnce(Mutex::new(Some(hangs)))));
    // The promotion holds the lock. The pause and the transfer wait for it, in this order.
    let progress = watch::Sender::<PromotionProgress>::default();
    let mut seen = progress.subscribe();
    let member = first.clone();
    let working = tokio::spawn(async move { member.promote(OTHER, progress).await });
    let drains = seen.wait_for(|now| now.under_way == Some(PromotionPhase::Drain));
    within("the drain", drains).await.unwrap();
    let member = first.clone();
    let pausing = tokio::spawn(async move { member.pause(&request(None)).await });
    let member = first.clone();
    let leaving = tokio::spawn(async move { member.give_leadership_away().await });
    // Long enough for the stopping leader to choose its target, and shorter than any timeout of the waiting tasks.
    tokio::time::sleep(TIMERS.lease / 2).await;
    tell.send(()).unwrap();

    let worked = working.await.unwrap();
    assert!(
        matches!(worked, Err(PromotionError::Drain { .. })),
        "{worked:?}"
    );
    let (paused, _) = pausing.await.unwrap().unwrap();
    let left = leaving.await.unwrap();
    assert_eq!(
        left,
        Err(PromotionError::Refused(PromotionRefusal::Paused(FIRST)))
    );
    assert_eq!(first.status().pause, Some(paused));
    becomes_primary(&ring, FIRST).await;
}

/// The automatic demotion of a leader with a broken mysqld must not move the reserved place. It also chooses its target before it acquires
/// the lock.
#[tokio::test(start_paused = true)]
async fn only_orders_move_the_reserved_place() {
    let ring = ring().await;
    let (paused, _) = ring.member(FIRST).pause(&request(None)).await.unwrap();
    let by_itself = ring
        .member(FIRST)
        .promote_while(OTHER, watch::Sender::default(), || true)
        .await;
    let refused = by_itself.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "failover is paused, and member 1 stays the primary; `witness resume` ends that"
    );
    assert_eq!(ring.member(FIRST).status().pause, Some(paused));
    becomes_primary(&ring, FIRST).await;
}

#[tokio::test]
async fn a_pause_ends_by_itself_when_its_time_is_over() {
    let mut ring = ring().await;
    ring.member(FIRST).pause(&request(Some(3))).await.unwrap();
    ring.crash(FIRST).await;
    becomes_primary(&ring, OTHER).await;
    assert!(PATIENCE > Duration::from_secs(3));
    assert_eq!(ring.member(OTHER).status().pause, None);
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_cut_off_stays_the_only_one() {
    let ring = ring().await;
    ring.member(FIRST).pause(&request(None)).await.unwrap();
    ring.board.isolate(FIRST, [2, 3].map(MemberId));
    within("the others elect one", async {
        while ![2, 3].map(MemberId).iter().any(|id| {
            let leadership = ring.member(*id).leadership();
            let serving = leadership.borrow().serving_term();
            serving.is_some()
        }) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    nobody_becomes_primary(&ring).await;
    ring.board.heal();
    becomes_primary(&ring, FIRST).await;
}

/// Members do not poll where the primary is: every change is reported to the mysqld of a follower.
#[tokio::test(start_paused = true)]
async fn the_primacy_of_each_database_member_follows_the_pause() {
    let ring = ring().await;
    let mut told = ring.member(OTHER).primacy();
    let mut at = async |what: &str, elsewhere: Option<MemberId>, paused: bool| {
        let so = |now: &Primacy| (now.elsewhere, now.paused) == (elsewhere, paused);
        within(what, told.wait_for(so)).await.unwrap();
    };
    at("the first one leads", Some(FIRST), false).await;
    ring.member(FIRST).pause(&request(None)).await.unwrap();
    at("a pause", Some(FIRST), true).await;
    ring.member(FIRST).resume("anna").await.unwrap();
    at("its end", Some(FIRST), false).await;
    let mut first = ring.member(FIRST).primacy();
    ring.member(FIRST).transfer_leader(OTHER).await.unwrap();
    at("it leads itself", None, false).await;
    let so = |now: &Primacy| now.elsewhere == Some(OTHER);
    within("another one leads", first.wait_for(so))
        .await
        .unwrap();
    ring.board.isolate(FIRST, [2, 3].map(MemberId));
    let so = |now: &Primacy| now.elsewhere.is_none();
    within("no calls of a leader", first.wait_for(so))
        .await
        .unwrap();
    assert!(first.borrow().others);
}

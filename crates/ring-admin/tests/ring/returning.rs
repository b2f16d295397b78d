//! After all members were down, they campaign when all of them are back, or after they have waited for the missing members.

use std::time::Duration;

use raft_types::MemberId;
use raft_types::MemberKind::Database;

use crate::support::ring::{Ring, within};

/// How long a member waits for the other members before it campaigns.
const PATIENCE: Duration = Duration::from_secs(10);

async fn with_all_down() -> Ring {
    let mut ring = Ring::of(&[Database; 3]).await;
    let last = ring.commit("acknowledged").await;
    ring.committed_everywhere(last).await;
    for id in ring.ids() {
        ring.crash(id).await;
    }
    ring
}

fn nobody_leads(ring: &Ring) -> bool {
    let mut members = ring.members.values();
    members.all(|member| member.leadership().borrow().leading_term().is_none())
}

#[tokio::test(start_paused = true)]
async fn members_that_all_agree_do_not_wait() {
    let mut ring = with_all_down().await;
    for id in ring.ids() {
        ring.come_back(id).await;
    }
    let back = tokio::time::Instant::now();
    ring.serving().await;
    assert!(back.elapsed() < PATIENCE / 2, "{:?}", back.elapsed());
}

/// Two members are waiting when the last one comes back.
#[tokio::test(start_paused = true)]
async fn a_waiting_member_campaigns_once_all_agree() {
    let mut ring = with_all_down().await;
    let [one, two, last] = [1, 2, 3].map(MemberId);
    for id in [one, two] {
        ring.come_back(id).await;
    }
    ring.start(last).await;
    ring.member(last).set_campaigning(false);
    let back = tokio::time::Instant::now();
    assert_ne!(ring.serving().await.0, last);
    assert!(back.elapsed() < PATIENCE / 2, "{:?}", back.elapsed());
}

/// Two members wait for the third, because it may know of a repair. The wait is limited.
#[tokio::test(start_paused = true)]
async fn two_of_three_wait_for_the_third_and_not_for_ever() {
    let mut ring = with_all_down().await;
    for id in [1, 2].map(MemberId) {
        ring.come_back(id).await;
    }
    let back = tokio::time::Instant::now();
    while back.elapsed() < PATIENCE * 9 / 10 {
        tokio::time::sleep(PATIENCE / 20).await;
        assert!(nobody_leads(&ring), "after {:?}", back.elapsed());
    }
    tokio::time::sleep(PATIENCE / 2).await;
    ring.serving().await;
    ring.commit("without the third").await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_committed_entries_stays_out_of_elections() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let last = ring.commit("acknowledged").await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let others: Vec<_> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let (lacks, has) = (others[0], others[1]);
    ring.crash(lacks).await;
    let last = ring.commit("without it").await;
    ring.committed_everywhere(last).await;
    ring.crash(leader).await;

    ring.come_back(lacks).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let member = ring.member(lacks).clone();
    assert!(member.stays_out_of_elections().is_some());
    assert_eq!(ring.serving().await.0, has);
    ring.committed_everywhere(last).await;
    within("an end of that", async {
        while member.stays_out_of_elections().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

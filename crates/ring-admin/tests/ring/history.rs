//! Events that members record are added to the ring's log under any leader, and are never lost from it.

use std::time::Duration;

use consensus::{HistoryEntry, HistoryEvent, Named};
use raft_types::MemberId;
use raft_types::MemberKind::{Database, Witness};
use ring_admin::ScheduledSwitchover;

use crate::support::ring::{Ring, TIMERS, within};

/// Returns the numbers of trimmed transactions in a member's history, in their order.
fn trims(ring: &Ring, id: MemberId) -> Vec<u64> {
    let trimmed = |entry: HistoryEntry| match entry.event {
        HistoryEvent::Trimmed { transactions, .. } => Some(transactions),
        _ => None,
    };
    let told = ring.member(id).history().into_iter();
    told.filter_map(trimmed).collect()
}

fn trimmed(of: MemberId, transactions: u64) -> HistoryEvent {
    HistoryEvent::Trimmed {
        member: Named {
            id: of,
            name: format!("member-{of}"),
        },
        transactions,
    }
}

async fn leader_and_follower(ring: &Ring) -> (MemberId, MemberId) {
    let (leader, _) = ring.serving().await;
    let mut others = ring.members.keys().copied().filter(|id| *id != leader);
    (leader, others.next().unwrap())
}

async fn everybody_tells(ring: &Ring, expected: &[u64]) {
    within("the history on every member", async {
        let running = || ring.members.keys().copied();
        while running().any(|id| trims(ring, id) != expected) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_of_a_follower_survive_the_death_of_the_leader() {
    let mut ring = Ring::of(&[Database, Database, Witness]).await;
    let (leader, follower) = leader_and_follower(&ring).await;
    ring.member(follower).note("", trimmed(follower, 1));
    everybody_tells(&ring, &[1]).await;

    // The leader receives the event, and crashes before it has appended the event.
    ring.member(follower).note("", trimmed(follower, 2));
    tokio::time::sleep(TIMERS.lease * 2 + TIMERS.heartbeat).await;
    ring.crash(leader).await;
    everybody_tells(&ring, &[1, 2]).await;
    ring.start(leader).await;
    everybody_tells(&ring, &[1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_member_hands_on_its_events() {
    let mut ring = Ring::of(&[Database, Database, Witness]).await;
    let (_, follower) = leader_and_follower(&ring).await;
    ring.member(follower).note("", trimmed(follower, 7));
    ring.member(follower).hand_notes_on(TIMERS.lease).await;
    ring.crash(follower).await;
    everybody_tells(&ring, &[7]).await;
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_switchover_is_carried_out_by_the_leader_of_that_time() {
    let mut ring = Ring::of(&[Database, Database, Database]).await;
    let (leader, _) = ring.serving().await;
    let others: Vec<_> = ring
        .members
        .keys()
        .copied()
        .filter(|id| *id != leader)
        .collect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let at = raft_types::UnixSeconds(now.unwrap().as_secs() + 2);
    let scheduled = |to| ScheduledSwitchover {
        to,
        at,
        by: "anna".to_owned(),
    };
    let member = ring.member(leader);
    member
        .schedule_switchover(&scheduled(others[0]))
        .await
        .unwrap();
    assert_eq!(
        member.cancel_switchover("anna").await.unwrap().0,
        scheduled(others[0])
    );
    member
        .schedule_switchover(&scheduled(others[1]))
        .await
        .unwrap();
    // The scheduled time is on the wall clock. The ring's virtual time advances faster, so the loop also waits in real time.
    ring.crash(leader).await;
    within("the scheduled switchover", async {
        loop {
            let (leads, _) = ring.serving().await;
            let status = ring.member(leads).status();
            if leads == others[1] && ScheduledSwitchover::of(&status.ring_view).is_none() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let told = ring.member(others[1]).history();
    let scheduled = told
        .iter()
        .filter(|one| matches!(one.event, HistoryEvent::Scheduled { .. }));
    assert_eq!(scheduled.count(), 2, "{told:?}");
}

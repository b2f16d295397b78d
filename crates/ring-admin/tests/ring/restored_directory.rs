//! A member detects from the other members' answers that its data directory was restored to an earlier state. It does not vote until it has
//! received its entries again.

use std::time::Duration;

use raft_types::MemberId;
use raft_types::MemberKind::Database;
use ring_admin::Member;

use crate::support::ring::{Ring, TIMERS, within};

/// Waits long enough for two rounds of handshakes.
async fn they_have_greeted() {
    tokio::time::sleep(TIMERS.heartbeat * 25).await;
}

async fn takes_part_again(member: &Member) {
    within("the end of the doubt", async {
        while member.stays_out_of_elections().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Returns the leader and the two other members.
async fn parts(ring: &Ring) -> (MemberId, MemberId, MemberId) {
    let (leader, _) = ring.serving().await;
    let others: Vec<_> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    (leader, others[0], others[1])
}

/// Takes a snapshot of member `back`. Then the leader and `back` acknowledge entries, while `late` cannot reach the leader. Then the leader
/// crashes, and the directory of `back`, which is stopped, is restored to the snapshot. Returns the leader, `back` and `late`.
async fn acknowledged_and_restored(ring: &mut Ring) -> (MemberId, MemberId, MemberId) {
    let first = ring.commit("first").await;
    ring.committed_everywhere(first).await;
    let (leader, back, late) = parts(ring).await;
    let snapshot = ring.disks[&back].snapshot();
    ring.board.cut(leader, late);
    ring.board.cut(late, leader);
    for number in 0..20 {
        ring.commit(&format!("acknowledged {number}")).await;
    }
    they_have_greeted().await;
    assert_eq!(ring.disks[&late].transactions().len(), 1);
    ring.crash(leader).await;
    ring.crash(back).await;
    ring.disks[&back].restore(snapshot);
    ring.board.heal();
    (leader, back, late)
}

async fn nobody_is_elected_until_the_leader_is_back(
    ring: &mut Ring,
    (leader, back, late): (MemberId, MemberId, MemberId),
) {
    tokio::time::sleep(TIMERS.lease * 20).await;
    for id in [back, late] {
        let serving = ring.member(id).leadership().borrow().serving_term();
        assert_eq!(serving, None, "member {id} was elected");
        assert!(ring.member(id).restored().contains_key(&back), "{id}");
    }
    assert!(ring.member(back).stays_out_of_elections().is_some());
    assert!(ring.disks[&back].is_in_doubt());

    ring.start(leader).await;
    let last = ring.commit("after it").await;
    ring.committed_everywhere(last).await;
    for id in ring.ids() {
        assert_eq!(ring.disks[&id].transactions().len(), 22, "member {id}");
    }
    takes_part_again(ring.member(back)).await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_directory_elects_no_log_without_its_acknowledged_entries() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let parts = acknowledged_and_restored(&mut ring).await;
    ring.come_back(parts.1).await;
    nobody_is_elected_until_the_leader_is_back(&mut ring, parts).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_restored_unnoticed_is_informed_after_its_start() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let parts = acknowledged_and_restored(&mut ring).await;
    let (_, back, late) = parts;
    ring.board.cut(back, late);
    ring.come_back(back).await;
    assert_eq!(ring.member(back).stays_out_of_elections(), None);
    ring.board.heal();
    nobody_is_elected_until_the_leader_is_back(&mut ring, parts).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_tells_it_and_a_member_that_has_caught_up_votes_again() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let first = ring.commit("first").await;
    ring.committed_everywhere(first).await;
    let (leader, back, third) = parts(&ring).await;
    let snapshot = ring.disks[&back].snapshot();
    let mut last = first;
    for number in 0..20 {
        last = ring.commit(&format!("acknowledged {number}")).await;
    }
    ring.committed_everywhere(last).await;
    ring.crash(back).await;
    // The third member restarts, so that only the leader has the record of `back`. No handshake follows before `back` is restored.
    ring.crash(third).await;
    ring.start(third).await;
    ring.disks[&back].restore(snapshot);
    ring.come_back(back).await;
    takes_part_again(ring.member(back)).await;
    they_have_greeted().await;
    let found = ring.member(leader).restored()[&back];
    assert_eq!((found.told_by, found.has.end), (leader, Some(first)));
    assert!(found.had.end >= Some(last));
    assert!(!ring.disks[&back].is_in_doubt());

    // After that, the vote of `back` counts again, and it starts like any other member.
    ring.crash(leader).await;
    let last = ring.commit("with its vote").await;
    ring.committed_everywhere(last).await;
    they_have_greeted().await;
    ring.crash(back).await;
    ring.come_back(back).await;
    they_have_greeted().await;
    for id in [back, third] {
        assert!(ring.member(id).restored().is_empty(), "member {id}");
    }
}

#[tokio::test(start_paused = true)]
async fn restarts_and_elections_are_no_evidence_of_a_restore() {
    let mut ring = Ring::of(&[Database; 3]).await;
    for round in 0..12 {
        let last = ring.commit(&format!("round {round}")).await;
        let (leader, one, other) = parts(&ring).await;
        let goes = [leader, one, other][round % 3];
        ring.crash(goes).await;
        match ring.ids().len() {
            3 if round % 2 == 0 => they_have_greeted().await,
            _ => {}
        }
        ring.commit(&format!("without one, after {last}")).await;
        ring.come_back(goes).await;
        they_have_greeted().await;
        for (id, member) in &ring.members {
            assert!(member.restored().is_empty(), "member {id} in round {round}");
        }
    }
}

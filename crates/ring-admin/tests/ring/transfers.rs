//! The leadership is transferred to a named member. If this member cannot take over, the ring recovers.

use std::time::Duration;

use consensus::{Leadership, NotServing, TransferError, TransferRefusal};
use raft_types::MemberId;
use raft_types::MemberKind::{Database, Witness};
use ring_admin::{LeaderTask, RecordChange};

use crate::support::ring::{PATIENCE, Ring, leadership_is, within};

#[tokio::test]
async fn the_named_member_leads() {
    let ring = Ring::of(&[Database; 3]).await;
    ring.commit("before").await;
    let (leader, term) = ring.serving().await;
    let to = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    let outcome = within("the transfer", ring.member(leader).transfer_leader(to)).await;
    let led = outcome.unwrap();
    assert!(led.term > term);
    assert_eq!(ring.serving().await, (led.leader, led.term));
    assert_eq!(led.leader, to);
    let last = ring.commit("after").await;
    ring.committed_everywhere(last).await;
    assert!(ring.board.campaigns_asked().is_empty());
}

#[tokio::test]
async fn targets_that_could_not_lead_are_refused_and_nothing_changes() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let others: Vec<_> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let member = ring.member(leader).clone();

    let refused = ring.member(others[0]).transfer_leader(others[1]).await;
    let not_leader = TransferRefusal::NotLeader {
        leader: Some(leader),
    };
    assert_eq!(refused, Err(TransferError::Refused(not_leader)));
    let stranger = member.transfer_leader(MemberId(9)).await;
    assert_eq!(
        stranger,
        Err(TransferRefusal::NoSuchMember(MemberId(9)).into())
    );

    ring.crash(others[0]).await;
    within("the silence of a crashed member", async {
        loop {
            match member.status().ring_view.member(others[0]) {
                Some(peer) if peer.answers(crate::support::ring::TIMERS.lease) => {}
                _ => return,
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let silent = member.transfer_leader(others[0]).await;
    let refusal = silent.unwrap_err().to_string();
    assert!(refusal.contains("has not answered for"), "{refusal}");
    assert_eq!(ring.serving().await, (leader, term));
    ring.commit("still").await;
}

#[tokio::test]
async fn a_target_that_vanishes_leaves_the_leadership_to_another() {
    let ring = Ring::of(&[Database; 3]).await;
    ring.commit("before").await;
    let (leader, _) = ring.serving().await;
    let to = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    // The target's last answer is recent enough for the check, but the target receives no more messages.
    ring.board.isolate(to, ring.ids());
    let member = ring.member(leader);
    let transfer = within("the transfer", member.transfer_leader(to)).await;
    let next = transfer.unwrap().leader;
    assert!(next != to && next != leader);
    let last = ring.commit("after").await;
    ring.board.heal();
    ring.committed_everywhere(last).await;
}

#[tokio::test]
async fn voters_that_do_not_campaign_by_themselves_are_asked_to() {
    let ring = Ring::of(&[Database; 3]).await;
    ring.commit("before").await;
    let (leader, term) = ring.serving().await;
    for id in ring.ids() {
        ring.member(id).set_campaigning(false);
    }
    let to = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.board.isolate(to, ring.ids());
    let member = ring.member(leader).clone();
    let transfer = tokio::spawn(async move { member.transfer_leader(to).await });
    let gives_up = Leadership::LeaderNotServing {
        term,
        why: NotServing::TransferringTo(to),
    };
    leadership_is(ring.member(leader), |now| *now == gives_up).await;
    let again = ring.member(leader).transfer_leader(to).await;
    assert!(
        matches!(again, Err(TransferError::Refused(_))),
        "a second transfer in one term: {again:?}"
    );

    let transfer = within("the transfer", transfer).await.unwrap();
    let next = transfer.unwrap().leader;
    assert!(next != to && next != leader);
    assert_eq!(ring.board.campaigns_asked().first(), Some(&next));
    ring.board.heal();
    let last = ring.commit("after").await;
    ring.committed_everywhere(last).await;
}

/// From now on, the only database member cannot call these witnesses, but it still answers their calls. Waits until one of them leads, has
/// failed to transfer the leadership to the database member, and has found that a retry would fail, too.
async fn led_without_the_database(ring: &Ring, lost: &[MemberId]) -> MemberId {
    for witness in lost {
        ring.board.lose(DATABASE, *witness);
    }
    within("a witness that waits", async {
        loop {
            for witness in lost {
                let task = ring.member(*witness).status().leader_task;
                if let Some(LeaderTask::Waiting(why)) = task
                    && why.contains("would not be elected")
                {
                    return *witness;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

const DATABASE: MemberId = MemberId(1);

/// Checks that this witness continues to lead, accepts changes, and transfers the leadership after the network is repaired.
async fn leads_on_until_the_way_is_mended(ring: &Ring, witness: MemberId) {
    let (leader, term) = ring.serving().await;
    assert_eq!(leader, witness);
    let change = RecordChange {
        priority: Some(7),
        ..RecordChange::default()
    };
    let member = ring.member(witness);
    let changed = member.update_member(DATABASE, &change, false, "anna");
    within("the change", changed).await.unwrap();
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(ring.serving().await, (leader, term), "they take turns");
    ring.board.heal();
    within("the database member leads", async {
        while ring.serving().await.0 != DATABASE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    ring.commit("after").await;
}

/// The target campaigns in the next term, but needs the vote of the old leader, which is the only other running member. The target cannot
/// call it.
#[tokio::test(start_paused = true)]
async fn an_old_leader_leads_again_where_its_target_does_not_find_it() {
    let mut ring = Ring::of(&[Database, Witness, Witness]).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    ring.crash(MemberId(3)).await;
    let witness = led_without_the_database(&ring, &[MemberId(2)]).await;
    leads_on_until_the_way_is_mended(&ring, witness).await;
}

#[tokio::test(start_paused = true)]
async fn two_witnesses_do_not_take_turns_at_giving_the_leadership_away_in_vain() {
    let ring = Ring::of(&[Database, Witness, Witness]).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    let witness = led_without_the_database(&ring, &[MemberId(2), MemberId(3)]).await;
    leads_on_until_the_way_is_mended(&ring, witness).await;
}

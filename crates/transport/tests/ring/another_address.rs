//! A member that is at another address from now on.

use std::time::Duration;

use consensus::RecordChange;
use raft_types::{MemberId, MemberKind};

use crate::proxying::{proxy_of, two_regions};
use crate::support::grpc_ring::{GrpcRing, listener, transaction, within};

/// Stops a member and starts it at another address, of which the ring is told in between.
async fn moves(ring: &mut GrpcRing, leader: MemberId, moving: MemberId) {
    let disk = ring.stop(moving).await;
    let (listener, address) = listener().await;
    let change = RecordChange {
        address: Some(address.to_string()),
        ..RecordChange::default()
    };
    let member = ring.member(leader).clone();
    let updated = within(
        "the update",
        member.update_member(moving, &change, false, "anna"),
    )
    .await;
    assert!(updated.unwrap().entry.is_some());
    if let Some(record) = ring.records.get_mut(&moving) {
        record.address = address.to_string();
    }
    ring.start(moving, listener, disk).await;
}

#[tokio::test]
async fn a_member_moves_to_another_address_and_keeps_its_number() {
    let mut ring = GrpcRing::of(&[
        MemberKind::Database,
        MemberKind::Witness,
        MemberKind::Witness,
    ])
    .await;
    let last = ring.commit(transaction("before")).await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let moving = ring.records.keys().copied().find(|id| *id != leader);
    let moving = moving.unwrap_or(MemberId(0));
    let member = ring.member(leader).clone();
    let seen = || {
        let view = member.status().ring_view;
        view.member(moving)
            .map(|standing| standing.record.address.clone())
    };
    let before = ring.records[&moving].address.clone();
    let change = RecordChange {
        address: Some("elsewhere:7400".to_owned()),
        ..RecordChange::default()
    };
    let planned = member
        .update_member(moving, &change, true, "anna")
        .await
        .unwrap();
    assert_eq!(planned.entry, None);
    assert_eq!(seen(), Some(before), "it was only planned");
    moves(&mut ring, leader, moving).await;
    assert_eq!(seen(), Some(ring.records[&moving].address.clone()));
    let last = ring.commit(transaction("at the new address")).await;
    ring.committed_everywhere(last).await;
    let (serving, _) = ring.serving().await;
    assert_eq!(serving, leader, "nobody had to take the leadership over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_moves_to_another_address_sends_on_from_there() {
    let mut ring = two_regions().await;
    let (leader, term) = ring.serving().await;
    let proxy = proxy_of(&ring, leader).await;
    moves(&mut ring, leader, proxy).await;
    within("something that it sends on", async {
        while ring.nodes[&proxy]
            .routes
            .traffic()
            .counted()
            .relayed
            .entries
            == 0
        {
            ring.commit(transaction("on the way")).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(ring.serving().await, (leader, term));
}

//! A member that is at another address from now on.

use consensus::RecordChange;
use raft_types::{MemberId, MemberKind};

use crate::support::grpc_ring::{GrpcRing, listener, transaction, within};

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
    let disk = ring.stop(moving).await;
    let (listener, address) = listener().await;
    let change = RecordChange {
        address: Some(address.to_string()),
        ..RecordChange::default()
    };
    let member = ring.member(leader).clone();
    let planned = member
        .update_member(moving, &change, true, "anna")
        .await
        .unwrap();
    assert_eq!(planned.entry, None);
    let seen = |member: &consensus::Member| {
        let view = member.status().ring_view;
        view.member(moving)
            .map(|standing| standing.record.address.clone())
    };
    assert_eq!(seen(&member), Some(ring.records[&moving].address.clone()));
    let updated = within(
        "the update",
        member.update_member(moving, &change, false, "anna"),
    )
    .await;
    assert!(updated.unwrap().entry.is_some());
    assert_eq!(seen(&member), Some(address.to_string()));

    if let Some(record) = ring.records.get_mut(&moving) {
        record.address = address.to_string();
    }
    ring.start(moving, listener, disk).await;
    let last = ring.commit(transaction("at the new address")).await;
    ring.committed_everywhere(last).await;
    let (serving, _) = ring.serving().await;
    assert_eq!(serving, leader, "nobody had to take the leadership over");
}

//! A member's address changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use raft_types::{MemberId, MemberKind};
use ring_admin::{ReconfigurationError, RecordChange};
use tokio::net::TcpListener;

use crate::proxying::{proxy_of, two_regions};
use crate::support::grpc_ring::{GrpcRing, listener, transaction, within};

/// Stops a member, records its new address in the ring, and starts it there.
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
    let mut ring = witnessed_ring().await;
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
    assert_eq!(serving, leader, "the leadership did not change");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_forwards_from_its_new_address() {
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

/// Restarts all members at these addresses, which are only in their configuration files. Checks that they elect a leader, and that it can
/// be called.
async fn goes_on_at(ring: &mut GrpcRing, moved: BTreeMap<MemberId, SocketAddr>) {
    let mut disks = BTreeMap::new();
    for id in moved.keys() {
        disks.insert(*id, ring.stop(*id).await);
    }
    let addresses = moved.iter().map(|(id, at)| (*id, at.to_string()));
    ring.configured = addresses.collect();
    for (id, address) in &moved {
        let listener = TcpListener::bind(address).await.unwrap();
        let disk = disks.remove(id).unwrap();
        ring.start(*id, listener, disk).await;
    }
    ring.commit(transaction("at the new addresses")).await;
    // Two members must never have the same address, so each gets a temporary one first.
    for id in ring.configured.keys() {
        is_told(ring, *id, &format!("passing:{id}")).await;
    }
    for (id, address) in &ring.configured {
        is_told(ring, *id, address).await;
    }
    let last = ring.commit(transaction("known to the ring")).await;
    ring.committed_everywhere(last).await;
}

/// Records a member's address in the ring, through the leader.
async fn is_told(ring: &GrpcRing, id: MemberId, address: &str) {
    let change = RecordChange {
        address: Some(address.to_owned()),
        ..RecordChange::default()
    };
    within("the update", async {
        loop {
            let (leader, _) = ring.serving().await;
            let member = ring.member(leader);
            match member.update_member(id, &change, false, "anna").await {
                Ok(_) | Err(ReconfigurationError::AsItIs) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
}

async fn witnessed_ring() -> GrpcRing {
    let ring = GrpcRing::of(&[
        MemberKind::Database,
        MemberKind::Witness,
        MemberKind::Witness,
    ])
    .await;
    let last = ring.commit(transaction("before")).await;
    ring.committed_everywhere(last).await;
    ring
}

/// Regression: all members called the old addresses forever. Without a leader, no address could be changed, and the quorum could not be
/// repaired.
#[tokio::test]
async fn moved_members_find_each_other_by_their_configuration() {
    let mut ring = witnessed_ring().await;
    let mut moved = BTreeMap::new();
    for id in ring.records.keys() {
        let (listener, address) = listener().await;
        drop(listener);
        moved.insert(*id, address);
    }
    goes_on_at(&mut ring, moved).await;
}

/// The members' addresses are exchanged, as happens with recreated containers.
#[tokio::test]
async fn members_with_swapped_addresses_find_each_other_by_their_configuration() {
    let mut ring = witnessed_ring().await;
    let ids = ring.records.keys().copied();
    let places = ring.records.values().map(|record| record.address.parse());
    let next = places.clone().skip(1).chain(places.take(1));
    let moved = ids.zip(next.map(Result::unwrap)).collect();
    goes_on_at(&mut ring, moved).await;
}

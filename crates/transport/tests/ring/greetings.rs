//! A member opens its connections before it is elected. Opening them to other regions later would delay a failover.

use std::time::Duration;

use raft_types::MemberKind::Database;

use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction, within};

#[tokio::test(flavor = "multi_thread")]
async fn an_elected_member_uses_open_connections() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let (leader, _) = ring.serving().await;
    let mut followers = ring.records.keys().copied().filter(|id| *id != leader);
    let (next, other) = (followers.next().unwrap(), followers.next().unwrap());
    let factory = ring.nodes[&next].factory.clone();
    let member = ring.member(next).clone();
    tokio::spawn(async move { factory.keep_connected(member).await });
    // Two connections from the leader, and two from the follower.
    let connections = || wires[&other].connections();
    within("the connections", async {
        while connections() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    // A connection opens before the first answer on it, for which `transfer` waits.
    ring.transfer(leader, next).await;
    ring.commit(transaction("by the next leader")).await;
    assert_eq!(ring.serving().await.0, next);
    assert_eq!(connections(), 4);
}

/// While all members answer, they are greeted every five seconds. A new member is greeted when it calls.
#[tokio::test(flavor = "multi_thread")]
async fn a_returning_member_is_connected_immediately() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let (leader, _) = ring.serving().await;
    let mut followers = ring.records.keys().copied().filter(|id| *id != leader);
    let (follower, comes) = (followers.next().unwrap(), followers.next().unwrap());
    let keep_connected = |id| {
        let factory = ring.nodes[&id].factory.clone();
        let member = ring.member(id).clone();
        tokio::spawn(async move { factory.keep_connected(member).await })
    };
    let connections = |id, least: u64| {
        let wire = &wires[&id];
        async move {
            while wire.connections() < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    keep_connected(follower);
    let before = keep_connected(comes);
    within("two connections of each", connections(comes, 4)).await;
    within("two connections of each", connections(follower, 4)).await;
    // The member's process ends, and a new process starts.
    before.abort();
    for wire in [&wires[&comes], &wires[&follower]] {
        wire.cut();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    for wire in [&wires[&comes], &wires[&follower]] {
        wire.repair();
    }
    keep_connected(comes);
    // The leader opens one or two connections, for its heartbeats and entries. The follower opens the others in advance.
    let back = tokio::time::timeout(Duration::from_secs(2), connections(comes, 7)).await;
    assert!(back.is_ok(), "{} connections", wires[&comes].connections());
}

/// A broken connection without traffic is not pinged, and the system reports no error. So it stays open.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_while_idle_is_replaced() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let (leader, _) = ring.serving().await;
    let mut followers = ring.records.keys().copied().filter(|id| *id != leader);
    let (follower, called) = (followers.next().unwrap(), followers.next().unwrap());
    for caller in [leader, follower] {
        let factory = ring.nodes[&caller].factory.clone();
        let member = ring.member(caller).clone();
        tokio::spawn(async move { factory.keep_connected(member).await });
    }
    let connections = |least: u64| {
        let wire = &wires[&called];
        async move {
            while wire.connections() < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    within("two connections of each", connections(4)).await;
    wires[&called].freeze_connections();
    within("four others", connections(8)).await;
}

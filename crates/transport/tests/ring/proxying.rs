//! Two regions of three members: each entry leaves the leader's region once, and a stopped proxy is replaced.

use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::Term;
use proxy::Sent;
use raft_types::MemberId;
use raft_types::MemberKind::{Database, Witness};
use ring_admin::Member;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::support::grpc_ring::{GrpcRing, transaction, within};

const ENTRY_BYTES: usize = 10_000;

pub(crate) async fn two_regions() -> GrpcRing {
    GrpcRing::proxying(&[
        ("here", Database),
        ("here", Witness),
        ("here", Witness),
        ("there", Database),
        ("there", Witness),
        ("there", Witness),
    ])
    .await
}

/// Returns the members of the region without the leader.
fn far_from(ring: &GrpcRing, leader: MemberId) -> Vec<MemberId> {
    let home = &ring.records[&leader].region;
    let far = ring
        .records
        .iter()
        .filter(|(_, record)| record.region != *home);
    far.map(|(id, _)| *id).collect()
}

/// Waits until one member of the other region relays to all other members there, and returns it.
pub(crate) async fn proxy_of(ring: &GrpcRing, leader: MemberId) -> MemberId {
    let far = far_from(ring, leader);
    within("a proxy in the other region", async {
        let mut number = 0;
        loop {
            ring.commit(transaction(format!("on the way {number}")))
                .await;
            number += 1;
            let routes = ring.nodes[&leader].routes.routes();
            let through = routes.iter().filter(|way| far.contains(&way.member));
            let through: Vec<_> = through.filter_map(|way| way.through.first()).collect();
            if let [one, .., another] = through.as_slice()
                && one == another
            {
                return **one;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

fn sent(ring: &GrpcRing, leader: MemberId, to: MemberId) -> Sent {
    let counted = ring.nodes[&leader].routes.traffic().counted();
    counted.members.get(&to).copied().unwrap_or_default()
}

async fn all_logs_are_equal(ring: &GrpcRing) {
    let last = ring.commit(transaction("last")).await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let expected = ring.nodes[&leader].disk.all();
    for (id, node) in &ring.nodes {
        assert!(node.disk.all() == expected, "the log of {id} differs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_payload_crosses_the_distance_once() {
    const COUNT: usize = 100;
    let ring = two_regions().await;
    let (leader, _) = ring.serving().await;
    let proxy = proxy_of(&ring, leader).await;
    let far = far_from(&ring, leader);
    let before: Vec<_> = far.iter().map(|id| sent(&ring, leader, *id)).collect();
    for number in 0..COUNT {
        ring.commit(transaction(vec![number as u8; ENTRY_BYTES]))
            .await;
    }
    all_logs_are_equal(&ring).await;
    for (id, before) in far.iter().zip(before) {
        let now = sent(&ring, leader, *id);
        let direct = now.direct_bytes - before.direct_bytes;
        let spared = now.spared_bytes - before.spared_bytes;
        let all = (COUNT * ENTRY_BYTES) as u64;
        match *id == proxy {
            true => assert!(direct >= all && spared < all / 10, "{direct} {spared}"),
            false => assert!(spared >= all && direct < all / 10, "{direct} {spared}"),
        }
    }
    let relayed = ring.nodes[&proxy].routes.traffic().counted().relayed;
    assert!(relayed.entries >= 2 * COUNT as u64, "{relayed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_goes_over_a_proxy() {
    const BYTES: usize = 20 << 20;
    let ring = two_regions().await;
    let (leader, _) = ring.serving().await;
    // On a busy machine, a proxy may answer too late. Then the leader sends the entries itself.
    for attempt in 1..=5_u8 {
        let proxy = proxy_of(&ring, leader).await;
        let far: Vec<MemberId> = (far_from(&ring, leader).into_iter())
            .filter(|id| *id != proxy)
            .collect();
        let sent = |id| {
            let counted = ring.nodes[&leader].routes.traffic().counted();
            counted.members.get(id).copied().unwrap_or_default()
        };
        let before: Vec<_> = far.iter().map(sent).collect();
        let payload: Vec<u8> = (0..BYTES as u32)
            .map(|number| (number >> 3) as u8 ^ attempt)
            .collect();
        let payload = Bytes::from(payload);
        ring.commit(transaction(payload.clone())).await;
        all_logs_are_equal(&ring).await;
        for id in far_from(&ring, leader) {
            let stored = ring.nodes[&id].disk.transactions();
            assert!(stored.contains(&payload), "member {id} has another one");
        }
        let over_the_proxy = far.iter().zip(before).all(|(id, before)| {
            let sent = sent(id);
            let spared = sent.spared_bytes - before.spared_bytes;
            let direct = sent.direct_bytes - before.direct_bytes;
            spared >= BYTES as u64 && direct < BYTES as u64
        });
        if over_the_proxy {
            return;
        }
    }
    panic!("{:?}", ring.nodes[&leader].routes.traffic().counted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_ring_after_a_burst_keeps_its_proxy() {
    let ring = two_regions().await;
    let (leader, term) = ring.serving().await;
    proxy_of(&ring, leader).await;
    let table = &ring.nodes[&leader].routes;
    let before = table.traffic().counted().fallbacks;
    let member = ring.nodes[&leader].member.clone();
    // Each commit follows the previous one, and its entry waits for the disk.
    for node in ring.nodes.values() {
        node.disk.set_flush_time(Duration::from_millis(5));
    }
    for _ in 0..3 {
        let mut proposed = Vec::new();
        for number in 0..4 {
            let ticket = member.propose(transaction(format!("{number}")), term).await;
            proposed.push(ticket.unwrap());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for mut ticket in proposed {
            ticket.outcome().await;
        }
        // Waits for longer than a proxy's answer may take.
        tokio::time::sleep(table.options().silence() * 3 / 2).await;
    }
    assert_eq!(table.traffic().counted().fallbacks, before);
}

/// Proposes entries sequentially until it is aborted.
fn load(member: Member, term: Term) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let entry = transaction(vec![1; ENTRY_BYTES]);
            let Ok(mut proposed) = member.propose(entry, term).await else {
                return;
            };
            proposed.outcome().await;
        }
    })
}

/// Returns the longest time without a new commit at a member.
fn longest_pause(member: &Member, lasts: Duration) -> JoinHandle<Duration> {
    let mut committed = member.committed();
    tokio::spawn(async move {
        let mut last = Instant::now();
        let until = last + lasts;
        let mut longest = Duration::ZERO;
        while let Ok(Ok(())) = timeout_at(until.into(), committed.changed()).await {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest.max(last.elapsed())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_proxy_is_replaced_within_a_second_under_load() {
    let mut ring = two_regions().await;
    let (leader, term) = ring.serving().await;
    let proxy = proxy_of(&ring, leader).await;
    let far = far_from(&ring, leader);
    let load = load(ring.member(leader).clone(), term);
    let others = far.iter().filter(|id| **id != proxy);
    let watched: Vec<_> = others
        .map(|id| longest_pause(ring.member(*id), Duration::from_secs(3)))
        .collect();
    let disk = ring.stop(proxy).await;
    for pause in watched {
        let longest = within("the end of the watch", pause).await.unwrap();
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
    ring.restart(proxy, disk).await;
    load.abort();
    // Again a proxy relays: either the stopped one, or its successor.
    proxy_of(&ring, leader).await;
    all_logs_are_equal(&ring).await;
    assert_eq!(ring.serving().await, (leader, term));
}

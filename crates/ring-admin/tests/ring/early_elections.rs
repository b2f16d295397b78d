//! A new leader is elected immediately after the leader's process exits. A running leader keeps the leadership, whatever a single member
//! observes.

use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use consensus::{Leadership, Timers};
use raft_types::MemberId;
use raft_types::MemberKind::{Database, Witness};
use tokio::time::Instant;

use crate::support::ring::{Ring, TIMERS, leadership_is, within};

/// Timers so long that no member campaigns because of missing heartbeats during these tests.
const SLOW: Timers = Timers::from_heartbeat(Duration::from_secs(10));

/// A time limit that is far shorter than a lease, but long enough for a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn slow_ring(regions: &str, policy: QuorumPolicy) -> Ring {
    let mut ring = Ring::laid_out(regions, policy);
    // The first election does not have to wait for the lease of an earlier leader.
    ring.timers = SLOW;
    ring.start_all().await;
    ring.bootstrap().await;
    ring
}

/// Kills the leader, and checks that another member serves in a later term, long before a lease expires.
async fn a_killed_leader_is_followed(ring: &mut Ring, which: &str) {
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let killed = Instant::now();
    ring.kill(leader).await;
    let (next, next_term) = ring.serving().await;
    assert!(
        killed.elapsed() < AT_ONCE,
        "{which}: {:?}",
        killed.elapsed()
    );
    assert!(next != leader && next_term > term, "{which}");
}

#[tokio::test]
async fn a_leader_that_was_killed_is_followed_before_its_lease_ends() {
    for regions in ["a: 1d 2d 3d", "a: 1d 2w 3w", "a: 1d 2d 3d 4w 5w"] {
        let mut ring = slow_ring(regions, QuorumPolicy::Majority).await;
        a_killed_leader_is_followed(&mut ring, regions).await;
        ring.commit("after").await;
    }
}

#[tokio::test]
async fn two_leaders_killed_in_turn_are_replaced_immediately() {
    let mut ring = slow_ring("a: 1d 2d 3d 4d 5d", QuorumPolicy::Majority).await;
    for which in ["the first", "the second"] {
        a_killed_leader_is_followed(&mut ring, which).await;
    }
}

#[tokio::test]
async fn across_a_distance_every_voter_looks_for_itself() {
    let mut ring = slow_ring("a: 1d 2w | b: 3d | c: 4d 5w", QuorumPolicy::Majority).await;
    for one in ring.ids() {
        for other in ring.ids() {
            if ring.records[&one].region != ring.records[&other].region {
                ring.board
                    .set_distance(one, other, Duration::from_millis(30));
            }
        }
    }
    a_killed_leader_is_followed(&mut ring, "across").await;
}

/// The two signs of a leader's exit are broken connections and refused new ones. One sign alone is not enough for an election. Both signs
/// at a minority of the members are not enough either.
#[tokio::test]
async fn a_leader_that_lives_stays() {
    let ring = Ring::of(&[Database, Database, Database, Witness, Witness]).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let others: Vec<MemberId> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let stays = async |what: &str| {
        let until = Instant::now() + TIMERS.lease * 3;
        while Instant::now() < until {
            assert_eq!(ring.serving().await, (leader, term), "{what}");
            for id in ring.ids() {
                assert_eq!(ring.member(id).status().term, term, "{what}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    others
        .iter()
        .for_each(|other| ring.board.close(leader, *other));
    stays("everybody's connections broke").await;
    ring.board.refuse(others[0], leader);
    stays("its address refuses one member").await;
    // Simulates a firewall that refuses connections in the leader's name, first for one member, then for two. These members receive no
    // messages from the leader.
    for lied_to in &others[..2] {
        ring.board.refuse(*lied_to, leader);
        ring.board.close(leader, *lied_to);
        tokio::time::sleep(Duration::from_millis(1)).await;
        ring.board.cut(leader, *lied_to);
        stays("a minority has both signs").await;
    }
    ring.board.heal();
    ring.commit("after").await;
}

/// If all members have wrong signs of the leader's exit, the only effect is an election. No entry is lost.
#[tokio::test]
async fn when_everybody_has_both_signs_of_a_leader_that_lives_nothing_is_lost() {
    let ring = slow_ring("a: 1d 2d 3d", QuorumPolicy::Majority).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let others: Vec<MemberId> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    for other in &others {
        ring.board.refuse(*other, leader);
        ring.board.close(leader, *other);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    ring.board.isolate(leader, ring.ids());
    let mut next = ring.member(others[0]).leadership();
    let elected = next.wait_for(|now| {
        matches!(now, Leadership::Follower { leader: Some(next) } if *next != leader)
            || now.serving_term().is_some()
    });
    within("another leader", elected).await.unwrap();
    ring.board.heal();
    leadership_is(ring.member(leader), |now| now.leading_term().is_none()).await;
    assert!(ring.serving().await.1 > term);
    let last = ring.commit("after").await;
    ring.committed_everywhere(last).await;
    for disk in ring.disks.values() {
        assert_eq!(disk.transactions(), ["before", "after"]);
    }
}

#[tokio::test]
async fn members_that_must_not_campaign_do_not_do_so_early() {
    let mut ring = slow_ring("a: 1d 2d 3d", QuorumPolicy::Majority).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let others: Vec<MemberId> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    ring.member(others[0]).set_campaigning(false);
    ring.kill(leader).await;
    assert_eq!(ring.serving().await.0, others[1]);
}

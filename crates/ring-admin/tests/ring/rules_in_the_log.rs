//! The rules of the quorum are stored in the log, and changed there.

use std::time::Duration;

use consensus::quorum::{QuorumPolicy, VoterSets};
use raft_types::{MemberId, Region};
use ring_admin::RulesChange;

use crate::support::ring::{Ring, TIMERS, within};

const REGIONS: &str = "a: 1d 2w 3w | b: 4d 5w 6w | c: 7d 8w 9w";

fn sets(of: &[&[u64]]) -> VoterSets {
    let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
    of.iter().map(set).collect()
}

async fn settled(ring: &Ring, expected: &VoterSets) {
    within("the quorum", async {
        loop {
            let (leader, _) = ring.serving().await;
            let view = ring.member(leader).status().ring_view;
            if view.voter_sets == *expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn some_regions() -> QuorumPolicy {
    let regions = ["a", "b", "c"].map(|name| Region(name.to_owned()));
    QuorumPolicy::SomeRegions {
        required: 2,
        regions: regions.into(),
    }
}

/// The virtual clock does not advance while tasks run, so a loaded machine does not delay the leader.
#[tokio::test(start_paused = true)]
async fn a_policy_set_at_runtime_moves_the_quorum() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let member = ring.member(leader).clone();
    let change = RulesChange {
        policy: Some(some_regions()),
        ..RulesChange::default()
    };
    let planned = member.set_rules(&change, true, "anna").await.unwrap();
    assert_eq!(planned.entry, None);
    assert_eq!(planned.wanted, sets(&[&[1, 2, 3], &[4, 5, 6]]));
    assert_eq!(
        member.status().rules.policy,
        QuorumPolicy::SingleRegionDynamic
    );
    let set = within("the change", member.set_rules(&change, false, "anna"))
        .await
        .unwrap();
    assert!(set.entry.is_some());
    settled(&ring, &sets(&[&[1, 2, 3], &[4, 5, 6]])).await;
    let last = ring.commit("in two regions").await;
    ring.committed_everywhere(last).await;
    for (id, member) in &ring.members {
        assert_eq!(member.status().rules.policy, some_regions(), "member {id}");
    }
    // A region fails. Another region replaces it, and waiting entries are committed.
    for id in [4, 5, 6] {
        ring.crash(MemberId(id)).await;
    }
    settled(&ring, &sets(&[&[1, 2, 3], &[7, 8, 9]])).await;
    ring.commit("in two others").await;
}

#[tokio::test]
async fn a_differing_file_moves_nothing() {
    let mut ring = Ring::over("a: 1d 2w 3w | b: 4d 5w 6w", QuorumPolicy::Majority).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    // The configuration file of every member is changed, and every member restarts.
    ring.rules = QuorumPolicy::SingleRegionDynamic.into();
    for id in 1..=6 {
        ring.crash(MemberId(id)).await;
    }
    for id in 1..=6 {
        ring.start(MemberId(id)).await;
    }
    ring.commit("after the start").await;
    // The leader tasks check at least once per heartbeat.
    tokio::time::sleep(TIMERS.heartbeat * 3).await;
    ring.commit("and later").await;
    settled(&ring, &sets(&[&[1, 2, 3, 4, 5, 6]])).await;
    let (leader, _) = ring.serving().await;
    let status = ring.member(leader).status();
    assert_eq!(status.rules.policy, QuorumPolicy::Majority);
}

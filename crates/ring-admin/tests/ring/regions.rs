//! Rings in several regions: which members commits need, how the leadership and the quorum move, and which orders are refused.

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::quorum::{QuorumPolicy, VoterSets};
use raft_types::{MemberId, Region};
use ring_admin::{PromotionError, PromotionPhase, PromotionProgress, PromotionRefusal};
use tokio::sync::watch;

use crate::support::ring::{Ring, TIMERS, within};

const NINE: &str = "a: 1d 2w 3w | b: 4d 5w 6w | c: 7d 8w 9w";

fn sets(of: &[&[u64]]) -> VoterSets {
    let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
    of.iter().map(set).collect()
}

async fn dynamic() -> Ring {
    Ring::over(NINE, QuorumPolicy::SingleRegionDynamic).await
}

fn voter_sets(ring: &Ring, of: MemberId) -> VoterSets {
    ring.member(of).status().ring_view.voter_sets
}

/// Waits until this member serves as the leader with these voter sets.
async fn settled(ring: &Ring, leader: u64, expected: &[&[u64]]) {
    let (leader, expected) = (MemberId(leader), sets(expected));
    within("the leader with its quorum", async {
        loop {
            let (serving, _) = ring.serving().await;
            if serving == leader && voter_sets(ring, leader) == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn near(ring: &Ring, leader: MemberId, others: &[u64]) {
    within("the others near", async {
        loop {
            let view = ring.member(leader).status().ring_view;
            let near = |id: &u64| {
                view.member(MemberId(*id))
                    .is_some_and(|one| one.lag == Some(0) && one.answers(TIMERS.lease))
            };
            if others.iter().all(near) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn promote(ring: &Ring, leader: u64, to: u64) -> Result<Vec<PromotionPhase>, PromotionError> {
    let progress = watch::Sender::new(PromotionProgress::default());
    let member = ring.member(MemberId(leader));
    let promoted = within("the promotion", member.promote(MemberId(to), progress)).await?;
    assert_eq!(promoted.leader, MemberId(to));
    Ok(promoted
        .phases
        .into_iter()
        .map(|(phase, _)| phase)
        .collect())
}

#[tokio::test]
async fn commits_are_decided_in_the_region_of_the_leader() {
    let ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    let far: Vec<MemberId> = (4..=9).map(MemberId).collect();
    for id in &far {
        ring.board.isolate(*id, ring.ids());
    }
    ring.commit("without the other regions").await;
    ring.board.heal();
    let last = ring.commit("with them").await;
    ring.committed_everywhere(last).await;
}

/// Regression test: only the leader's host cannot reach region b. The leader continued to send heartbeats to region a, so the members of
/// region a did not elect a leader that both regions reach.
#[tokio::test]
async fn a_leader_that_loses_one_region_lets_the_others_elect_another_leader() {
    let both: BTreeSet<Region> = ["a", "b"].map(|name| Region(name.to_owned())).into();
    for both_ways in [true, false] {
        let policy = QuorumPolicy::Regions(both.clone());
        let ring = Ring::over("a: 1d 2w 3w | b: 4d 5w 6w", policy).await;
        settled(&ring, 1, &[&[1, 2, 3], &[4, 5, 6]]).await;
        let last = ring.commit("before").await;
        ring.committed_everywhere(last).await;
        for id in [4, 5, 6].map(MemberId) {
            ring.board.cut(id, MemberId(1));
            if both_ways {
                ring.board.cut(MemberId(1), id);
            }
        }
        within("another leader", async {
            while ring.serving().await.0 == MemberId(1) {
                tokio::time::sleep(TIMERS.heartbeat).await;
            }
        })
        .await;
        ring.commit("by another leader").await;
    }
}

/// Regression test: a network path dropped large packets but not heartbeats. So the leader kept the leadership, and no entry was committed.
#[tokio::test]
async fn a_leader_without_reachable_followers_is_replaced() {
    let ring = Ring::over("a: 1d 2d 3w", QuorumPolicy::Majority).await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    let last = ring.commit("before").await;
    ring.committed_everywhere(last).await;
    for id in [2, 3].map(MemberId) {
        ring.board.lose_entries(MemberId(1), id);
    }
    ring.commit("by another leader").await;
    assert_ne!(ring.serving().await.0, MemberId(1));
}

#[tokio::test]
async fn each_policy_begins_with_its_voter_sets() {
    let majority = Ring::over(NINE, QuorumPolicy::Majority).await;
    settled(&majority, 1, &[&[1, 2, 3, 4, 5, 6, 7, 8, 9]]).await;
    let both: BTreeSet<Region> = ["a", "b"].map(|name| Region(name.to_owned())).into();
    let conjunction = Ring::over(NINE, QuorumPolicy::Regions(both)).await;
    settled(&conjunction, 1, &[&[1, 2, 3], &[4, 5, 6]]).await;
    conjunction.board.isolate(MemberId(5), conjunction.ids());
    conjunction.commit("five of six").await;
    conjunction.board.isolate(MemberId(6), conjunction.ids());
    let (leader, term) = conjunction.serving().await;
    let entry = crate::support::ring::transaction("without a majority in b");
    let ticket = conjunction.member(leader).propose(entry, term).await;
    let mut ticket = ticket.unwrap();
    let waited = tokio::time::timeout(TIMERS.lease, ticket.outcome()).await;
    let is_committed =
        |outcome: &consensus::Outcome| matches!(outcome, consensus::Outcome::Committed(_));
    assert!(!waited.is_ok_and(|outcome| is_committed(&outcome)));
}

#[tokio::test]
async fn a_promotion_moves_the_quorum() {
    let ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    ring.commit("before").await;
    near(&ring, MemberId(1), &[4, 5, 6]).await;
    let phases = promote(&ring, 1, 4).await.unwrap();
    use PromotionPhase::{CatchUp, Check, Drain, MockElection, MoveQuorum, Release, Transfer};
    assert_eq!(
        phases,
        [
            Check,
            MockElection,
            MoveQuorum,
            CatchUp,
            Drain,
            Transfer,
            Release
        ]
    );
    settled(&ring, 4, &[&[4, 5, 6]]).await;
    ring.commit("after").await;
    // A second promotion moves the leadership back.
    near(&ring, MemberId(4), &[1, 2, 3, 7, 8, 9]).await;
    promote(&ring, 4, 1).await.unwrap();
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    near(&ring, MemberId(1), &[7, 8, 9]).await;
    promote(&ring, 1, 7).await.unwrap();
    settled(&ring, 7, &[&[7, 8, 9]]).await;
    let last = ring.commit("three promotions later").await;
    ring.committed_everywhere(last).await;
}

#[tokio::test]
async fn a_promotion_that_could_not_commit_is_refused_and_changes_nothing() {
    let ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    near(&ring, MemberId(1), &[4, 5, 6, 7, 8, 9]).await;
    for id in [5, 6].map(MemberId) {
        ring.board.isolate(id, ring.ids());
    }
    within("the silence of region b", async {
        while ring
            .member(MemberId(1))
            .status()
            .ring_view
            .member(MemberId(6))
            .is_some_and(|one| one.answers(TIMERS.lease))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let refused = promote(&ring, 1, 4).await.unwrap_err();
    assert!(
        matches!(
            refused,
            PromotionError::Refused(PromotionRefusal::RegionCannotCommit { .. })
        ),
        "{refused}"
    );
    let words = refused.to_string();
    assert!(
        words.contains("only 1 of the 3 voters of region b answer"),
        "{words}"
    );
    for (to, expected) in [
        (1, "leads already"),
        (2, "is a witness"),
        (99, "has no member 99"),
    ] {
        let refused = promote(&ring, 1, to).await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    let elsewhere = promote(&ring, 4, 7).await.unwrap_err().to_string();
    assert!(
        elsewhere.contains("this member does not lead; ask member 1"),
        "{elsewhere}"
    );
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    ring.commit("as before").await;
}

#[tokio::test]
async fn a_promotion_whose_reason_has_passed_is_broken_off_before_clients_notice() {
    let ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    let (_, term) = ring.serving().await;
    near(&ring, MemberId(1), &[4, 5, 6, 7, 8, 9]).await;
    let leader = ring.member(MemberId(1));
    let progress = watch::Sender::<PromotionProgress>::default();
    let seen = progress.subscribe();
    // When the promotion is aborted, the quorum has already moved. It moves back.
    let promoted = leader.promote_while(MemberId(4), progress, || false).await;
    let broken_off = promoted.unwrap_err();
    assert!(
        matches!(broken_off, PromotionError::NotNeeded(_)),
        "{broken_off}"
    );
    let went = seen.borrow().clone();
    assert_eq!(went.under_way, Some(PromotionPhase::CatchUp));
    assert!(
        went.done
            .iter()
            .any(|(phase, _)| *phase == PromotionPhase::MoveQuorum)
    );
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    assert_eq!(ring.serving().await, (MemberId(1), term));
    ring.commit("as before").await;
}

#[tokio::test]
async fn a_mock_election_asks_the_voters_and_changes_nothing() {
    let ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    let (_, term) = ring.serving().await;
    near(&ring, MemberId(1), &[4, 5, 6]).await;
    let leader = ring.member(MemberId(1));
    let election = leader.mock_election(MemberId(4)).await.unwrap();
    assert!(election.is_won(), "{election}");
    assert_eq!(election.sets, sets(&[&[4, 5, 6]]));
    assert_eq!(election.votes.len(), 3);

    // The target cannot reach its voters, but they answer the leader. Only a mock election detects this.
    for id in [5, 6].map(MemberId) {
        ring.board.cut(MemberId(4), id);
    }
    let election = leader.mock_election(MemberId(4)).await.unwrap();
    assert!(!election.is_won(), "{election}");
    let refused = promote(&ring, 1, 4).await.unwrap_err();
    assert!(
        matches!(
            refused,
            PromotionError::Refused(PromotionRefusal::MockElectionLost(_))
        ),
        "{refused}"
    );
    assert_eq!(ring.serving().await, (MemberId(1), term));
    assert_eq!(voter_sets(&ring, MemberId(1)), sets(&[&[1, 2, 3]]));
}

#[tokio::test]
async fn a_crash_moves_the_leadership_to_another_region_without_loss() {
    let mut ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    for number in 0..50 {
        ring.commit(&format!("before {number}")).await;
    }
    let acknowledged = ring.disks[&MemberId(1)].transactions();
    ring.crash(MemberId(1)).await;
    settled(&ring, 4, &[&[4, 5, 6]]).await;
    ring.commit("after the crash").await;
    let log = ring.disks[&MemberId(4)].transactions();
    assert_eq!(log[..acknowledged.len()], acknowledged);
    ring.start(MemberId(1)).await;
    let last = ring.commit("with the crashed one back").await;
    ring.committed_everywhere(last).await;
    assert_eq!(ring.serving().await.0, MemberId(4));
}

#[tokio::test]
async fn a_new_leader_half_way_between_two_regions_ends_the_move() {
    let mut ring = dynamic().await;
    settled(&ring, 1, &[&[1, 2, 3]]).await;
    near(&ring, MemberId(1), &[4, 5, 6]).await;
    // The leader crashes during the quorum move of a promotion.
    let member = ring.member(MemberId(1)).clone();
    let progress = watch::Sender::new(PromotionProgress::default());
    let mut seen = progress.subscribe();
    let promotion = tokio::spawn(async move { member.promote(MemberId(4), progress).await });
    let moving = seen.wait_for(|now| now.under_way == Some(PromotionPhase::MoveQuorum));
    within("the move", moving).await.unwrap();
    ring.crash(MemberId(1)).await;
    let (leader, _) = within("a database member leads", async {
        loop {
            let serving = ring.serving().await;
            if [4, 7].contains(&serving.0.0) {
                return serving;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let home: &[u64] = if leader.0 == 4 {
        &[4, 5, 6]
    } else {
        &[7, 8, 9]
    };
    settled(&ring, leader.0, &[home]).await;
    ring.commit("after").await;
    drop(promotion);
}

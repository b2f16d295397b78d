//! A ring is bootstrapped only once, from voters with empty logs.

use std::collections::BTreeSet;

use consensus::Term;
use consensus::quorum::QuorumPolicy;
use futures::StreamExt;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::AppendEntriesRequest;
use openraft::vote::{RaftLeaderId, RaftVote};
use raft_types::MemberKind::Database;
use raft_types::{MemberId, Region, TypeConfig, Vote};
use ring_admin::{BootstrapError, Member};

use crate::support::ring::Ring;

#[tokio::test]
async fn a_second_bootstrap_is_refused_on_every_member() {
    let ring = Ring::of(&[Database; 3]).await;
    let committed = ring.commit("first").await;
    ring.committed_everywhere(committed).await;
    for member in ring.members.values() {
        let again = member.bootstrap(ring.records.clone()).await;
        assert!(
            matches!(again, Err(BootstrapError::NotPristine)),
            "{again:?}"
        );
        assert!(!member.inbound().is_pristine().await.unwrap());
    }
}

#[tokio::test]
async fn only_a_listed_voter_bootstraps_a_ring() {
    let mut ring = Ring::started(&[Database; 3]).await;
    let first = ring.member(MemberId(1)).clone();
    assert!(first.inbound().is_pristine().await.unwrap());

    ring.records.get_mut(&MemberId(1)).unwrap().votes = false;
    let refused = first.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(refused, Err(BootstrapError::DoesNotVote(MemberId(1)))),
        "{refused:?}"
    );

    ring.records.remove(&MemberId(1));
    let refused = first.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(refused, Err(BootstrapError::NotInList(MemberId(1)))),
        "{refused:?}"
    );
    assert!(first.inbound().is_pristine().await.unwrap());
}

/// The bootstrap was interrupted after the vote was durable, and before the first entry was.
#[tokio::test]
async fn an_interrupted_bootstrap_is_completed() {
    let ring = Ring::started(&[Database; 3]).await;
    let first = ring.member(MemberId(1)).clone();
    takes_a_vote_and_no_entry(&first, MemberId(u64::MAX)).await;
    assert!(!first.inbound().is_pristine().await.unwrap());

    first.bootstrap(ring.records.clone()).await.unwrap();
    ring.commit("first").await;
    // The bootstrap uses a new term: the interrupted one may have written the first entry in the previous term.
    assert_eq!(first.history()[0].term, Term(2));
    let again = first.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(again, Err(BootstrapError::NotPristine)),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_member_with_a_leader_bootstraps_no_ring() {
    let ring = Ring::started(&[Database; 3]).await;
    let first = ring.member(MemberId(1)).clone();
    takes_a_vote_and_no_entry(&first, MemberId(2)).await;
    let refused = first.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(refused, Err(BootstrapError::NotPristine)),
        "{refused:?}"
    );
}

async fn takes_a_vote_and_no_entry(member: &Member, leader: MemberId) {
    let request = AppendEntriesRequest::<TypeConfig> {
        vote: <Vote as RaftVote>::from_leader_id(LeaderId::new(1, leader), true),
        prev_log_id: None,
        leader_commit: None,
        entries: Vec::new(),
    };
    let requests = futures::stream::iter([request]);
    let answers: Vec<_> = member.inbound().append(requests).collect().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn a_bootstrap_outside_the_policys_regions_is_refused() {
    let policy = QuorumPolicy::Regions(BTreeSet::from([Region("b".to_owned())]));
    let mut ring = Ring::laid_out("a: 1d | b: 2d 3w 4w", policy);
    ring.start_all().await;
    let first = ring.member(MemberId(1));
    let refused = first.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(
            refused,
            Err(BootstrapError::OutsideTheQuorum {
                member: MemberId(1),
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(first.inbound().is_pristine().await.unwrap());

    let first = ring.member(MemberId(2));
    first.bootstrap(ring.records.clone()).await.unwrap();
    ring.commit("first").await;
}

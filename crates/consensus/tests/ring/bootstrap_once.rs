//! A ring is initialised once, of voters, on empty logs.

use std::collections::BTreeSet;

use consensus::BootstrapError;
use consensus::quorum::QuorumPolicy;
use raft_types::MemberKind::Database;
use raft_types::{MemberId, Region};

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
async fn a_founder_that_votes_and_is_in_the_list_makes_a_ring() {
    let mut ring = Ring::started(&[Database; 3]).await;
    let founder = ring.member(MemberId(1)).clone();
    assert!(founder.inbound().is_pristine().await.unwrap());

    ring.records.get_mut(&MemberId(1)).unwrap().votes = false;
    let refused = founder.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(refused, Err(BootstrapError::DoesNotVote(MemberId(1)))),
        "{refused:?}"
    );

    ring.records.remove(&MemberId(1));
    let refused = founder.bootstrap(ring.records.clone()).await;
    assert!(
        matches!(refused, Err(BootstrapError::NotInList(MemberId(1)))),
        "{refused:?}"
    );
    assert!(founder.inbound().is_pristine().await.unwrap());
}

#[tokio::test]
async fn a_founder_outside_of_the_policys_regions_is_refused() {
    let policy = QuorumPolicy::Regions(BTreeSet::from([Region("b".to_owned())]));
    let mut ring = Ring::laid_out("a: 1d | b: 2d 3w 4w", policy);
    ring.start_all().await;
    let founder = ring.member(MemberId(1));
    let refused = founder.bootstrap(ring.records.clone()).await;
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
    assert!(founder.inbound().is_pristine().await.unwrap());

    let founder = ring.member(MemberId(2));
    founder.bootstrap(ring.records.clone()).await.unwrap();
    ring.commit("first").await;
}

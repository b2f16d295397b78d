//! The size of uncommitted proposals is bounded. A proposal beyond the bound waits.

use bytes::Bytes;
use consensus::{Bounds, Outcome, ProposeError};
use raft_types::MemberKind::Database;
use raft_types::{AppEntry, TransactionPayload};

use crate::support::ring::{Ring, TIMERS, within};

const BOUND: u32 = 1 << 20;

fn half_the_bound() -> AppEntry {
    let bytes = Bytes::from(vec![7; BOUND as usize / 2]);
    AppEntry::Transaction(TransactionPayload::seal(bytes))
}

#[tokio::test]
async fn a_proposal_beyond_the_bound_waits_for_a_commit() {
    let bounds = Bounds {
        proposals_bytes: BOUND,
        ..Bounds::default()
    };
    let ring = Ring::started_with(&[Database; 3], bounds).await;
    ring.bootstrap().await;
    let (leader, term) = ring.serving().await;
    for disk in ring.disks.values() {
        disk.set_flush_time(TIMERS.lease * 2);
    }
    let member = ring.member(leader);
    let mut first = member.propose(half_the_bound(), term).await.unwrap();
    let second = member.propose(half_the_bound(), term).await.unwrap();
    assert_eq!(member.status().proposals_bytes, u64::from(BOUND));
    let third =
        tokio::time::timeout(TIMERS.lease / 2, member.propose(half_the_bound(), term)).await;
    assert!(third.is_err(), "taken beyond the bound");

    let outcome = within("a commit", first.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    drop(second);
    let mut third = within("room", member.propose(half_the_bound(), term))
        .await
        .unwrap();
    let outcome = within("a commit", third.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

#[tokio::test]
async fn an_entry_larger_than_the_bound_is_accepted_alone() {
    let bounds = Bounds {
        proposals_bytes: BOUND,
        ..Bounds::default()
    };
    let ring = Ring::started_with(&[Database; 3], bounds).await;
    ring.bootstrap().await;
    let (leader, term) = ring.serving().await;
    let bytes = Bytes::from(vec![1; 3 * BOUND as usize]);
    let entry = AppEntry::Transaction(TransactionPayload::seal(bytes));
    let proposed = ring.member(leader).propose(entry, term).await;
    let outcome = within("a commit", proposed.unwrap().outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_stopped_member_takes_nothing() {
    let ring = Ring::of(&[Database]).await;
    let (leader, term) = ring.serving().await;
    let member = ring.member(leader);
    member.shutdown().await;
    let refused = match member.propose(half_the_bound(), term).await {
        Ok(mut ticket) => matches!(ticket.resolved_now(), Some(Outcome::Refused(_))),
        Err(error) => matches!(error, ProposeError::Stopped(_)),
    };
    assert!(refused);
}

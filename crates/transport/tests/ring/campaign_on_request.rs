//! A voter campaigns only at the request of the leader that gave up.

use std::time::Duration;

use consensus::{MemberCalls, Question, Term};
use raft_types::MemberKind::Database;

use crate::support::grpc_ring::{GrpcRing, transaction};

const DEADLINE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn only_for_the_leader_of_this_term() {
    let ring = GrpcRing::of(&[Database; 3]).await;
    let committed = ring.commit(transaction("one")).await;
    ring.committed_everywhere(committed).await;
    let (leader, term) = ring.serving().await;
    let mut followers = ring.records.keys().copied().filter(|id| *id != leader);
    let (first, second) = (followers.next().unwrap(), followers.next().unwrap());
    let target = &ring.records[&second];

    let calls = &ring.nodes[&first].factory;
    let refused = calls
        .ask(second, target, Question::Campaign { term }, DEADLINE)
        .await
        .unwrap_err();
    let words = format!("member {first} does not lead term {term}");
    assert!(refused.to_string().contains(&words), "{refused}");

    let calls = &ring.nodes[&leader].factory;
    let past = Term(term.0 - 1);
    let refused = calls
        .ask(second, target, Question::Campaign { term: past }, DEADLINE)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("is over"), "{refused}");
    assert_eq!(ring.serving().await, (leader, term));

    // The voter campaigns. The others still refuse their votes, because the leader has not given up.
    calls
        .ask(second, target, Question::Campaign { term }, DEADLINE)
        .await
        .unwrap();
    let status = loop {
        let status = ring.member(second).status();
        if status.term > term {
            break status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(status.term, Term(term.0 + 1));
    let last = ring.commit(transaction("two")).await;
    ring.committed_everywhere(last).await;
}

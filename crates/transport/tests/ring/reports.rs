//! A follower's report is sent only with the answer to the request that wants it.

use std::time::Duration;

use consensus::log_probe::{Asked, Lane, MemberNetwork};
use futures::{StreamExt, stream};
use openraft::network::RPCOption;
use openraft::raft::AppendEntriesRequest;
use raft_types::MemberKind::Database;
use raft_types::{OwnLog, Vote};

use crate::support::grpc_ring::{GrpcRing, transaction};

#[tokio::test]
async fn a_report_comes_with_the_answer_that_asks_for_it() {
    let ring = GrpcRing::of(&[Database; 3]).await;
    let last = ring.commit(transaction("one")).await;
    let (leader, term) = ring.serving().await;
    ring.committed_everywhere(last).await;
    let follower = ring.nodes.keys().find(|id| **id != leader).unwrap();
    let disk = &ring.nodes[follower].disk;

    let factory = &ring.nodes[&leader].factory;
    let mut client = factory.client(Lane::Entries, *follower, &ring.records[follower]);
    let request = AppendEntriesRequest {
        vote: Vote::new_committed(term.0, leader),
        prev_log_id: Some(last.into()),
        leader_commit: None,
        entries: Vec::new(),
    };
    let wanted = [true, false, true];
    let asked = wanted.map(|wants_report| Asked::new(request.clone(), wants_report));
    let option = RPCOption::new(Duration::from_secs(5));
    let answers = client.stream(stream::iter(asked).boxed(), option).await;
    let answers: Vec<_> = answers.unwrap().collect().await;
    assert_eq!(answers.len(), wanted.len());
    for (answer, wants_report) in answers.into_iter().zip(wanted) {
        let answered = answer.unwrap();
        assert_eq!(answered.result, Ok(Some(last.into())));
        assert_eq!(answered.report, wants_report.then(|| disk.report()));
    }
    let runs = disk.report().runs;
    assert!(
        runs.last()
            .is_some_and(|run| (run.term, run.last) == (last.term, last.index)),
        "{runs:?}"
    );
}

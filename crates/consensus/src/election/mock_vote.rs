//! Runs a mock election: the target asks its voters, and each voter waits for the entries in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use raft_types::MemberId;
use tokio::time::Instant;

use crate::calls::{Answer, CallError, Question};
use crate::election::elections::Elections;
use crate::election::mock_election::{
    Judgement, MockElection, MockElectionCall, MockVote, MockVoteCall, judge,
};
use crate::engine;

/// Interval between two checks of a lagging member.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Answers a mock vote. If this member lags, it waits for the entries in flight first.
pub(crate) async fn vote(elections: &Elections, call: &MockVoteCall) -> MockVote {
    let (raft, own) = (&elections.engine.raft, elections.engine.id);
    let until = Instant::now() + Duration::from_millis(call.patience_ms);
    loop {
        let log_end = engine::progress(raft).last_log;
        let refusal = match elections.campaigning.gate.stays_out() {
            Some(why) => Some(why.to_string()),
            None => match judge(engine::role(raft).term, log_end, call) {
                Err(Judgement::Lags { .. }) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
                judged => judged.err().map(|refusal| refusal.to_string()),
            },
        };
        return MockVote {
            voter: own,
            log_end,
            refusal,
        };
    }
}

/// Holds a mock election for this member.
pub(crate) async fn hold(
    elections: &Elections,
    call: MockElectionCall,
) -> Result<MockElection, CallError> {
    let (calls, own) = (&elections.engine.calls, elections.engine.id);
    let role = engine::role(&elections.engine.raft);
    let membership = &role.membership;
    let Some(record) = membership.get_node(&own) else {
        return Err(CallError(format!(
            "member {own} has not received the entry yet that adds it to the ring; wait until it has caught up"
        )));
    };
    // Half of the time is for entries in flight, the other half for the calls.
    let patience_ms = call.patience_ms / 2;
    let voters: BTreeSet<MemberId> = call.sets.iter().flatten().copied().collect();
    let asked = voters.into_iter().map(|voter| {
        let question = MockVoteCall {
            term: call.term,
            cursor: call.cursor,
            must_have_cursor: membership
                .get_node(&voter)
                .is_some_and(|other| other.region == record.region),
            patience_ms,
        };
        async move {
            if voter == own {
                return vote(elections, &question).await;
            }
            let Some(record) = membership.get_node(&voter) else {
                return refused(voter, format!("member {own} does not know it yet"));
            };
            let deadline = Duration::from_millis(call.patience_ms);
            let question = Question::MockVote(question);
            match calls.ask(voter, record, question, deadline).await {
                Ok(Answer::MockVote(vote)) => vote,
                Ok(other) => refused(voter, other.unexpected().to_string()),
                Err(error) => refused(voter, error.to_string()),
            }
        }
    });
    let votes = join_all(asked).await;
    Ok(MockElection {
        candidate: own,
        cursor: call.cursor,
        votes,
        sets: call.sets,
    })
}

fn refused(voter: MemberId, refusal: String) -> MockVote {
    MockVote {
        voter,
        log_end: None,
        refusal: Some(refusal),
    }
}

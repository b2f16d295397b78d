//! Early election after the leader's process exits ([`super::leader_exit`]).
//!
//! Each member checks the leader itself. After the leader has closed its connections, the member probes the leader's address until the
//! address refuses a connection, or the leader calls again. Then the voters have their turns in the candidate order. In its turn, a voter
//! asks all voters whether they have the same evidence and would vote for it. This is an early pre-vote, which changes nothing. The voter
//! campaigns if a majority of each voter set agrees. A voter with a connection to the leader refuses, and keeps the lease that it granted.
//! So the evidence of one member elects no leader. If any of these steps fails, the engine's own timer still runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use raft_types::{MemberId, OpId};
use tokio::time::Instant;

use crate::calls::{Answer, CallError, EarlyVoteCall, Knock, Question};
use crate::election::candidate_order::{self, Turn, candidates};
use crate::election::elections::Elections;
use crate::election::leader_exit::{ExitEvidence, LedTerm};
use crate::engine::{Fault, RoleSnapshot};
use crate::quorum::have_majorities;

/// First and longest delay between two probes of an address. An exiting process may close its listener after its connections.
const KNOCK_AGAIN: Duration = Duration::from_millis(2);
const KNOCK_AGAIN_AT_MOST: Duration = Duration::from_millis(50);

/// Offset between the turns of the voters. It is longer than the time between their observations of the evidence.
const TURN: Duration = Duration::from_millis(10);

/// Watches for leaders that close their connections, until the member is dropped.
pub(crate) async fn watch(elections: Arc<Elections>) {
    let mut evidence = elections.leader_exit.evidence();
    loop {
        let now = *evidence.borrow_and_update();
        let look_after = async {
            match now {
                ExitEvidence::None => std::future::pending().await,
                ExitEvidence::HungUp(led) => knock_until_refused(&elections, led).await,
                ExitEvidence::Exited(led) => campaign(&elections, led).await,
            }
            // There is no evidence. The engine's timer starts the election.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = evidence.changed() => if changed.is_err() { return },
            () = look_after => {}
        }
    }
}

/// Probes the address of a leader that closed its connections, until the address refuses. Gives up after the longest time of an ordinary
/// election.
async fn knock_until_refused(elections: &Elections, led: LedTerm) {
    let engine = &elections.engine;
    let until = Instant::now() + engine.timers.longest_election();
    let mut pause = KNOCK_AGAIN;
    while Instant::now() < until {
        let role = engine.role();
        let Some(record) = role.membership.membership().get_node(&led.leader) else {
            return;
        };
        let knocked = engine.calls.knock(led.leader, record, engine.timers.lease);
        if knocked.await == Knock::Refused {
            return elections.leader_exit.refuses(led);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(KNOCK_AGAIN_AT_MOST);
    }
}

/// Campaigns in this member's turn, if a majority agrees.
async fn campaign(elections: &Elections, led: LedTerm) {
    let engine = &elections.engine;
    let Some(turn) = turn(&engine.role(), engine.id, led.leader) else {
        return;
    };
    tracing::info!(leader = %led.leader, term = %led.term, "the leader's process is gone: it hung up, and its address refuses calls");
    let until = Instant::now() + engine.timers.longest_election();
    tokio::time::sleep(TURN * turn.place).await;
    while Instant::now() < until {
        let attempt = elections.early_attempt.begin().await;
        let role = engine.role();
        if role.term != led.term {
            return;
        }
        if elections.campaigning.may_stand()
            && would_be_elected(elections, &role, led).await
            && attempt.goes_on()
        {
            match vote_and_end(elections).await {
                Ok((vote, _)) if vote == led.vote() => {}
                // Another member was first, or the engine has stopped.
                _ => return,
            }
            tracing::info!(term = %led.term, "campaigning without waiting for missing heartbeats");
            // If the engine has failed, its task reports that itself.
            let _ = engine.raft.trigger().elect(false).await;
            // The engine votes for this member in this time. Until then, no vote may be promised to another member.
            tokio::time::sleep(engine.timers.heartbeat / 4).await;
            return;
        }
        drop(attempt);
        tokio::time::sleep(TURN * turn.of).await;
    }
}

/// Returns the turn of a voter among the possible successors of a dead leader.
fn turn(role: &RoleSnapshot, own: MemberId, dead: MemberId) -> Option<Turn> {
    let mut candidates = candidates(role.membership.membership());
    candidates.retain(|id| *id != dead);
    candidate_order::turn(&candidates, own)
}

/// Runs the early pre-vote: returns true if a majority of each voter set would elect this member.
async fn would_be_elected(elections: &Elections, role: &RoleSnapshot, led: LedTerm) -> bool {
    let log_end = match vote_and_end(elections).await {
        Ok((vote, log_end)) if vote == led.vote() => log_end,
        _ => return false,
    };
    let engine = &elections.engine;
    let call = EarlyVoteCall { led, log_end };
    let sets = role.voter_sets();
    let membership = role.membership.membership();
    let others = membership
        .voter_ids()
        .filter(|id| ![engine.id, led.leader].contains(id));
    let mut asked: FuturesUnordered<_> = others
        .filter_map(|id| Some((id, membership.get_node(&id)?)))
        .map(|(id, record)| async move {
            let question = Question::EarlyVote(call);
            let answer = engine
                .calls
                .ask(id, record, question, engine.timers.heartbeat * 2);
            (id, answer.await)
        })
        .collect();
    let mut granted = BTreeSet::from([engine.id]);
    // The voters that have agreed or may still agree.
    let mut possible: BTreeSet<MemberId> = membership.voter_ids().collect();
    possible.remove(&led.leader);
    while !have_majorities(sets, &granted) {
        if !have_majorities(sets, &possible) {
            return false;
        }
        match asked.next().await {
            Some((voter, Ok(Answer::EarlyVote))) => {
                granted.insert(voter);
            }
            Some((voter, refusal)) => {
                tracing::debug!(%voter, ?refusal, "no early vote");
                possible.remove(&voter);
            }
            None => return false,
        }
    }
    true
}

/// Answers an early pre-vote with yes if this member has both parts of the evidence itself, and would vote for the asking member. The
/// asking member may have observed the evidence a moment earlier, so this member waits for it.
///
/// # Errors
/// Why this member would not vote for the asking member.
pub(crate) async fn answer(
    elections: &Elections,
    candidate: MemberId,
    call: &EarlyVoteCall,
) -> Result<(), CallError> {
    let no = |why: String| Err(CallError(why));
    let engine = &elections.engine;
    if let Some(why) = elections.withholds(candidate, call.log_end) {
        return no(why.to_string());
    }
    if elections.campaigning.may_have_promised() {
        return no("it was started less than a lease ago".to_owned());
    }
    let exited = elections
        .leader_exit
        .becomes(call.led, engine.timers.heartbeat);
    if !exited.await {
        let leader = call.led.leader;
        return no(format!("as far as it knows, member {leader} is there"));
    }
    let (vote, log_end) = vote_and_end(elections).await.map_err(CallError::new)?;
    if vote != call.led.vote() {
        return no(format!("its vote is {vote} by now"));
    }
    if call.log_end < log_end {
        return no("its log goes further".to_owned());
    }
    let role = engine.role();
    let place = |id| turn(&role, id, call.led.leader).map(|turn| turn.place);
    let is_ahead = place(engine.id).is_some_and(|own| place(candidate).is_none_or(|its| own < its));
    let until = Instant::now() + engine.timers.heartbeat / 4;
    match elections.early_attempt.promise(is_ahead, until) {
        true => Ok(()),
        false => no("it campaigns itself".to_owned()),
    }
}

/// Returns the engine's current stored vote and the end of its log.
async fn vote_and_end(elections: &Elections) -> Result<(raft_types::Vote, Option<OpId>), Fault> {
    let raft = &elections.engine.raft;
    let state = raft.with_raft_state(|state| (*state.vote_ref(), state.log_ids.last().copied()));
    let (vote, end) = state.await?;
    Ok((vote, end.map(OpId::from)))
}

//! Early election after the leader's process exits ([`super::dead_leader`]).
//!
//! Each member checks for itself: after its leader closes its connections, it probes the leader's address until that refuses or the
//! leader is back. Then the voters have their turns in order. In its turn, a voter asks all voters whether they have the same evidence
//! and would vote for it (an early pre-vote, which changes nothing). It campaigns if a majority of each voter set agrees.
//! A voter that sees the leader alive refuses and keeps the lease that it granted, so one member's evidence
//! elects no leader. If anything fails here, the engine's own timer still runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use raft_types::{MemberId, OpId};
use tokio::time::Instant;

use crate::calls::{Answer, CallError, EarlyVoteCall, Knock, MemberCalls, Question};
use crate::election::dead_leader::{Reign, Signs};
use crate::election::elections::Elections;
use crate::election::heirs::{self, Turn, heirs};
use crate::engine::{Fault, RoleSnapshot};
use crate::quorum::majority_of;

/// Delay between two probes of an address, at first and at most. An exiting process may close its listener after its connections.
const KNOCK_AGAIN: Duration = Duration::from_millis(2);
const KNOCK_AGAIN_AT_MOST: Duration = Duration::from_millis(50);

/// Offset between the turns of the voters: longer than the time between their observations of the evidence.
const TURN: Duration = Duration::from_millis(10);

impl EarlyVoteCall {
    fn reign(&self) -> Reign {
        Reign {
            leader: self.leader,
            term: self.term,
        }
    }
}

/// Watches for leaders that close their connections, until the member is dropped.
pub(crate) async fn watch(elections: Arc<Elections>, calls: Arc<dyn MemberCalls>) {
    let mut signs = elections.dead_leader.signs();
    loop {
        let now = *signs.borrow_and_update();
        let look_after = async {
            match now {
                Signs::None => std::future::pending().await,
                Signs::HungUp(reign) => knock_until_refused(&elections, &calls, reign).await,
                Signs::Dead(reign) => campaign(&elections, &calls, reign).await,
            }
            // The engine's timer does the rest.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = signs.changed() => if changed.is_err() { return },
            () = look_after => {}
        }
    }
}

/// Probes the address of a leader that closed its connections until it refuses, for as long as an election takes without that.
async fn knock_until_refused(elections: &Elections, calls: &Arc<dyn MemberCalls>, reign: Reign) {
    let until = Instant::now() + elections.engine.timers.longest_election();
    let mut pause = KNOCK_AGAIN;
    while Instant::now() < until {
        let role = elections.engine.role();
        let Some(record) = role.membership.membership().get_node(&reign.leader) else {
            return;
        };
        match calls
            .knock(reign.leader, record, elections.engine.timers.lease)
            .await
        {
            Knock::Refused => {
                elections.dead_leader.refuses(reign);
                return;
            }
            Knock::Answers | Knock::Silent => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(KNOCK_AGAIN_AT_MOST);
    }
}

/// Campaigns in this member's turn, if a majority agrees.
async fn campaign(elections: &Elections, calls: &Arc<dyn MemberCalls>, reign: Reign) {
    let Some(turn) = turn(&elections.engine.role(), elections.engine.id, reign.leader) else {
        return;
    };
    tracing::info!(leader = %reign.leader, term = %reign.term, "the leader's process is gone: it hung up, and its address refuses calls");
    let until = Instant::now() + elections.engine.timers.longest_election();
    tokio::time::sleep(TURN * turn.place).await;
    while Instant::now() < until {
        let attempt = elections.early_attempt.begin().await;
        let role = elections.engine.role();
        if role.term != reign.term {
            return;
        }
        if elections.campaigning.may_stand()
            && would_be_elected(elections, calls, &role, reign).await
            && attempt.goes_on()
        {
            match vote_and_end(elections).await {
                Ok((vote, _)) if vote == reign.vote() => {}
                // Another member was first, or the engine has stopped.
                _ => return,
            }
            tracing::info!(term = %reign.term, "campaigning without waiting for missing heartbeats");
            // Its task reports its own failure.
            let _ = elections.engine.raft.trigger().elect(false).await;
            // By then the engine has voted, and no promise would be kept.
            tokio::time::sleep(elections.engine.timers.heartbeat / 4).await;
            return;
        }
        drop(attempt);
        tokio::time::sleep(TURN * turn.of).await;
    }
}

/// The turn of a voter among the possible successors of a dead leader.
fn turn(role: &RoleSnapshot, own: MemberId, dead: MemberId) -> Option<Turn> {
    let mut heirs = heirs(role.membership.membership());
    heirs.retain(|id| *id != dead);
    heirs::turn(&heirs, own)
}

/// The early pre-vote: whether a majority of each voter set would elect this member.
async fn would_be_elected(
    elections: &Elections,
    calls: &Arc<dyn MemberCalls>,
    role: &RoleSnapshot,
    reign: Reign,
) -> bool {
    let Ok((vote, log_end)) = vote_and_end(elections).await else {
        return false;
    };
    if vote != reign.vote() {
        return false;
    }
    let call = EarlyVoteCall {
        leader: reign.leader,
        term: reign.term,
        log_end,
    };
    let sets = role.voter_sets();
    let membership = role.membership.membership();
    let others = membership
        .voter_ids()
        .filter(|id| ![elections.engine.id, reign.leader].contains(id));
    let mut asked: FuturesUnordered<_> = others
        .filter_map(|id| Some((id, membership.get_node(&id)?)))
        .map(|(id, record)| async move {
            let question = Question::EarlyVote(call);
            let answer = calls.ask(id, record, question, elections.engine.timers.heartbeat * 2);
            (id, answer.await)
        })
        .collect();
    let mut granted = BTreeSet::from([elections.engine.id]);
    // The voters that may still agree, or have agreed.
    let mut possible: BTreeSet<MemberId> = membership.voter_ids().collect();
    possible.remove(&reign.leader);
    while !is_majority(sets, &granted) {
        if !is_majority(sets, &possible) {
            return false;
        }
        match asked.next().await {
            Some((voter, Ok(Answer::EarlyVote))) => {
                granted.insert(voter);
            }
            Some((voter, Ok(other))) => {
                tracing::debug!(%voter, ?other, "an unexpected answer to an early pre-vote");
                possible.remove(&voter);
            }
            Some((voter, Err(refusal))) => {
                tracing::debug!(%voter, %refusal, "no early vote");
                possible.remove(&voter);
            }
            None => return false,
        }
    }
    true
}

fn is_majority(sets: &[BTreeSet<MemberId>], granted: &BTreeSet<MemberId>) -> bool {
    let has =
        |set: &BTreeSet<MemberId>| set.intersection(granted).count() >= majority_of(set.len());
    !sets.is_empty() && sets.iter().all(has)
}

/// Answers an early pre-vote: this member has seen both signs itself and would vote for the asking member. That member may have seen
/// them a moment sooner and waits until this one has.
///
/// # Errors
/// Why it would not.
pub(crate) async fn answer(
    elections: &Elections,
    candidate: MemberId,
    call: &EarlyVoteCall,
) -> Result<(), CallError> {
    let no = |why: String| Err(CallError(why));
    if let Some(why) = elections.withholds(candidate, call.log_end) {
        return no(why.to_string());
    }
    if elections.campaigning.may_have_promised() {
        return no("it was started less than a lease ago".to_owned());
    }
    if !elections
        .dead_leader
        .becomes(call.reign(), elections.engine.timers.heartbeat)
        .await
    {
        return no(format!(
            "as far as it knows, member {} is there",
            call.leader
        ));
    }
    let stopped = |fault: Fault| CallError(fault.to_string());
    let (vote, log_end) = vote_and_end(elections).await.map_err(stopped)?;
    if vote != call.reign().vote() {
        return no(format!("its vote is {vote} by now"));
    }
    if call.log_end < log_end {
        return no("its log goes further".to_owned());
    }
    let role = elections.engine.role();
    let place = |id| turn(&role, id, call.leader).map(|turn| turn.place);
    let is_ahead =
        place(elections.engine.id).is_some_and(|own| place(candidate).is_none_or(|its| own < its));
    let until = Instant::now() + elections.engine.timers.heartbeat / 4;
    match elections.early_attempt.promise(is_ahead, until) {
        true => Ok(()),
        false => no("it campaigns itself".to_owned()),
    }
}

/// The engine's current stored vote and end of the log.
async fn vote_and_end(elections: &Elections) -> Result<(raft_types::Vote, Option<OpId>), Fault> {
    let state = elections
        .engine
        .raft
        .with_raft_state(|state| (*state.vote_ref(), state.log_ids.last().copied()));
    let (vote, end) = state.await.map_err(Fault::from)?;
    Ok((vote, end.map(OpId::from)))
}

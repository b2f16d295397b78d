//! An election that does not wait for missing heartbeats, because the leader's process is gone ([`super::dead_leader`]).
//!
//! Each member looks for itself: when its leader hangs up, it calls the leader's address until that refuses, or the leader is
//! back. Then the voters have their turns, one after the other. Whose turn it is asks all voters whether they know
//! the same, and would vote for it (an early pre-vote, which changes nothing); where a majority of each voter set would, it campaigns.
//! A voter that sees the leader alive says no, and keeps the lease that it has granted, so that no one member's signs
//! elect anybody. Whatever fails here, the engine's own timer runs on meanwhile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use raft_types::{MemberId, OpId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::calls::{Answer, CallError, Knock, MemberCalls, Question};
use crate::election::dead_leader::{Reign, Signs};
use crate::election::heirs::{self, Turn, heirs};
use crate::engine::{Fault, RoleSnapshot};
use crate::lease::leadership::Term;
use crate::member::core::MemberCore;
use crate::quorum::majority_of;

/// Between two calls of an address at first, and at most. A listener of a process that ends may be closed behind its connections.
const KNOCK_AGAIN: Duration = Duration::from_millis(2);
const KNOCK_AGAIN_AT_MOST: Duration = Duration::from_millis(50);

/// How long behind each other the voters have their turns: longer than they see the signs apart.
const TURN: Duration = Duration::from_millis(10);

/// What a member asks of a voter before it campaigns early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyVoteCall {
    /// Whose process is gone.
    pub leader: MemberId,
    /// The term in which that one led.
    pub term: Term,
    /// The last entry of the log of the member that asks.
    pub log_end: Option<OpId>,
}

impl EarlyVoteCall {
    fn reign(&self) -> Reign {
        Reign {
            leader: self.leader,
            term: self.term,
        }
    }
}

/// How far this member's own attempt is, and whom it lets go first. Of two that ask each other at one moment, the one whose turn comes
/// first goes on and the other one gives way, or they would split the votes.
#[derive(Debug, Default)]
pub(crate) struct Attempt(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    /// Until when another one goes first, to which this member has promised its vote.
    gives_way_until: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    Asks,
    Campaigns,
}

impl Attempt {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Each change is one or two assignments, which belong together and cannot panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to ask, when nobody goes first any more.
    async fn begin(&self) -> Under<'_> {
        loop {
            let until = {
                let mut progress = self.lock();
                match progress
                    .gives_way_until
                    .filter(|until| *until > Instant::now())
                {
                    Some(until) => until,
                    None => {
                        *progress = Progress {
                            stage: Stage::Asks,
                            gives_way_until: None,
                        };
                        return Under(self);
                    }
                }
            };
            tokio::time::sleep_until(until).await;
        }
    }

    /// Promises the vote to another member for a while; not where this one is ahead and asks itself, or campaigns already.
    fn promise(&self, is_ahead: bool, until: Instant) -> bool {
        let mut progress = self.lock();
        let may = match progress.stage {
            Stage::None => true,
            Stage::Asks => !is_ahead,
            Stage::Campaigns => false,
        };
        if may {
            progress.gives_way_until = Some(until);
        }
        may
    }
}

/// An attempt, until it is dropped.
struct Under<'a>(&'a Attempt);

impl Under<'_> {
    /// Whether nobody was promised the vote meanwhile. Then nobody is any more.
    fn goes_on(&self) -> bool {
        let mut progress = self.0.lock();
        let goes_on = progress.gives_way_until.is_none();
        if goes_on {
            progress.stage = Stage::Campaigns;
        }
        goes_on
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.lock().stage = Stage::None;
    }
}

/// Looks after leaders that hang up, until the member is dropped.
pub(crate) async fn watch(core: Arc<MemberCore>, calls: Arc<dyn MemberCalls>) {
    let mut signs = core.dead_leader.signs();
    loop {
        let now = *signs.borrow_and_update();
        let look_after = async {
            match now {
                Signs::None => std::future::pending().await,
                Signs::HungUp(reign) => knock_until_refused(&core, &calls, reign).await,
                Signs::Dead(reign) => campaign(&core, &calls, reign).await,
            }
            // What is left to do, the engine's timer does.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = signs.changed() => if changed.is_err() { return },
            () = look_after => {}
        }
    }
}

/// Calls the address of a leader that hung up until that refuses, for as long as an election takes without that.
async fn knock_until_refused(core: &MemberCore, calls: &Arc<dyn MemberCalls>, reign: Reign) {
    let until = Instant::now() + core.timers.longest_election();
    let mut pause = KNOCK_AGAIN;
    while Instant::now() < until {
        let role = core.role();
        let Some(record) = role.membership.membership().get_node(&reign.leader) else {
            return;
        };
        match calls.knock(reign.leader, record, core.timers.lease).await {
            Knock::Refused => {
                core.dead_leader.refuses(reign);
                return;
            }
            Knock::Answers | Knock::Silent => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(KNOCK_AGAIN_AT_MOST);
    }
}

/// Campaigns when it is this member's turn, if a majority would have it.
async fn campaign(core: &MemberCore, calls: &Arc<dyn MemberCalls>, reign: Reign) {
    let Some(turn) = turn(&core.role(), core.id, reign.leader) else {
        return;
    };
    tracing::info!(leader = %reign.leader, term = %reign.term, "the leader's process is gone: it hung up, and its address refuses calls");
    let until = Instant::now() + core.timers.longest_election();
    tokio::time::sleep(TURN * turn.place).await;
    while Instant::now() < until {
        let attempt = core.early_attempt.begin().await;
        let role = core.role();
        if role.term != reign.term {
            return;
        }
        if core.campaigning.may_stand()
            && would_be_elected(core, calls, &role, reign).await
            && attempt.goes_on()
        {
            match vote_and_end(core).await {
                Ok((vote, _)) if vote == reign.vote() => {}
                // Somebody else was first, or nothing runs here any more.
                _ => return,
            }
            tracing::info!(term = %reign.term, "campaigning without waiting for missing heartbeats");
            // It reports how its task ended.
            let _ = core.raft.trigger().elect(false).await;
            // By then the engine has voted, and no promise would be kept.
            tokio::time::sleep(core.timers.heartbeat / 4).await;
            return;
        }
        drop(attempt);
        tokio::time::sleep(TURN * turn.of).await;
    }
}

/// The turn of a voter among those that may follow a leader that is gone.
fn turn(role: &RoleSnapshot, own: MemberId, dead: MemberId) -> Option<Turn> {
    let mut heirs = heirs(role.membership.membership());
    heirs.retain(|id| *id != dead);
    heirs::turn(&heirs, own)
}

/// The early pre-vote: whether a majority of each voter set would elect this member.
async fn would_be_elected(
    core: &MemberCore,
    calls: &Arc<dyn MemberCalls>,
    role: &RoleSnapshot,
    reign: Reign,
) -> bool {
    let Ok((vote, log_end)) = vote_and_end(core).await else {
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
        .filter(|id| ![core.id, reign.leader].contains(id));
    let mut asked: FuturesUnordered<_> = others
        .filter_map(|id| Some((id, membership.get_node(&id)?)))
        .map(|(id, record)| async move {
            let question = Question::EarlyVote(call);
            let answer = calls.ask(id, record, question, core.timers.heartbeat * 2);
            (id, answer.await)
        })
        .collect();
    let mut granted = BTreeSet::from([core.id]);
    // Those that may still say yes, or have.
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

/// Answers an early pre-vote: this member has seen both signs itself, and would vote for who asks. Who asks may have seen them a
/// moment sooner, and is let wait for that.
///
/// # Errors
/// Why it would not.
pub(crate) async fn answer(
    core: &MemberCore,
    candidate: MemberId,
    call: &EarlyVoteCall,
) -> Result<(), CallError> {
    let no = |why: String| Err(CallError(why));
    if let Some(why) = core.withholds(candidate, call.log_end) {
        return no(why.to_string());
    }
    if core.campaigning.may_have_promised() {
        return no("it was started less than a lease ago".to_owned());
    }
    if !core
        .dead_leader
        .becomes(call.reign(), core.timers.heartbeat)
        .await
    {
        return no(format!(
            "as far as it knows, member {} is there",
            call.leader
        ));
    }
    let stopped = |fault: Fault| CallError(fault.to_string());
    let (vote, log_end) = vote_and_end(core).await.map_err(stopped)?;
    if vote != call.reign().vote() {
        return no(format!("its vote is {vote} by now"));
    }
    if call.log_end < log_end {
        return no("its log goes further".to_owned());
    }
    let role = core.role();
    let place = |id| turn(&role, id, call.leader).map(|turn| turn.place);
    let is_ahead = place(core.id).is_some_and(|own| place(candidate).is_none_or(|its| own < its));
    let until = Instant::now() + core.timers.heartbeat / 4;
    match core.early_attempt.promise(is_ahead, until) {
        true => Ok(()),
        false => no("it campaigns itself".to_owned()),
    }
}

/// The stored vote and the end of the log, as the engine has them at this moment.
async fn vote_and_end(core: &MemberCore) -> Result<(raft_types::Vote, Option<OpId>), Fault> {
    let state = core
        .raft
        .with_raft_state(|state| (*state.vote_ref(), state.log_ids.last().copied()));
    let (vote, end) = state.await.map_err(Fault::from)?;
    Ok((vote, end.map(OpId::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_two_that_ask_each_other_one_goes_on() {
        let (first, second) = (Attempt::default(), Attempt::default());
        let until = Instant::now() + Duration::from_millis(100);
        let (own, others) = (first.begin().await, second.begin().await);
        assert!(!first.promise(true, until), "it is ahead");
        assert!(second.promise(false, until), "it is not");
        assert!(own.goes_on() && !others.goes_on());
        assert!(!first.promise(false, until), "it campaigns");
        drop((own, others));
        // Who gave way waits.
        let again = second.begin().await;
        assert!(Instant::now() >= until && again.goes_on());
        // Who does not ask promises its vote, wherever it stands.
        assert!(first.promise(true, Instant::now() + Duration::from_millis(10)));
    }
}

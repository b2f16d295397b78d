//! Early election after the leader's process exits ([`super::dead_leader`]).
//!
//! Each member checks for itself: after its leader closes its connections, it probes the leader's address until that refuses or the
//! leader is back. Then the voters have their turns in order. In its turn, a voter asks all voters whether they have the same evidence
//! and would vote for it (an early pre-vote, which changes nothing). It campaigns if a majority of each voter set agrees.
//! A voter that sees the leader alive refuses and keeps the lease that it granted, so one member's evidence
//! elects no leader. If anything fails here, the engine's own timer still runs.

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

/// Delay between two probes of an address, at first and at most. An exiting process may close its listener after its connections.
const KNOCK_AGAIN: Duration = Duration::from_millis(2);
const KNOCK_AGAIN_AT_MOST: Duration = Duration::from_millis(50);

/// Offset between the turns of the voters: longer than the time between their observations of the evidence.
const TURN: Duration = Duration::from_millis(10);

/// What a member asks of a voter before it campaigns early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyVoteCall {
    /// The member whose process is gone.
    pub leader: MemberId,
    /// The term in which it led.
    pub term: Term,
    /// The last entry of the log of the asking member.
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

/// The progress of this member's own attempt, and the member to which it yields. Of two members that ask each other concurrently, the
/// one with the earlier turn proceeds and the other yields; otherwise they would split the votes.
#[derive(Debug, Default)]
pub(crate) struct Attempt(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    /// Until when another member goes first, to which this member has promised its vote.
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

    /// Begins to ask once no other member goes first.
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

    /// Promises the vote to another member until `until`; refused where this one is ahead and asks itself, or campaigns already.
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
    /// Whether the vote was promised to no member since. Then it can no longer be promised.
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

/// Watches for leaders that close their connections, until the member is dropped.
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

/// Campaigns in this member's turn, if a majority agrees.
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
                // Another member was first, or the engine has stopped.
                _ => return,
            }
            tracing::info!(term = %reign.term, "campaigning without waiting for missing heartbeats");
            // Its task reports its own failure.
            let _ = core.raft.trigger().elect(false).await;
            // By then the engine has voted, and no promise would be kept.
            tokio::time::sleep(core.timers.heartbeat / 4).await;
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

/// The engine's current stored vote and end of the log.
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
        // The yielding member waits.
        let again = second.begin().await;
        assert!(Instant::now() >= until && again.goes_on());
        // A member that does not ask promises its vote, whatever its position.
        assert!(first.promise(true, Instant::now() + Duration::from_millis(10)));
    }
}

//! Processing of admitted calls from other members. The transport's
//! server calls this: entries, votes (checked by the gate, then granted by the engine), and a campaign that a leader orders when
//! it transfers the leadership. The engine gives every answer but one: see [`Inbound::heartbeat`].

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use futures::future::{Either, ready, select};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, pin_mut};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError,
    StreamAppendResult, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use raft_types::{FileStart, LogId, MemberId, MemberRecord, OpId, Term, TypeConfig, Vote};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::calls::{Agreement, Answer, CallError, FileBytes, Question};
use crate::election::candidate_order::{candidates, goes_first};
use crate::election::elections::Elections;
use crate::election::leader_exit::LedTerm;
use crate::election::put_back::{TERM_LEAP, leap_from};
use crate::election::vote_gate::ElectionGate;
use crate::election::{doubted_tail, early_election, greetings, interim_leader, mock_vote};
use crate::engine::handle::EngineHandle;
use crate::engine::{Fault, RoleSnapshot};
use crate::forced_membership::NO_MEMBER;
use crate::log_room::wait_for_room;
use crate::node::RaftNode;
use crate::{calls, engine};

/// The engine's answers to a stream of entries.
pub type AppendAnswers = BoxStream<'static, Result<StreamAppendResult<TypeConfig>, Fault>>;

/// The receiving end of a member's Raft.
#[derive(Clone)]
pub struct Inbound(pub(crate) Arc<RaftNode>);

impl Inbound {
    /// Accepts a leader's stream of entries; one answer per request, in order, each when the
    /// entries are durable. It ends after the first conflict or higher vote.
    pub fn append<S>(&self, requests: S) -> AppendAnswers
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    {
        let node = self.0.clone();
        // A request that contradicts this log ends the stream; the engine is stopped then.
        let agreeing = requests
            .then(move |request| {
                let node = node.clone();
                async move {
                    let role = node.engine.role();
                    heed_leap(&node.elections, &request.vote);
                    // The answer to its heartbeat carries the reason.
                    if passed_over(&node.elections, &request.vote).is_some() {
                        return None;
                    }
                    node.elections.told_committed(request.leader_commit);
                    let agrees = refuse_divergence(&node.engine, &role, &request).await;
                    agrees.ok()?;
                    if !node.administrator.accept_entries(&request) {
                        return None;
                    }
                    wait_for_room(node.rooms.own.get().cloned(), &request).await;
                    Some(request)
                }
            })
            .take_while(|request| ready(request.is_some()))
            .filter_map(ready);
        // A request stops waiting for room when the caller no longer waits for the answers.
        let (listening, deaf) = oneshot::channel::<Infallible>();
        let agreeing = agreeing.take_until(deaf);
        let heard = self.0.engine.heard.clone();
        self.0
            .engine
            .raft
            .stream_append(agreeing.boxed())
            .inspect_ok(move |answer| {
                let _ = &listening;
                if answer.is_ok() {
                    heard.now();
                }
            })
            .map_err(Fault::from)
            .boxed()
    }

    /// Accepts a leader's heartbeat.
    ///
    /// The engine answers one only when all entries before it are on disk, so the heartbeats of a
    /// large transaction would come too late. A heartbeat requires less: that this member
    /// follows that leader and has the entry that it names. Both are true as soon as the engine has
    /// processed the heartbeat, and are read from the engine's state after that.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> Result<StreamAppendResult<TypeConfig>, Fault> {
        let role = self.0.engine.role();
        heed_leap(&self.0.elections, &request.vote);
        if let Some(later) = passed_over(&self.0.elections, &request.vote) {
            return Ok(Err(StreamAppendError::HigherVote(later)));
        }
        self.0.elections.told_committed(request.leader_commit);
        refuse_divergence(&self.0.engine, &role, &request).await?;
        let leader = request.vote.leader_id;
        let answer = self.take_heartbeat(request).await?;
        if answer.is_ok() {
            self.0.engine.heard.now();
        }
        let follows = !matches!(answer, Err(StreamAppendError::HigherVote(_)));
        let promise = &self.0.elections.campaigning.promise;
        if follows && !promise.may_answer(leader.voted_for, Term(leader.term)) {
            // The leader may rely on a longer lease; see `lease::promise`.
            self.0.elections.contacts.unpromised.notify_one();
            return std::future::pending().await;
        }
        Ok(answer)
    }

    async fn take_heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> Result<StreamAppendResult<TypeConfig>, Fault> {
        let (vote, named) = (request.vote, request.prev_log_id);
        // Polled first: the engine takes messages in their order.
        let append = self.0.engine.raft.append_entries(request);
        let taken_in = self.0.engine.raft.with_raft_state(move |state| {
            let has_named = named.is_none_or(|named| {
                let purged = state.log_ids.purged();
                purged.is_some_and(|purged| named.index <= purged.index)
                    || state.log_ids.get(named.index) == Some(named)
            });
            *state.vote_ref() == vote && has_named
        });
        pin_mut!(append, taken_in);
        let answer = match select(append, taken_in).await {
            Either::Left((answer, _)) => answer,
            Either::Right((Ok(true), _)) => return Ok(Ok(named)),
            Either::Right((_, append)) => append.await,
        };
        match answer? {
            AppendEntriesResponse::Success => Ok(Ok(named)),
            AppendEntriesResponse::PartialSuccess(matching) => Ok(Ok(matching)),
            AppendEntriesResponse::HigherVote(vote) => Ok(Err(StreamAppendError::HigherVote(vote))),
            AppendEntriesResponse::Conflict => match named {
                Some(named) => Ok(Err(StreamAppendError::Conflict(named))),
                None => Ok(Ok(None)),
            },
        }
    }

    /// True if the log has this entry durably: the engine's answer to a request without entries that names it.
    async fn look_for(
        &self,
        vote: Vote,
        entry: LogId,
    ) -> Result<AppendEntriesResponse<TypeConfig>, Fault> {
        let request = AppendEntriesRequest {
            vote,
            prev_log_id: Some(entry),
            entries: Vec::new(),
            leader_commit: None,
        };
        Ok(self.0.engine.raft.append_entries(request).await?)
    }

    /// Lets the log begin with a file of a leader's log, because the entries that it lacks are purged
    /// there. The answer comes when that is durable. Only entries that the start covers are dropped:
    /// see [`raft_types::FileStarts::begin_at`].
    ///
    /// A log that already has the entry before the start stays as it is: the offer crossed the entries in flight, and
    /// the engine would reset the log's end to there.
    ///
    /// # Errors
    /// [`InstallRefusal`]; the log is unchanged then.
    pub async fn install(
        &self,
        vote: Vote,
        start: FileStart,
    ) -> Result<SnapshotResponse<TypeConfig>, InstallRefusal> {
        if let Some(later) = passed_over(&self.0.elections, &vote) {
            return Ok(SnapshotResponse::new(later));
        }
        let refused = |reason: String| InstallRefusal::Unfit(start.before, reason);
        if start.before.term > vote.leader_id.term {
            let reason = format!("its leader is of term {}", vote.leader_id.term);
            return Err(refused(reason));
        }
        let checked = self.0.engine.starts.check_start(&start);
        checked.map_err(|error| refused(error.to_string()))?;
        let prepared = self.0.administrator.prepare_for(&start.membership);
        prepared.map_err(|error| refused(error.to_string()))?;
        let before = LogId::from(start.before);
        let raft = &self.0.engine.raft;
        let committed = raft.with_raft_state(|state| state.local_committed().copied());
        let committed = committed.await.map_err(Fault::from)?;
        // The engine panics on a start that contradicts what it has committed.
        if let Some(committed) = committed
            && (before > committed) != (before.index > committed.index)
        {
            let reason = format!("entry {} is committed here", OpId::from(committed));
            return Err(refused(reason));
        }
        let found = self.look_for(vote, before).await?;
        let response = match found {
            AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_) => {
                SnapshotResponse::new(vote)
            }
            AppendEntriesResponse::HigherVote(higher) => SnapshotResponse::new(higher),
            AppendEntriesResponse::Conflict => {
                self.cut_later_terms(vote, before).await?;
                let installed = raft.install_full_snapshot(vote, start.snapshot());
                installed.await.map_err(Fault::from)?
            }
        };
        if response.vote == vote {
            self.0.engine.heard.now();
        }
        Ok(response)
    }

    /// Cuts the log's end that has later terms than `before`, the entry before a leader's first one: the ring has given it up.
    /// The engine checks for a conflict at that one index only, and treats a shorter log with a later term as impossible.
    async fn cut_later_terms(&self, vote: Vote, before: LogId) -> Result<(), Fault> {
        let first_of_later = self.0.engine.raft.with_raft_state(move |state| {
            let newest_first = (0..state.log_ids.last()?.index + 1).rev();
            let terms = newest_first.map_while(|index| state.log_ids.get(index));
            let later = terms.take_while(|entry| OpId::from(*entry).term > OpId::from(before).term);
            Some(later.last()?.index)
        });
        if let Some(index) = first_of_later.await? {
            // The log has no entry with this id, so the engine cuts it there.
            let contradicts = OpId::new(OpId::from(before).term, index);
            self.look_for(vote, contradicts.into()).await?;
        }
        Ok(())
    }

    /// This member calls as a leader, on an open connection.
    pub fn leads(&self, caller: MemberId) {
        self.0.elections.leader_exit.calls(caller);
    }

    /// A member without a connection to this one calls over a new one: it was started, or was cut off.
    pub fn arrives(&self) {
        self.0.arrived.notify_one();
    }

    /// A member has closed the last of its connections to this one. If it is the leader, this member checks whether its
    /// process is gone.
    pub fn hung_up(&self, caller: MemberId) {
        let role = engine::role(&self.0.engine.raft);
        let followed = LedTerm::followed(&role, self.0.engine.id);
        if let Some(led) = followed.filter(|led| led.leader == caller) {
            self.0.elections.leader_exit.hung_up(led);
        }
    }

    /// Votes, if this member may; not before the end of a lease that this member may have granted before its start. The lease of a
    /// leader without a process is bypassed, as in a leadership transfer. See `campaign`, `vote_gate` and `leader_exit`.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn vote(
        &self,
        mut request: VoteRequest<TypeConfig>,
    ) -> Result<VoteResponse<TypeConfig>, Fault> {
        heed_leap(&self.0.elections, &request.vote);
        if !request.leadership_transfer {
            self.0.elections.campaigning.promise_is_over().await;
        }
        if let Some(refusal) = self.withheld(&request).await? {
            return Ok(refusal);
        }
        request.leadership_transfer |= self.0.elections.leader_exit.releases(&request.vote);
        let answer = self.0.engine.raft.vote(request.clone()).await?;
        self.heed_split(&request, &answer);
        Ok(answer)
    }

    /// After a split vote, yields to the candidate that comes first.
    fn heed_split(&self, request: &VoteRequest<TypeConfig>, answer: &VoteResponse<TypeConfig>) {
        let (campaigning, raft) = (&self.0.elections.campaigning, &self.0.engine.raft);
        if answer.vote_granted {
            campaigning.has_voted(raft);
            return;
        }
        let candidates = candidates(engine::role(raft).membership.membership());
        let Some(first) = goes_first(request, answer, &candidates) else {
            return;
        };
        if campaigning.yield_to_another(raft, self.0.engine.timers.longest_election()) {
            tracing::info!(term = request.vote.leader_id.term, voted_for = %answer.vote.leader_id.voted_for, "the votes are split: member {first} goes first now");
        }
    }

    /// Answers whether it would vote, and changes nothing; not earlier than it would.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn pre_vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> Result<VoteResponse<TypeConfig>, Fault> {
        self.0.elections.campaigning.promise_is_over().await;
        if let Some(refusal) = self.withheld(&request).await? {
            return Ok(refusal);
        }
        Ok(self.0.engine.raft.pre_vote(request).await?)
    }

    /// The refusal of a vote that this member must not give. The engine does not receive the request: its own vote stays.
    async fn withheld(
        &self,
        request: &VoteRequest<TypeConfig>,
    ) -> Result<Option<VoteResponse<TypeConfig>>, Fault> {
        // The engine refuses late requests; the candidate has had more since.
        if request.vote.leader_id.term < engine::role(&self.0.engine.raft).term.0 {
            return Ok(None);
        }
        let (candidate, end) = (request.vote.leader_id.voted_for, request.last_log_id);
        let Some(why) = self.0.elections.withholds(candidate, end.map(OpId::from)) else {
            return Ok(None);
        };
        tracing::info!(candidate = %request.vote, "no vote: {why}");
        let refusal = self.0.engine.raft.with_raft_state(|state| {
            VoteResponse::new(state.vote_ref(), state.log_ids.last().copied(), false)
        });
        Ok(Some(refusal.await?))
    }

    /// Processes the notice that the leader transfers the leadership, perhaps to this member.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn transfer_leader(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Fault> {
        // The engine waits until it durably has all that the leader has: then nothing is in doubt. A leader of an
        // earlier term than the doubt's proves nothing, and no member follows one that was passed over.
        let doubt = self.0.engine.starts.doubted_tail();
        let doubted = doubt.is_some_and(|doubt| request.from_leader().leader_id.term < doubt.term);
        let is_over = passed_over(&self.0.elections, request.from_leader()).is_some();
        if *request.to_node_id() == self.0.engine.id && (doubted || is_over) {
            let error = TransferLeaderError::LogNotFlushed {
                expected: request.last_log_id().copied(),
                actual: None,
            };
            return Ok(Err(error));
        }
        Ok(self.0.engine.raft.handle_transfer_leader(request).await?)
    }

    /// Answers a question of another member.
    ///
    /// # Errors
    /// [`CallError`] when it is refused, or the engine has stopped.
    pub async fn answer(&self, caller: MemberId, question: Question) -> Result<Answer, CallError> {
        let elections = &self.0.elections;
        match question {
            Question::Greeting(said) => {
                greetings::take_in(elections, caller, &said).await;
                Ok(Answer::Greeting {
                    program: Some(self.0.program.clone()),
                    greeting: greetings::greeting(elections, caller),
                })
            }
            Question::Campaign { term } => {
                self.campaign(caller, term).await?;
                Ok(Answer::Campaigns)
            }
            Question::InterimLead => {
                interim_leader::campaign(elections).await?;
                Ok(Answer::Campaigns)
            }
            Question::MockElection(call) => {
                let held = mock_vote::hold(elections, call).await;
                held.map(Answer::MockElection)
            }
            Question::MockVote(call) => {
                Ok(Answer::MockVote(mock_vote::vote(elections, &call).await))
            }
            Question::EarlyVote(call) => {
                early_election::answer(elections, caller, &call).await?;
                Ok(Answer::EarlyVote)
            }
            Question::Agreement(theirs) => {
                let compared = calls::compare(&self.0.engine.raft, theirs).await;
                Ok(Answer::Agreement(Agreement {
                    remembered: greetings::remembered(elections, caller),
                    ..compared.map_err(CallError::new)?
                }))
            }
            Question::PurgeFloor { absent_after } => {
                let floor = self.0.purge_floor(absent_after);
                Ok(Answer::PurgeFloor(floor.ok_or_else(not_serving)?))
            }
            Question::Database { primary } => {
                let state = self.0.administrator.database_state(primary).await;
                let none = || CallError::new("this member manages no mysqld");
                state.map(Answer::Database).ok_or_else(none)
            }
            Question::FilePart(part) => {
                let bytes = self.0.engine.starts.part_of_file(part).await;
                Ok(Answer::FilePart(FileBytes(bytes.map_err(CallError::new)?)))
            }
            Question::Note { entries } => {
                if self.0.elections.leadership().serving_term().is_none() {
                    return Err(not_serving());
                }
                self.0.administrator.keep_events(entries);
                Ok(Answer::Noted)
            }
            Question::Room => {
                let end = engine::progress(&self.0.engine.raft).last_log;
                Ok(self.0.rooms.answer(end))
            }
            Question::Committed => {
                let committed = self.0.elections.committed_now();
                let up_to = committed.ok_or_else(not_serving)?;
                Ok(Answer::Committed { up_to })
            }
            Question::LogEnd => {
                let end = doubted_tail::log_end(&self.0.engine.raft, self.0.engine.id).await;
                let stopped = || CallError::new("the engine has stopped");
                end.map(Answer::LogEnd).ok_or_else(stopped)
            }
        }
    }

    /// Campaigns because the leader of `term` gave up without a successor; refused when that leadership is over here.
    async fn campaign(&self, caller: MemberId, term: Term) -> Result<(), CallError> {
        if let Some(why) = self.0.elections.campaigning.gate.stays_out() {
            return Err(CallError::new(why));
        }
        let role = engine::role(&self.0.engine.raft);
        if role.term > term {
            let reason = format!("term {term} is over; this member is in term {}", role.term);
            return Err(CallError(reason));
        }
        if role.term == term && role.leader.is_some_and(|leader| leader != caller) {
            let reason = format!("member {caller} does not lead term {term}");
            return Err(CallError(reason));
        }
        if self.0.elections.campaigning.may_have_promised() {
            let reason = "this member was started less than a lease ago, and does not campaign yet";
            return Err(CallError::new(reason));
        }
        let triggered = self.0.engine.raft.trigger().elect(false).await;
        triggered.map_err(Fault::from).map_err(CallError::new)
    }

    /// Records that a call was refused because this member does not support its format. If it is from the leader, or while none is
    /// known, this is why it takes no entries.
    pub fn refused_format(&self, caller: MemberId, why: &impl Display) {
        let role = self.0.engine.role();
        if role.leader.is_none_or(|leader| leader == caller) {
            self.0.administrator.entries_refused(&why.to_string());
        }
    }

    /// A member's record in this one's membership.
    pub fn record(&self, member: MemberId) -> Option<MemberRecord> {
        let role = engine::role(&self.0.engine.raft);
        role.membership.get_node(&member).cloned()
    }

    /// True if the log has no entry and the member never voted.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn is_pristine(&self) -> Result<bool, Fault> {
        Ok(!self.0.engine.raft.is_initialized().await?)
    }
}

/// After a term to which only a repair leaps, this member votes for no log without that repair. Members that were given up
/// may learn of the term, and lose contact again before they have the repair.
fn heed_leap(elections: &Elections, vote: &Vote) {
    let heard = vote.leader_id.term;
    if heard < TERM_LEAP {
        return;
    }
    // Its own term may already be as late, from a refusal that it received.
    let leap = leap_from(engine::progress(&elections.engine.raft).last_log);
    let told = elections.campaigning.gate.committed();
    if heard >= leap && told.is_none_or(|told| told.term < leap) {
        let told = |gate: &ElectionGate| gate.told(OpId::new(leap, 0));
        elections
            .campaigning
            .change_gate(&elections.engine.raft, told);
    }
}

/// The later term to report to a leader that led before the reported committed end. The ring's log has an entry of that
/// term, so it had a leader. A repair may have left this leader out, and it may find a quorum for its own term among
/// members that return later; without this check they would follow it.
fn passed_over(elections: &Elections, vote: &Vote) -> Option<Vote> {
    let later = elections
        .campaigning
        .gate
        .passes_over(vote.leader_id.term)?;
    tracing::warn!(leader = %vote, committed = %later, "a leader is not followed: the ring has gone on without it");
    Some(Vote::new(later.term, NO_MEMBER))
}

/// The answer to a question that only a serving leader can answer.
fn not_serving() -> CallError {
    CallError::new("this member does not serve as the leader")
}

/// Why a log did not begin with a file of another member's log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InstallRefusal {
    /// The start after this entry cannot be the ring's, for the reason in the text.
    #[error("this log cannot begin behind {0}: {1}")]
    Unfit(OpId, String),
    /// The consensus engine has stopped, so it takes no new start of the log.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

// Detects a leader that names another entry where this member's log is committed: up to its commit mark, and up to a membership with
// a later membership, which proves the same, perhaps before the mark does. Only one cause is possible: an operator
// repaired a lost quorum without this member. The engine would silently keep both, because it never compares
// committed entries. So the member stops and reports it. When it is restarted, it truncates its log (`rejoin`).

/// The entries up to this index that a request names.
fn named(request: &AppendEntriesRequest<TypeConfig>, up_to: u64) -> Vec<OpId> {
    let previous = request.prev_log_id.into_iter();
    let entries = request.entries.iter().map(|entry| entry.log_id);
    let op_ids = previous.chain(entries).map(OpId::from);
    op_ids.take_while(|op_id| op_id.index <= up_to).collect()
}

/// The first entry of which another one is here, as [`Fault::Contradicted`].
fn find(named: &[OpId], op_id_at: impl Fn(u64) -> Option<OpId>) -> Option<Fault> {
    named.iter().find_map(|theirs| {
        // Purged entries can no longer be compared.
        let ours = op_id_at(theirs.index)?;
        (ours != *theirs).then_some(Fault::Contradicted {
            ours,
            theirs: *theirs,
        })
    })
}

/// Accepts a leader's request that agrees with what is committed here; `role` is the current one. Free for nearly every request:
/// one that continues at the log's end.
///
/// # Errors
/// [`Fault::Contradicted`]; the engine is stopped then.
pub(crate) async fn refuse_divergence(
    engine: &EngineHandle,
    role: &RoleSnapshot,
    request: &AppendEntriesRequest<TypeConfig>,
) -> Result<(), Fault> {
    let mark = engine.mark.get().map(|committed| committed.index);
    // The membership before this one is committed, because this one follows it.
    let membership = role.membership.log_id().map(|last| last.index);
    let Some(up_to) = mark.max(membership) else {
        return Ok(());
    };
    let goes_on = request
        .prev_log_id
        .is_some_and(|previous| previous.index > up_to);
    if goes_on {
        return Ok(());
    }
    let (vote, mut named) = (request.vote, named(request, up_to));
    let found = engine.raft.with_raft_state(move |state| {
        // A deposed leader may name anything; the engine rejects it.
        let is_leader = vote >= *state.vote_ref();
        let settled = state
            .membership_state
            .committed()
            .log_id()
            .map(|last| last.index);
        named.retain(|op_id| Some(op_id.index) <= mark.max(settled));
        let found = find(&named, |index| state.log_ids.get(index).map(OpId::from));
        found.filter(|_| is_leader)
    });
    let Some(fault) = found.await? else {
        return Ok(());
    };
    tracing::error!(%fault, "the log contradicts the ring's");
    // The first reason stays.
    let _ = engine.failed.set(fault.clone());
    // Its task ends, which `fault` reports.
    let _ = engine.raft.shutdown().await;
    Err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_entry_at_the_same_index_contradicts() {
        let own = |index| match index {
            0..=4 => None,
            5..=10 => Some(OpId::new(1, index)),
            11..=20 => Some(OpId::new(3, index)),
            _ => None,
        };
        let find = |named: &[(u64, u64)]| {
            let named: Vec<OpId> = named
                .iter()
                .map(|(term, index)| OpId::new(*term, *index))
                .collect();
            find(&named, own)
        };
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[(1, 8), (1, 9), (1, 10), (3, 11)]), None);
        assert_eq!(find(&[(7, 3)]), None);
        let contradiction = Fault::Contradicted {
            ours: OpId::new(3, 12),
            theirs: OpId::new(1003, 12),
        };
        assert_eq!(
            find(&[(3, 11), (1003, 12), (1003, 13)]),
            Some(contradiction)
        );
    }
}

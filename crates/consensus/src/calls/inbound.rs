//! Processes the calls from other members that the transport's server has admitted. These are entries, votes, and a leader's order to
//! campaign in a leadership transfer. The vote gate checks a vote request before the engine grants it. The engine gives every answer except
//! one: see [`Inbound::heartbeat`].

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
use crate::election::restored_directory::{TERM_LEAP, leap_from};
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
    /// Accepts a leader's stream of entries. Each request gets one answer, in order, after its entries are durable. The stream of answers
    /// ends after the first conflict or higher vote.
    pub fn append<S>(&self, requests: S) -> AppendAnswers
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    {
        let node = self.0.clone();
        // A request that contradicts this log ends the stream. The engine is stopped then.
        let agreeing = requests
            .then(move |request| {
                let node = node.clone();
                async move {
                    let role = node.engine.role();
                    heed_leap(&node.elections, &request.vote);
                    // The reason is in the answer to this leader's heartbeat.
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
        // If the caller no longer waits for the answers, a request no longer waits for room.
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
    /// The engine answers a heartbeat only after all entries before it are on disk. During a large transaction, such answers would be too
    /// late. So this method requires less: this member follows that leader, and has the entry that the heartbeat names. Both are read from
    /// the engine's state after the engine has processed the heartbeat.
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
        // This future is polled first, because the engine processes messages in their order.
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

    /// Returns true if the log has this entry durably. The engine finds that out with a request that names the entry and carries no
    /// entries.
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

    /// Lets the log begin with a file of a leader's log, because the leader has purged the entries that this log lacks. Returns after the
    /// new beginning is durable. Only entries that the file start covers are dropped: see [`raft_types::FileStarts::begin_at`].
    ///
    /// If the log already has the entry before the file start, the log stays unchanged. The leader's offer then crossed entries in flight,
    /// and the engine would reset the log's end to the file start.
    ///
    /// # Errors
    /// [`InstallRefusal`]; the log is unchanged.
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

    /// Cuts the end of the log from the first entry of a later term than `before`, because the ring has given these entries up. `before` is
    /// the entry before a leader's first entry. The engine checks only that index for a conflict, and assumes that a shorter log never has
    /// a later term.
    async fn cut_later_terms(&self, vote: Vote, before: LogId) -> Result<(), Fault> {
        let first_of_later = self.0.engine.raft.with_raft_state(move |state| {
            let newest_first = (0..state.log_ids.last()?.index + 1).rev();
            let terms = newest_first.map_while(|index| state.log_ids.get(index));
            let later = terms.take_while(|entry| OpId::from(*entry).term > OpId::from(before).term);
            Some(later.last()?.index)
        });
        if let Some(index) = first_of_later.await? {
            // The log has no entry with this op id, so the engine cuts the log there.
            let contradicts = OpId::new(OpId::from(before).term, index);
            self.look_for(vote, contradicts.into()).await?;
        }
        Ok(())
    }

    /// Records that `caller` calls as a leader on an open connection.
    pub fn leads(&self, caller: MemberId) {
        self.0.elections.leader_exit.calls(caller);
    }

    /// Records a call over a new connection from a member that had none to this one. The member was started, or its network was
    /// interrupted.
    pub fn arrives(&self) {
        self.0.arrived.notify_one();
    }

    /// Records that a member has closed its last connection to this one. If it is the leader, this member checks whether the leader's
    /// process has exited.
    pub fn hung_up(&self, caller: MemberId) {
        let role = engine::role(&self.0.engine.raft);
        let followed = LedTerm::followed(&role, self.0.engine.id);
        if let Some(led) = followed.filter(|led| led.leader == caller) {
            self.0.elections.leader_exit.hung_up(led);
        }
    }

    /// Answers a vote request. The answer waits until the end of a lease that this member may have granted before its start. If the
    /// leader's process has exited, its lease is bypassed, as in a leadership transfer. See `campaign`, `vote_gate` and `leader_exit`.
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

    /// Answers whether this member would grant a vote, and changes nothing. The answer waits as long as an answer to a vote request.
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

    /// Returns the refusal of a vote that this member must not grant. The engine does not receive the request, so the stored vote stays
    /// unchanged.
    async fn withheld(
        &self,
        request: &VoteRequest<TypeConfig>,
    ) -> Result<Option<VoteResponse<TypeConfig>>, Fault> {
        // The engine refuses requests of an earlier term itself. The candidate's log may have grown since.
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

    /// Processes the notice that the leader transfers the leadership, possibly to this member.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn transfer_leader(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Fault> {
        // The engine waits until it durably has all entries of the leader; then nothing is in doubt. This is not true for a leader of an
        // earlier term than the doubt's. A leader that the ring has replaced is not followed either.
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
    /// [`CallError`] if the question is refused, or the engine has stopped.
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

    /// Campaigns because the leader of `term` gave up without a successor. Refused if this member follows another leadership by now.
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

    /// Records that a call was refused because this member does not support its format. If the caller is the leader, or no leader is known,
    /// this is the reason why this member accepts no entries.
    pub fn refused_format(&self, caller: MemberId, why: &impl Display) {
        let role = self.0.engine.role();
        if role.leader.is_none_or(|leader| leader == caller) {
            self.0.administrator.entries_refused(&why.to_string());
        }
    }

    /// Returns a member's record in this member's membership.
    pub fn record(&self, member: MemberId) -> Option<MemberRecord> {
        let role = engine::role(&self.0.engine.raft);
        role.membership.get_node(&member).cloned()
    }

    /// Returns true if the log has no entry and the member never voted.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn is_pristine(&self) -> Result<bool, Fault> {
        Ok(!self.0.engine.raft.is_initialized().await?)
    }
}

/// Only a quorum repair leaps to a term as late as `TERM_LEAP`. After a call of such a term, this member votes for no log without that
/// repair. Members that the repair gave up may receive the term, and lose contact again before they have the repair.
fn heed_leap(elections: &Elections, vote: &Vote) {
    let heard = vote.leader_id.term;
    if heard < TERM_LEAP {
        return;
    }
    // The own term may already be as late, from a refusal that this member received.
    let leap = leap_from(engine::progress(&elections.engine.raft).last_log);
    let told = elections.campaigning.gate.committed();
    if heard >= leap && told.is_none_or(|told| told.term < leap) {
        let told = |gate: &ElectionGate| gate.told(OpId::new(leap, 0));
        elections
            .campaigning
            .change_gate(&elections.engine.raft, told);
    }
}

/// Returns a later term to report to a leader that the ring has replaced, or `None`. The ring has committed an entry of that term, so the
/// term had a leader. A quorum repair may have left the caller out. Without this check, members that return later could follow the caller
/// and form a quorum for its own term.
fn passed_over(elections: &Elections, vote: &Vote) -> Option<Vote> {
    let later = elections
        .campaigning
        .gate
        .passes_over(vote.leader_id.term)?;
    tracing::warn!(leader = %vote, committed = %later, "a leader is not followed: the ring has gone on without it");
    Some(Vote::new(later.term, NO_MEMBER))
}

/// The answer to a question that only a serving leader can answer, from any other member.
fn not_serving() -> CallError {
    CallError::new("this member does not serve as the leader")
}

/// Why a log did not begin with a file of another member's log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InstallRefusal {
    /// The file start after this entry cannot belong to the ring's log; the text is the reason.
    #[error("this log cannot begin behind {0}: {1}")]
    Unfit(OpId, String),
    /// The consensus engine has stopped, so it takes no new start of the log.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

// Detects a leader that names another entry where this member's log is committed. The log is committed up to its commit mark. It is also
// committed up to any membership that is followed by a later membership, which may be after the mark. Only one cause is possible: an
// operator repaired a lost quorum without this member. The engine would silently keep both entries, because it never compares committed
// entries. So the member stops and reports the contradiction. After a restart, it truncates its log (`rejoin` in the crate `ring-admin`).

/// Returns the entries up to index `up_to` that a request names.
fn named(request: &AppendEntriesRequest<TypeConfig>, up_to: u64) -> Vec<OpId> {
    let previous = request.prev_log_id.into_iter();
    let entries = request.entries.iter().map(|entry| entry.log_id);
    let op_ids = previous.chain(entries).map(OpId::from);
    op_ids.take_while(|op_id| op_id.index <= up_to).collect()
}

/// Returns the first named entry that differs from this log's entry, as [`Fault::Contradicted`].
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

/// Checks that a leader's request agrees with the committed entries of this log; `role` is the current one. A request that continues at the
/// log's end costs nothing, and nearly every request does.
///
/// # Errors
/// [`Fault::Contradicted`]; the engine is stopped.
pub(crate) async fn refuse_divergence(
    engine: &EngineHandle,
    role: &RoleSnapshot,
    request: &AppendEntriesRequest<TypeConfig>,
) -> Result<(), Fault> {
    let mark = engine.mark.get().map(|committed| committed.index);
    // The membership before this one is committed, because another membership follows it.
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
        // A deposed leader may name any entries. The engine rejects its request.
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
    // If another reason is recorded already, that one stays.
    let _ = engine.failed.set(fault.clone());
    // The shutdown ends the engine's task, which `fault` reports.
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

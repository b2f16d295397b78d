//! A network inside one process: calls go straight from one member to the other, unless the line
//! between them is cut. A cut line does not refuse a call, it lets it run into its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use consensus::{Answer, CallError, Inbound, MemberCalls, Question};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, TypeConfig, Vote};

/// All lines between all members.
#[derive(Clone, Default)]
pub(crate) struct Switchboard(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    members: BTreeMap<MemberId, Inbound>,
    /// Directed: the first does not reach the second.
    cut: BTreeSet<(MemberId, MemberId)>,
    campaigns_asked: Vec<MemberId>,
}

impl Switchboard {
    /// The end of the lines at one member.
    pub(crate) fn port(&self, own: MemberId) -> Port {
        Port {
            board: self.clone(),
            own,
        }
    }

    /// Connects a member.
    pub(crate) fn connect(&self, id: MemberId, inbound: Inbound) {
        self.lines().members.insert(id, inbound);
    }

    /// Takes a member away, as a crash does.
    pub(crate) fn disconnect(&self, id: MemberId) {
        self.lines().members.remove(&id);
    }

    /// Cuts both directions between a member and all others.
    pub(crate) fn isolate(&self, id: MemberId, others: impl IntoIterator<Item = MemberId>) {
        for other in others.into_iter().filter(|other| *other != id) {
            self.lines().cut.extend([(id, other), (other, id)]);
        }
    }

    /// Mends all lines.
    pub(crate) fn heal(&self) {
        self.lines().cut.clear();
    }

    /// Whom members asked to campaign.
    pub(crate) fn campaigns_asked(&self) -> Vec<MemberId> {
        self.lines().campaigns_asked.clone()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap()
    }
}

/// One member's end.
#[derive(Clone)]
pub(crate) struct Port {
    board: Switchboard,
    own: MemberId,
}

impl Port {
    fn line(&self, target: MemberId) -> Line {
        Line {
            board: self.board.clone(),
            from: self.own,
            to: target,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Port {
    type Network = Line;

    async fn new_client(&mut self, target: MemberId, _: &MemberRecord) -> Line {
        self.line(target)
    }
}

impl MemberCalls for Port {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        _: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        async move {
            if let Question::Campaign { .. } = question {
                self.board.lines().campaigns_asked.push(to);
            }
            let line = self.line(to);
            let reached = line.reach(deadline).await;
            let inbound = reached.map_err(|error| CallError(error.to_string()))?;
            let answer = inbound.answer(self.own, question).await?;
            let back = line.back(answer, deadline).await;
            back.map_err(|error| CallError(error.to_string()))
        }
        .boxed()
    }
}

/// A line to one member.
pub(crate) struct Line {
    board: Switchboard,
    from: MemberId,
    to: MemberId,
}

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

impl Line {
    /// The other end, or the deadline.
    async fn reach(&self, deadline: Duration) -> RpcResult<Inbound> {
        let inbound = {
            let lines = self.board.lines();
            let open = !lines.cut.contains(&(self.from, self.to));
            open.then(|| lines.members.get(&self.to).cloned())
        };
        match inbound {
            Some(Some(inbound)) => Ok(inbound),
            Some(None) => Err(unreachable("the member is down")),
            None => {
                tokio::time::sleep(deadline).await;
                Err(unreachable("the line is cut"))
            }
        }
    }

    /// Brings an answer back, or the deadline.
    async fn back<T>(&self, answer: T, deadline: Duration) -> RpcResult<T> {
        if self.board.lines().cut.contains(&(self.to, self.from)) {
            tokio::time::sleep(deadline).await;
            return Err(unreachable("the line back is cut"));
        }
        Ok(answer)
    }
}

fn unreachable(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

impl RaftNetworkV2<TypeConfig> for Line {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound.heartbeat(rpc).await.map_err(unreachable)?;
        self.back(answer.into(), option.hard_ttl()).await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let line = &*self;
        let deadline = option.hard_ttl();
        let answers = stream::unfold(Some(input), move |input| async move {
            let mut input = input?;
            let request = input.next().await?;
            let answer = line.append_one(request, deadline).await;
            let goes_on = matches!(answer, Ok(Ok(_)));
            Some((answer, goes_on.then_some(input)))
        });
        async move { Ok(answers.boxed()) }.boxed()
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound.vote(rpc).await.map_err(unreachable)?;
        self.back(answer, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound.pre_vote(rpc).await.map_err(unreachable)?;
        self.back(answer, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: SnapshotOf<TypeConfig, ()>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let reason = "entries that the member needs are purged";
        Err(StreamingError::Unreachable(Unreachable::from_string(
            reason,
        )))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound
            .transfer_leader(request)
            .await
            .map_err(unreachable)?;
        self.back(answer, option.hard_ttl()).await
    }
}

impl Line {
    async fn append_one(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let inbound = self.reach(deadline).await?;
        let heartbeat = request.entries.is_empty();
        let answer = if heartbeat {
            inbound.heartbeat(request).await
        } else {
            let mut answers = inbound.append(stream::iter([request]));
            answers
                .next()
                .await
                .ok_or_else(|| unreachable("no answer"))?
        };
        self.back(answer.map_err(unreachable)?, deadline).await
    }
}

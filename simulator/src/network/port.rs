//! The engine's network, sessions with proxies and the members' questions over the post: what one member sends, and how it
//! waits for answers.

use std::time::Duration;

use consensus::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};
use consensus::{Answer, CallError, MemberCalls, Question, Timers};
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use proxy::{LineBroken, ProxyAnswers, ProxyCalls, ProxyRequest};
use raft_types::{MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

use super::answers::{dead_after, exchange};
use super::called_proxy;
use super::desk::Desk;
use super::message::{Body, Call, Reply};
use super::reworded_memberships::reworded;
use super::ungiven_answers::counted_unseen;
use crate::mutation::Mutation;

/// One member's end of the network.
#[derive(Clone)]
pub(crate) struct Port {
    desk: Desk,
    dead_after: Duration,
    mutation: Option<Mutation>,
}

impl Port {
    pub(crate) fn new(desk: Desk, timers: &Timers, mutation: Option<Mutation>) -> Self {
        Self {
            desk,
            dead_after: dead_after(timers),
            mutation,
        }
    }

    fn line(&self, to: MemberId, lane: Lane) -> Line {
        Line {
            desk: self.desk.clone(),
            to,
            lane,
            dead_after: self.dead_after,
            mutation: self.mutation,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Port {
    type Network = Line;

    async fn new_client(&mut self, target: MemberId, _: &MemberRecord) -> Line {
        self.line(target, Lane::Entries)
    }

    async fn new_heartbeat_client(&mut self, target: MemberId, _: &MemberRecord) -> Line {
        self.line(target, Lane::Heartbeats)
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
            let line = self.line(to, Lane::Entries);
            match line.call(Call::Ask(question), deadline).await {
                Some(Reply::Ask(answer)) => answer,
                Some(Reply::Unreachable(why)) => Err(CallError(why)),
                _ => Err(CallError(format!("no answer within {deadline:?}"))),
            }
        }
        .boxed()
    }
}

impl ProxyCalls for Port {
    fn open(
        &self,
        proxy: MemberId,
        _: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let desk = self.desk.clone();
        let answers = called_proxy::call(desk, proxy, self.dead_after, onward, requests);
        future::ready(Ok(answers)).boxed()
    }
}

#[derive(Debug, Clone, Copy)]
enum Lane {
    Entries,
    Heartbeats,
}

/// Calls one member.
pub(crate) struct Line {
    desk: Desk,
    to: MemberId,
    lane: Lane,
    dead_after: Duration,
    mutation: Option<Mutation>,
}

impl Line {
    /// Makes a call and waits for its answer until the deadline.
    async fn call(&self, call: Call, deadline: Duration) -> Option<Reply> {
        let (id, reply) = self.desk.open_call();
        self.desk.send(self.to, Body::Call(id, call));
        let reply = tokio::time::timeout(deadline, reply).await;
        self.desk.close_call(id);
        reply.ok()?.ok()
    }

    /// The same for the engine, which tells errors apart.
    async fn rpc<T>(
        &self,
        action: RPCTypes,
        call: Call,
        deadline: Duration,
        expected: impl FnOnce(Reply) -> Option<T>,
    ) -> RpcResult<T> {
        let timeout = || {
            RPCError::Timeout(Timeout {
                action,
                id: self.desk.own,
                target: self.to,
                timeout: deadline,
            })
        };
        match self.call(call, deadline).await {
            None => Err(timeout()),
            Some(Reply::Unreachable(why)) => Err(unreachable(why)),
            Some(reply) => expected(reply).ok_or_else(timeout),
        }
    }

    async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let call = Call::Heartbeat(request);
        self.rpc(
            RPCTypes::AppendEntries,
            call,
            deadline,
            |reply| match reply {
                Reply::Heartbeat(answer) => Some(answer),
                _ => None,
            },
        )
        .await
    }

    async fn ask_vote(
        &self,
        call: Call,
        deadline: Duration,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.rpc(RPCTypes::Vote, call, deadline, |reply| match reply {
            Reply::Vote(response) => Some(response),
            _ => None,
        })
        .await
    }
}

impl RaftNetworkV2<TypeConfig> for Line {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let answer = self.heartbeat(request, option.hard_ttl()).await?;
        Ok(answer.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        self.stream_without_reports(requests, option)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.ask_vote(Call::Vote(request), option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.ask_vote(Call::PreVote(request), option.hard_ttl())
            .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let Some(start) = snapshot.snapshot else {
            let why = "no file of this log is there with which the member's log could begin";
            return Err(unreachable(why).into());
        };
        let call = Call::Begin(vote, start);
        let deadline = option.hard_ttl();
        let answer = self.rpc(
            RPCTypes::InstallSnapshot,
            call,
            deadline,
            |reply| match reply {
                Reply::Begin(response) => Some(response),
                _ => None,
            },
        );
        Ok(answer.await?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let call = Call::Transfer(request);
        let deadline = option.hard_ttl();
        self.rpc(
            RPCTypes::TransferLeader,
            call,
            deadline,
            |reply| match reply {
                Reply::Transfer(response) => Some(response),
                _ => None,
            },
        )
        .await
    }
}

impl ReportingNetwork for Line {
    fn stream_reported<'s, S>(
        &'s mut self,
        mut requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        async move {
            // The engine's pause before another attempt is inside of its stream of requests.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            match self.lane {
                Lane::Entries => {
                    let requests = stream::iter([first]).chain(requests);
                    let desk = self.desk.clone();
                    match self.mutation {
                        Some(Mutation::CommitOnAMinority) => {
                            Ok(counted_unseen(desk, self.to, self.dead_after, requests))
                        }
                        Some(Mutation::RewordMemberships) => {
                            let requests = requests.map(reworded);
                            Ok(exchange(desk, self.to, self.dead_after, requests))
                        }
                        _ => Ok(exchange(desk, self.to, self.dead_after, requests)),
                    }
                }
                Lane::Heartbeats => {
                    let result = self.heartbeat(first.request, option.hard_ttl()).await;
                    let answered = result.map(|result| Answered {
                        result,
                        report: None,
                    });
                    Ok(stream::iter([answered]).boxed())
                }
            }
        }
        .boxed()
    }
}

fn unreachable(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

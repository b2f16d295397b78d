//! The engine's network for tests and benches: each message between members becomes a [`Call`] or a stream of requests. A [`Carrier`]
//! delivers it with its own delay and faults. This module holds everything else that openraft and the members need of a network.

use std::time::Duration;

use consensus::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};
use consensus::{Answer, CallError, Inbound, Knock, MemberCalls, Question};
use futures::future::BoxFuture;
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
use raft_types::{FileStart, MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

/// Caller and callee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The caller.
    pub from: MemberId,
    /// The callee.
    pub to: MemberId,
}

impl Link {
    /// The direction of the answers.
    #[must_use]
    pub fn back(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

/// A call with one answer.
#[derive(Clone)]
pub enum Call {
    /// Requests a vote.
    Vote(VoteRequest<TypeConfig>),
    /// Requests a pre-vote.
    PreVote(VoteRequest<TypeConfig>),
    /// A leader's request without entries.
    Heartbeat(AppendEntriesRequest<TypeConfig>),
    /// Announces a leadership transfer.
    Transfer(TransferLeaderRequest<TypeConfig>),
    /// The entries that the member needs are purged: its log must begin with this file.
    Begin(Vote, FileStart),
    /// A request between members, which the engine does not know.
    Ask(Question),
    /// A new connection without a message.
    Knock,
}

impl Call {
    fn action(&self) -> RPCTypes {
        match self {
            Self::Vote(_) | Self::PreVote(_) => RPCTypes::Vote,
            Self::Begin(..) => RPCTypes::InstallSnapshot,
            Self::Transfer(_) => RPCTypes::TransferLeader,
            Self::Heartbeat(_) | Self::Ask(_) | Self::Knock => RPCTypes::AppendEntries,
        }
    }
}

/// The answer to a call.
#[derive(Clone)]
pub enum Reply {
    /// To both kinds of requests for a vote.
    Vote(VoteResponse<TypeConfig>),
    /// To a heartbeat.
    Heartbeat(StreamAppendResult<TypeConfig>),
    /// To a transfer of the leadership.
    Transfer(TransferLeaderResponse<TypeConfig>),
    /// To the file with which the log must begin.
    Begin(SnapshotResponse<TypeConfig>),
    /// To a request between members.
    Ask(Result<Answer, CallError>),
    /// To a new connection: accepted.
    Answers,
    /// To a new connection: refused, since no process listens there.
    Refused,
    /// The member is unreachable: it does not listen, or its engine has stopped.
    Unreachable(String),
}

/// Delivers messages between members. Clones are the same carrier.
pub trait Carrier: Clone + Send + Sync + 'static {
    /// Makes a call and waits for its answer; `None` when none came in time.
    fn call(
        &self,
        link: Link,
        call: Call,
        deadline: Duration,
    ) -> impl Future<Output = Option<Reply>> + Send;

    /// Opens a stream of requests with this first one. Answers come in the order of the requests.
    fn stream(
        &self,
        link: Link,
        requests: BoxStream<'static, Asked>,
        deadline: Duration,
    ) -> impl Future<Output = RpcResult<BoxStream<'static, RpcResult<Answered>>>> + Send;
}

/// Delivers a call to a member.
pub async fn receive(inbound: &Inbound, caller: MemberId, call: Call) -> Reply {
    fn reply<T>(answer: Result<T, impl ToString>, as_reply: fn(T) -> Reply) -> Reply {
        answer.map_or_else(|error| Reply::Unreachable(error.to_string()), as_reply)
    }
    match call {
        Call::Vote(request) => reply(inbound.vote(request).await, Reply::Vote),
        Call::PreVote(request) => reply(inbound.pre_vote(request).await, Reply::Vote),
        Call::Heartbeat(request) => {
            inbound.leads(caller);
            reply(inbound.heartbeat(request).await, Reply::Heartbeat)
        }
        Call::Transfer(request) => reply(inbound.transfer_leader(request).await, Reply::Transfer),
        Call::Begin(vote, start) => reply(inbound.install(vote, start).await, Reply::Begin),
        Call::Ask(question) => Reply::Ask(inbound.answer(caller, question).await),
        Call::Knock => Reply::Answers,
    }
}

/// The engine's error for an unreachable member.
pub fn unreachable(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

/// One member's end of a network.
#[derive(Clone)]
pub struct Port<C> {
    own: MemberId,
    carrier: C,
}

impl<C: Carrier> Port<C> {
    /// The end at the member `own`.
    pub fn new(own: MemberId, carrier: C) -> Self {
        Self { own, carrier }
    }

    fn line(&self, to: MemberId, lane: Lane) -> Line<C> {
        Line {
            link: Link { from: self.own, to },
            lane,
            carrier: self.carrier.clone(),
        }
    }
}

impl<C: Carrier> RaftNetworkFactory<TypeConfig> for Port<C> {
    type Network = Line<C>;

    async fn new_client(&mut self, target: MemberId, _: &MemberRecord) -> Line<C> {
        self.line(target, Lane::Entries)
    }

    async fn new_heartbeat_client(&mut self, target: MemberId, _: &MemberRecord) -> Line<C> {
        self.line(target, Lane::Heartbeats)
    }
}

impl<C: Carrier> MemberCalls for Port<C> {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        _: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        let link = Link { from: self.own, to };
        async move {
            let call = self.carrier.call(link, Call::Ask(question), deadline);
            match call.await {
                Some(Reply::Ask(answer)) => answer,
                Some(Reply::Unreachable(why)) => Err(CallError(why)),
                _ => Err(CallError(format!("no answer within {deadline:?}"))),
            }
        }
        .boxed()
    }

    fn knock<'a>(
        &'a self,
        at: MemberId,
        _: &'a MemberRecord,
        deadline: Duration,
    ) -> BoxFuture<'a, Knock> {
        let link = Link {
            from: self.own,
            to: at,
        };
        async move {
            match self.carrier.call(link, Call::Knock, deadline).await {
                Some(Reply::Answers) => Knock::Answers,
                Some(Reply::Refused) => Knock::Refused,
                _ => Knock::Silent,
            }
        }
        .boxed()
    }
}

#[derive(Debug, Clone, Copy)]
enum Lane {
    Entries,
    Heartbeats,
}

/// Calls one member, for the engine.
pub struct Line<C> {
    link: Link,
    lane: Lane,
    carrier: C,
}

impl<C: Carrier> Line<C> {
    async fn call<T>(
        &self,
        call: Call,
        deadline: Duration,
        expected: impl FnOnce(Reply) -> Option<T> + Send,
    ) -> RpcResult<T> {
        let no_answer = Timeout {
            action: call.action(),
            id: self.link.from,
            target: self.link.to,
            timeout: deadline,
        };
        match self.carrier.call(self.link, call, deadline).await {
            Some(Reply::Unreachable(why)) => Err(unreachable(why)),
            reply => reply.and_then(expected).ok_or(no_answer.into()),
        }
    }

    async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        option: &RPCOption,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let call = self.call(
            Call::Heartbeat(request),
            option.hard_ttl(),
            |reply| match reply {
                Reply::Heartbeat(answer) => Some(answer),
                _ => None,
            },
        );
        call.await
    }

    async fn ask_vote(&self, call: Call, option: RPCOption) -> RpcResult<VoteResponse<TypeConfig>> {
        let call = self.call(call, option.hard_ttl(), |reply| match reply {
            Reply::Vote(response) => Some(response),
            _ => None,
        });
        call.await
    }
}

impl<C: Carrier> RaftNetworkV2<TypeConfig> for Line<C> {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        Ok(self.heartbeat(request, &option).await?.into())
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
        self.ask_vote(Call::Vote(request), option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.ask_vote(Call::PreVote(request), option).await
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
        let call = self.call(
            Call::Begin(vote, start),
            option.hard_ttl(),
            |reply| match reply {
                Reply::Begin(response) => Some(response),
                _ => None,
            },
        );
        Ok(call.await?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let call = self.call(
            Call::Transfer(request),
            option.hard_ttl(),
            |reply| match reply {
                Reply::Transfer(response) => Some(response),
                _ => None,
            },
        );
        call.await
    }
}

impl<C: Carrier> ReportingNetwork for Line<C> {
    fn stream_reported<'s, S>(
        &'s mut self,
        mut requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        async move {
            // The engine pauses before another attempt inside its stream of requests.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            match self.lane {
                Lane::Entries => {
                    let requests = stream::iter([first]).chain(requests).boxed();
                    self.carrier
                        .stream(self.link, requests, option.hard_ttl())
                        .await
                }
                Lane::Heartbeats => {
                    let answer = async move {
                        let result = self.heartbeat(first.request, &option).await?;
                        let report = None;
                        Ok(Answered { result, report })
                    };
                    Ok(stream::once(answer).boxed())
                }
            }
        }
        .boxed()
    }
}

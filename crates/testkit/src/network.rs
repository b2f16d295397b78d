//! The Raft engine's network for tests and benches. Each message between members is a [`Call`] or a stream of requests, and a
//! [`Carrier`] delivers it with its own delay and faults. This module contains everything else that openraft and the members need
//! from a network.

use std::time::Duration;

use consensus::log_probe::{
    AnswerStream, Answered, Asked, Lane, MemberClient, MemberNetwork, RpcResult,
};
use consensus::{Answer, CallError, Inbound, Knock, MemberCalls, Question, log_probe};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use openraft::errors::{RPCError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{FileStart, MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

/// The caller and the callee of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The caller.
    pub from: MemberId,
    /// The callee.
    pub to: MemberId,
}

impl Link {
    /// Returns the link in the direction of the answers.
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
    /// A request between members that is not part of the engine's protocol.
    Ask(Question),
    /// Opens a connection and sends no message, to check whether the member's process exists.
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
    /// Answers a request for a vote or a pre-vote.
    Vote(VoteResponse<TypeConfig>),
    /// Answers a heartbeat.
    Heartbeat(StreamAppendResult<TypeConfig>),
    /// Answers a leadership transfer.
    Transfer(TransferLeaderResponse<TypeConfig>),
    /// Answers the file with which the log must begin.
    Begin(SnapshotResponse<TypeConfig>),
    /// Answers a request between members.
    Ask(Result<Answer, CallError>),
    /// The new connection was accepted.
    Answers,
    /// The new connection was refused: no process listens on the port.
    Refused,
    /// The member is unreachable: it does not listen, or its engine has stopped.
    Unreachable(String),
}

/// Delivers messages between members. Clones share one carrier.
pub trait Carrier: Clone + Send + Sync + 'static {
    /// Makes a call and waits for its answer; `None` if no answer arrived in time.
    fn call(
        &self,
        link: Link,
        call: Call,
        deadline: Duration,
    ) -> impl Future<Output = Option<Reply>> + Send;

    /// Opens a stream of requests, beginning with this one. Answers arrive in the order of the requests.
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

/// Returns the engine's error for an unreachable member.
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
    /// Creates the end of the network at the member `own`.
    pub fn new(own: MemberId, carrier: C) -> Self {
        Self { own, carrier }
    }
}

impl<C: Carrier> MemberNetwork for Port<C> {
    fn client(&self, lane: Lane, to: MemberId, _: &MemberRecord) -> Box<dyn MemberClient> {
        Box::new(Line {
            link: Link { from: self.own, to },
            lane,
            carrier: self.carrier.clone(),
        })
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

/// Calls one member, for the engine.
struct Line<C> {
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
}

impl<C: Carrier> MemberClient for Line<C> {
    fn stream(
        &mut self,
        mut requests: BoxStream<'static, Asked>,
        option: RPCOption,
    ) -> log_probe::Call<'_, AnswerStream<'_>> {
        async move {
            // The first request is awaited before the stream is opened, since the engine pauses between attempts within its stream of
            // requests.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            if self.lane == Lane::Entries {
                let requests = stream::iter([first]).chain(requests).boxed();
                let answers = self.carrier.stream(self.link, requests, option.hard_ttl());
                return answers.await;
            }
            let answer = async move {
                let result = self.heartbeat(first.request, &option).await?;
                let report = None;
                Ok(Answered { result, report })
            };
            Ok(stream::once(answer).boxed())
        }
        .boxed()
    }

    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        is_pre_vote: bool,
        option: RPCOption,
    ) -> log_probe::Call<'_, VoteResponse<TypeConfig>> {
        let call = match is_pre_vote {
            true => Call::PreVote(request),
            false => Call::Vote(request),
        };
        let expected = |reply| match reply {
            Reply::Vote(response) => Some(response),
            _ => None,
        };
        self.call(call, option.hard_ttl(), expected).boxed()
    }

    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> log_probe::Call<'_, TransferLeaderResponse<TypeConfig>> {
        let expected = |reply| match reply {
            Reply::Transfer(response) => Some(response),
            _ => None,
        };
        let call = Call::Transfer(request);
        self.call(call, option.hard_ttl(), expected).boxed()
    }

    fn begin(
        &mut self,
        vote: Vote,
        start: OfferedStart,
        option: RPCOption,
    ) -> log_probe::Call<'_, SnapshotResponse<TypeConfig>> {
        let Some(start) = start else {
            let why = "no file of this log is there with which the member's log could begin";
            return async move { Err(unreachable(why)) }.boxed();
        };
        let expected = |reply| match reply {
            Reply::Begin(response) => Some(response),
            _ => None,
        };
        let call = Call::Begin(vote, start);
        self.call(call, option.hard_ttl(), expected).boxed()
    }
}

//! The outgoing traffic of a member's process: sends calls, request streams and proxy sessions through the queue, and waits for their
//! answers.

use std::time::Duration;

use consensus::Timers;
use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::future::{self, BoxFuture};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use proxy::{LineBroken, ProxyAnswers, ProxyCalls, ProxyRequest};
use raft_types::{MemberId, MemberRecord};
use testkit::network::{Call, Carrier, Link, Port, Reply};

use super::answers::{dead_after, exchange};
use super::called_proxy;
use super::message::Body;
use super::pending_calls::PendingCalls;
use super::premature_answers::counted_unseen;
use super::reworded_memberships::reworded;
use crate::mutation::Mutation;

/// The outgoing traffic of a process.
#[derive(Clone)]
pub(crate) struct Outbound {
    pending: PendingCalls,
    dead_after: Duration,
    mutation: Option<Mutation>,
}

impl Outbound {
    pub(crate) fn new(pending: PendingCalls, timers: &Timers, mutation: Option<Mutation>) -> Self {
        Self {
            pending,
            dead_after: dead_after(timers),
            mutation,
        }
    }

    /// Returns the port through which openraft and the member send requests.
    pub(crate) fn port(&self) -> Port<Self> {
        Port::new(self.pending.own, self.clone())
    }
}

impl Carrier for Outbound {
    async fn call(&self, link: Link, call: Call, deadline: Duration) -> Option<Reply> {
        let (id, reply) = self.pending.open_call();
        self.pending.send(link.to, Body::Call(id, call));
        let reply = tokio::time::timeout(deadline, reply).await;
        self.pending.close_call(id);
        reply.ok()?.ok()
    }

    async fn stream(
        &self,
        link: Link,
        requests: BoxStream<'static, Asked>,
        _: Duration,
    ) -> RpcResult<BoxStream<'static, RpcResult<Answered>>> {
        let pending = self.pending.clone();
        Ok(match self.mutation {
            Some(Mutation::CommitOnAMinority) => {
                counted_unseen(pending, link.to, self.dead_after, requests)
            }
            Some(Mutation::RewordMemberships) => {
                let requests = requests.map(reworded);
                exchange(pending, link.to, self.dead_after, requests)
            }
            _ => exchange(pending, link.to, self.dead_after, requests),
        })
    }
}

impl ProxyCalls for Outbound {
    fn open(
        &self,
        proxy: MemberId,
        _: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let pending = self.pending.clone();
        let answers = called_proxy::call(pending, proxy, self.dead_after, onward, requests);
        future::ready(Ok(answers)).boxed()
    }
}

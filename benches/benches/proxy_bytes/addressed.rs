//! The transport of one member, which calls every other one over the link of the two.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Answer, CallError, MemberCalls, Question};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use openraft::network::RaftNetworkFactory;
use proxy::{LineBroken, ProxyAnswers, ProxyCalls, ProxyRequest};
use raft_types::{MemberId, MemberRecord, TypeConfig};
use transport::{GrpcNetworkFactory, PeerClient};

use super::links::Lane;

/// Where a member's links to the others begin.
pub(crate) type Doors = BTreeMap<(MemberId, Lane), SocketAddr>;

/// See the module. A proxy is called over a link of its own, so that what is said to it for others is counted by itself; else
/// it would share a connection with what it gets for itself. That costs a proxied destination the signs of life of one
/// connection more than it has to.
#[derive(Clone)]
pub(crate) struct Addressed {
    own: GrpcNetworkFactory,
    proxied: GrpcNetworkFactory,
    doors: Arc<Doors>,
}

impl Addressed {
    /// Both factories are this member's.
    pub(crate) fn new(own: GrpcNetworkFactory, proxied: GrpcNetworkFactory, doors: Doors) -> Self {
        Self {
            own,
            proxied,
            doors: Arc::new(doors),
        }
    }

    /// The record as this member has to use it.
    fn over(&self, to: MemberId, lane: Lane, record: &MemberRecord) -> MemberRecord {
        let door = self.doors.get(&(to, lane));
        MemberRecord {
            address: door.map_or_else(|| record.address.clone(), SocketAddr::to_string),
            ..record.clone()
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Addressed {
    type Network = PeerClient;

    async fn new_client(&mut self, target: MemberId, record: &MemberRecord) -> PeerClient {
        let record = self.over(target, Lane::Own, record);
        self.own.new_client(target, &record).await
    }

    async fn new_heartbeat_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> PeerClient {
        let record = self.over(target, Lane::Own, record);
        self.own.new_heartbeat_client(target, &record).await
    }
}

impl MemberCalls for Addressed {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        record: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        async move {
            let record = self.over(to, Lane::Own, record);
            self.own.ask(to, &record, question, deadline).await
        }
        .boxed()
    }
}

impl ProxyCalls for Addressed {
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let record = self.over(proxy, Lane::Proxied, record);
        self.proxied.open(proxy, &record, onward, requests)
    }
}

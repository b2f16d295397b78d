//! Runs a member as a proxy for other members: the product's relay over this network.

use std::sync::Arc;

use futures::stream::BoxStream;
use proxy::{ProxyAnswer, ProxyRequest, ProxyService, Relay, RouteTable};
use raft_types::{MemberId, OwnLog};

use super::outbound::Outbound;
use super::term_blind_log::term_blind;
use crate::mutation::Mutation;

/// The proxy of a process.
#[derive(Clone)]
pub(crate) struct Relaying {
    pub(crate) own: MemberId,
    pub(crate) log: Arc<dyn OwnLog>,
    pub(crate) outbound: Outbound,
    pub(crate) routes: RouteTable,
    pub(crate) mutation: Option<Mutation>,
}

impl Relaying {
    /// Serves one session.
    pub(super) fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer> {
        let (log, requests) = match self.mutation {
            Some(Mutation::ProxyIgnoresTheTerm) => term_blind(self.log.clone(), requests),
            _ => (self.log.clone(), requests),
        };
        let relay = Relay::new(
            self.own,
            log,
            self.outbound.port(),
            self.outbound.clone(),
            self.routes.clone(),
        );
        relay.serve(onward, requests)
    }
}

//! The leader's end: a network in front of the real one that sends a member's entries over a proxy where there is one. What a
//! stream of the engine begins with, it ends with: another route means another stream, and what was not answered on the first
//! is sent again by the engine, so that there is one state of what a member has, whatever the route.

use std::sync::Arc;

use consensus::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{NetSnapshot, NetStreamAppend, RPCOption, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, SnapshotResponse, StreamAppendResult};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};
use tokio::time::Instant;

use crate::calls::ProxyCalls;
use crate::request::payload_bytes;
use crate::route_table::RouteTable;
use crate::routes::Route;
use crate::session::{Session, look_interval};

/// A factory of clients that send over proxies. Put it around the real factory.
#[derive(Clone)]
pub struct Proxying<F, C> {
    inner: F,
    calls: C,
    route_table: RouteTable,
}

impl<F, C> Proxying<F, C> {
    /// In front of `inner`; proxies are called over `calls`.
    pub fn new(inner: F, calls: C, route_table: RouteTable) -> Self {
        Self {
            inner,
            calls,
            route_table,
        }
    }
}

impl<F, C> RaftNetworkFactory<TypeConfig> for Proxying<F, C>
where
    F: RaftNetworkFactory<TypeConfig, Network: ReportingNetwork>,
    C: ProxyCalls,
{
    type Network = ProxyingClient<F::Network, C>;

    async fn new_client(&mut self, target: MemberId, record: &MemberRecord) -> Self::Network {
        self.route_table.begin(target, record);
        let inner = self.inner.new_client(target, record).await;
        self.client(inner, target, Lane::Entries)
    }

    /// Heartbeats, like votes, are never proxied.
    async fn new_heartbeat_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        let inner = self.inner.new_heartbeat_client(target, record).await;
        self.client(inner, target, Lane::Heartbeats)
    }

    async fn new_snapshot_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        let inner = self.inner.new_snapshot_client(target, record).await;
        self.client(inner, target, Lane::Heartbeats)
    }
}

impl<F, C: ProxyCalls> Proxying<F, C> {
    fn client<N>(&self, inner: N, target: MemberId, lane: Lane) -> ProxyingClient<N, C> {
        ProxyingClient {
            inner,
            calls: self.calls.clone(),
            route_table: self.route_table.clone(),
            target,
            lane,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Entries,
    Heartbeats,
}

/// A client of [`Proxying`].
pub struct ProxyingClient<N, C> {
    inner: N,
    calls: C,
    route_table: RouteTable,
    target: MemberId,
    lane: Lane,
}

impl<N: ReportingNetwork, C: ProxyCalls> ReportingNetwork for ProxyingClient<N, C> {
    fn stream_reported<'s, S>(
        &'s mut self,
        mut requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        let (route_table, target) = (self.route_table.clone(), self.target);
        if self.lane == Lane::Heartbeats {
            let answers = self.inner.stream_reported(requests, option);
            return async move {
                let heard = move |answer: &RpcResult<Answered>| {
                    if answer
                        .as_ref()
                        .is_ok_and(|answered| answered.result.is_ok())
                    {
                        route_table.heard(target, Instant::now());
                    }
                };
                Ok(answers.await?.inspect(heard).boxed())
            }
            .boxed();
        }
        async move {
            // The engine's pause before another attempt is inside of its stream of requests.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            let route = route_table.route(target, Instant::now());
            let requests = stream::iter([first])
                .chain(while_on(
                    route.clone(),
                    route_table.clone(),
                    target,
                    requests,
                ))
                .boxed();
            match &*route {
                Route::Direct(_) => {
                    let counting = route_table.clone();
                    let requests = requests.inspect(move |asked| {
                        let entries = &asked.request.entries;
                        let bytes = payload_bytes(entries);
                        counting.traffic().direct(target, entries.len(), bytes);
                    });
                    let answers = self.inner.stream_reported(requests, option).await?;
                    let noted = move |answer: &RpcResult<Answered>| {
                        if let Ok(answered) = answer {
                            route_table.answered(target, answered, Instant::now());
                        }
                    };
                    Ok(answers.inspect(noted).boxed())
                }
                Route::Through(proxies) => {
                    let session =
                        Session::open(&self.calls, route_table, proxies, target, requests);
                    Ok(session.into_answers())
                }
            }
        }
        .boxed()
    }
}

/// The requests for as long as they are to take this route.
fn while_on<S>(
    route: Arc<Route>,
    route_table: RouteTable,
    target: MemberId,
    requests: S,
) -> impl Stream<Item = Asked> + Send + 'static
where
    S: Stream<Item = Asked> + Send + Unpin + 'static,
{
    let looks = look_interval(&route_table);
    let state = (requests, route_table.happenings(), looks);
    stream::unfold(state, move |(mut requests, mut happenings, mut looks)| {
        let (route_table, route) = (route_table.clone(), route.clone());
        async move {
            // A stream that waits is left, too: its next request would go where it must not go any more.
            loop {
                if route_table.route(target, Instant::now()).proxies() != route.proxies() {
                    return None;
                }
                tokio::select! {
                    biased;
                    asked = requests.next() => {
                        return asked.map(|asked| (asked, (requests, happenings, looks)));
                    }
                    _ = happenings.changed() => {}
                    _ = looks.tick(), if route_table.chooses() => {}
                }
            }
        }
    })
}

impl<N: ReportingNetwork, C: ProxyCalls> NetStreamAppend<TypeConfig> for ProxyingClient<N, C> {
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
}

consensus::passes_on_votes!([N: ReportingNetwork, C: ProxyCalls] ProxyingClient<N, C>);

impl<N: ReportingNetwork, C: ProxyCalls> NetSnapshot<TypeConfig> for ProxyingClient<N, C> {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, OfferedStart>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        self.inner
            .full_snapshot(vote, snapshot, cancel, option)
            .await
    }
}

//! The network that knows no proxies: it carries requests to the members' logs and notes who sent what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest,
    VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, OwnLog, TypeConfig, Vote};

use super::log::Log;

/// What a call takes.
const LATENCY: Duration = Duration::from_millis(1);

/// A request that arrived at a member, and who sent it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) from: MemberId,
    pub(crate) asked: Asked,
}

impl Received {
    pub(crate) fn indexes(&self) -> Vec<u64> {
        let entries = self.asked.request.entries.iter();
        entries.map(|entry| entry.log_id.index).collect()
    }
}

/// All members' logs. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Members(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    logs: BTreeMap<MemberId, Log>,
    received: BTreeMap<MemberId, Vec<Received>>,
    unreachable: BTreeSet<(MemberId, MemberId)>,
    deaf: BTreeSet<MemberId>,
}

impl Members {
    pub(crate) fn log(&self, id: MemberId) -> Log {
        self.state().logs.entry(id).or_default().clone()
    }

    /// The requests that arrived there since the last look.
    pub(crate) fn received(&self, id: MemberId) -> Vec<Received> {
        let mut state = self.state();
        std::mem::take(state.received.entry(id).or_default())
    }

    /// Calls from the one to the other fail.
    pub(crate) fn cut(&self, from: MemberId, to: MemberId) {
        self.state().unreachable.insert((from, to));
    }

    /// This member answers nothing any more.
    pub(crate) fn deafen(&self, id: MemberId) {
        self.state().deaf.insert(id);
    }

    pub(crate) fn seen_from(&self, from: MemberId) -> Direct {
        Direct {
            from,
            members: self.clone(),
        }
    }

    async fn deliver(&self, from: MemberId, to: MemberId, asked: Asked) -> RpcResult<Answered> {
        tokio::time::sleep(LATENCY).await;
        let reached = {
            let mut state = self.state();
            match state.unreachable.contains(&(from, to)) {
                true => Err(RPCError::Network(NetworkError::from_string("it is cut"))),
                false => {
                    let received = state.received.entry(to).or_default();
                    let asked = asked.clone();
                    received.push(Received { from, asked });
                    Ok(!state.deaf.contains(&to))
                }
            }
        };
        if !reached? {
            std::future::pending::<()>().await;
        }
        let log = self.log(to);
        let result = log.append(&asked.request);
        let report = asked.wants_report.then(|| log.report());
        Ok(Answered { result, report })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// The network of one member.
#[derive(Clone)]
pub(crate) struct Direct {
    from: MemberId,
    members: Members,
}

/// A client of [`Direct`].
pub(crate) struct DirectClient {
    network: Direct,
    to: MemberId,
}

impl RaftNetworkFactory<TypeConfig> for Direct {
    type Network = DirectClient;

    async fn new_client(&mut self, to: MemberId, _: &MemberRecord) -> DirectClient {
        DirectClient {
            network: self.clone(),
            to,
        }
    }
}

impl ReportingNetwork for DirectClient {
    fn stream_reported<'s, S>(
        &'s mut self,
        requests: S,
        _: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        let Direct { from, members } = &self.network;
        let to = self.to;
        let answers = requests.then(move |asked| members.deliver(*from, to, asked));
        async move { Ok(answers.boxed()) }.boxed()
    }
}

impl RaftNetworkV2<TypeConfig> for DirectClient {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        unreachable!("all requests are streamed")
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
        _: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        unreachable!("nobody votes here")
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        unreachable!("nobody begins anew here")
    }
}

//! Any network over which a member is started, as one type, for the reason of [`super::any_log`].

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

use crate::log_probe::RpcResult;

type Call<'a, T> = BoxFuture<'a, RpcResult<T>>;
type Requests = BoxStream<'static, AppendEntriesRequest<TypeConfig>>;
type Answers<'a> = BoxStream<'a, RpcResult<StreamAppendResult<TypeConfig>>>;
type Start = SnapshotOf<TypeConfig, OfferedStart>;
type StartAnswer = Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>>;

/// The factory of the clients.
pub(crate) struct AnyNetwork(Box<dyn DynNetwork>);

impl AnyNetwork {
    pub(crate) fn new<N>(network: N) -> Self
    where
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
    {
        Self(Box::new(network))
    }
}

/// The engine's purpose of a client.
#[derive(Clone, Copy)]
enum Purpose {
    Entries,
    Heartbeats,
    Starts,
}

/// [`RaftNetworkFactory`] with boxed clients.
trait DynNetwork: Send + Sync {
    fn client<'a>(
        &'a mut self,
        purpose: Purpose,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, AnyClient>;
}

impl<N> DynNetwork for N
where
    N: RaftNetworkFactory<TypeConfig>,
    N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
{
    fn client<'a>(
        &'a mut self,
        purpose: Purpose,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, AnyClient> {
        let client = async move {
            match purpose {
                Purpose::Entries => self.new_client(to, record).await,
                Purpose::Heartbeats => self.new_heartbeat_client(to, record).await,
                Purpose::Starts => self.new_snapshot_client(to, record).await,
            }
        };
        let boxed = |client| AnyClient {
            inner: Box::new(client),
        };
        client.map(boxed).boxed()
    }
}

impl RaftNetworkFactory<TypeConfig> for AnyNetwork {
    type Network = AnyClient;

    async fn new_client(&mut self, to: MemberId, record: &MemberRecord) -> AnyClient {
        self.0.client(Purpose::Entries, to, record).await
    }

    async fn new_heartbeat_client(&mut self, to: MemberId, record: &MemberRecord) -> AnyClient {
        self.0.client(Purpose::Heartbeats, to, record).await
    }

    async fn new_snapshot_client(&mut self, to: MemberId, record: &MemberRecord) -> AnyClient {
        self.0.client(Purpose::Starts, to, record).await
    }
}

/// A client of [`AnyNetwork`].
pub(crate) struct AnyClient {
    inner: Box<dyn DynClient>,
}

/// Openraft's client traits with boxed answers.
trait DynClient: Send + Sync {
    fn append(&mut self, requests: Requests, option: RPCOption) -> Call<'_, Answers<'_>>;
    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>>;
    fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>>;
    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>>;
    fn start(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: BoxFuture<'static, ReplicationClosed>,
        option: RPCOption,
    ) -> BoxFuture<'_, StartAnswer>;
    fn backoff(&self) -> Option<Backoff>;
}

impl<C> DynClient for C
where
    C: NetBackoff<TypeConfig>
        + NetStreamAppend<TypeConfig>
        + NetVote<TypeConfig>
        + NetSnapshot<TypeConfig, SnapshotData = OfferedStart>
        + NetTransferLeader<TypeConfig>,
{
    fn append(&mut self, requests: Requests, option: RPCOption) -> Call<'_, Answers<'_>> {
        self.stream_append(requests, option)
    }

    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>> {
        NetVote::vote(self, request, option).boxed()
    }

    fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>> {
        NetVote::pre_vote(self, request, option).boxed()
    }

    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>> {
        NetTransferLeader::transfer_leader(self, request, option).boxed()
    }

    fn start(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: BoxFuture<'static, ReplicationClosed>,
        option: RPCOption,
    ) -> BoxFuture<'_, StartAnswer> {
        self.full_snapshot(vote, start, cancel, option).boxed()
    }

    fn backoff(&self) -> Option<Backoff> {
        NetBackoff::backoff(self)
    }
}

impl NetStreamAppend<TypeConfig> for AnyClient {
    fn stream_append<'s, S>(&'s mut self, requests: S, option: RPCOption) -> Call<'s, Answers<'s>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        self.inner.append(requests.boxed(), option)
    }
}

crate::passes_on_votes!([] AnyClient);

impl NetSnapshot<TypeConfig> for AnyClient {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> StartAnswer {
        self.inner.start(vote, start, cancel.boxed(), option).await
    }
}

//! Whatever network a member was started over, as one type, for the reason of [`super::any_log`].

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
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

pub(crate) type RpcResult<T> = Result<T, RPCError<TypeConfig>>;
type Call<'a, T> = BoxFuture<'a, RpcResult<T>>;
type Requests = BoxStream<'static, AppendEntriesRequest<TypeConfig>>;
type Answers<'a> = BoxStream<'a, RpcResult<StreamAppendResult<TypeConfig>>>;
type Start = SnapshotOf<TypeConfig, OfferedStart>;
type StartAnswer = Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>>;

/// What makes the clients, and one of these.
pub(crate) struct AnyNetwork(Box<dyn DynNetwork>);
pub(crate) struct AnyClient(Box<dyn DynClient>);

impl AnyNetwork {
    pub(crate) fn new<N>(network: N) -> Self
    where
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
    {
        Self(Box::new(network))
    }
}

/// [`RaftNetworkFactory`] with boxed clients.
trait DynNetwork: Send + Sync {
    fn client<'a>(&'a mut self, to: MemberId, record: &'a MemberRecord)
    -> BoxFuture<'a, AnyClient>;
    fn heartbeat_client<'a>(
        &'a mut self,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, AnyClient>;
    fn snapshot_client<'a>(
        &'a mut self,
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
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, AnyClient> {
        self.new_client(to, record).map(AnyClient::new).boxed()
    }

    fn heartbeat_client<'a>(
        &'a mut self,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, AnyClient> {
        let client = self.new_heartbeat_client(to, record);
        client.map(AnyClient::new).boxed()
    }

    fn snapshot_client<'a>(
        &'a mut self,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, AnyClient> {
        let client = self.new_snapshot_client(to, record);
        client.map(AnyClient::new).boxed()
    }
}

impl RaftNetworkFactory<TypeConfig> for AnyNetwork {
    type Network = AnyClient;

    async fn new_client(&mut self, to: MemberId, record: &MemberRecord) -> AnyClient {
        self.0.client(to, record).await
    }

    async fn new_heartbeat_client(&mut self, to: MemberId, record: &MemberRecord) -> AnyClient {
        self.0.heartbeat_client(to, record).await
    }

    async fn new_snapshot_client(&mut self, to: MemberId, record: &MemberRecord) -> AnyClient {
        self.0.snapshot_client(to, record).await
    }
}

impl AnyClient {
    fn new<C>(client: C) -> Self
    where
        C: NetBackoff<TypeConfig>
            + NetStreamAppend<TypeConfig>
            + NetVote<TypeConfig>
            + NetSnapshot<TypeConfig, SnapshotData = OfferedStart>
            + NetTransferLeader<TypeConfig>,
    {
        Self(Box::new(client))
    }
}

/// openraft's traits of a client with boxed answers.
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
    fn transfer(
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
    fn own_backoff(&self) -> Option<Backoff>;
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

    fn transfer(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>> {
        self.transfer_leader(request, option).boxed()
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

    fn own_backoff(&self) -> Option<Backoff> {
        self.backoff()
    }
}

impl NetStreamAppend<TypeConfig> for AnyClient {
    fn stream_append<'s, S>(&'s mut self, requests: S, option: RPCOption) -> Call<'s, Answers<'s>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        self.0.append(requests.boxed(), option)
    }
}

impl NetVote<TypeConfig> for AnyClient {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.0.vote(request, option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.0.pre_vote(request, option).await
    }
}

impl NetTransferLeader<TypeConfig> for AnyClient {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        self.0.transfer(request, option).await
    }
}

impl NetSnapshot<TypeConfig> for AnyClient {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> StartAnswer {
        self.0.start(vote, start, cancel.boxed(), option).await
    }
}

impl NetBackoff<TypeConfig> for AnyClient {
    fn backoff(&self) -> Option<Backoff> {
        self.0.own_backoff()
    }
}

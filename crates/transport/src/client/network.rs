//! The engine's network over gRPC.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};
use consensus::{Answer, CallError, Knock, MemberCalls, Question};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryFutureExt, stream};
use openraft::OptionalSend;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{
    MemberId, MemberRecord, OfferedStart, REPLICATION_WINDOW_BYTES, Region, TypeConfig, Vote,
};
use ring_admin::IdentityBook;
use sockets::Names;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::client::append_stream::{Answers, Packing, Parts, Window};
use crate::client::far::{FAR_PART_BYTES, FAR_WINDOW_BYTES, Far, FarOptions, MUCH_BYTES};
use crate::client::link_bytes::LinkBytes;
use crate::client::peers::{Peer, PeerTrouble, Peers};
use crate::client::stripes::{Deal, Stripe, new_session};
use crate::compression::CompressionFigures;
use crate::config::{TlsMaterial, TransportConfig};
use crate::envelope::Stripes;
use crate::schema::AppendPart;
use crate::schema::raft_client::RaftClient;
use crate::streams::Streams;
use crate::{envelope, schema, wire};
use spilling_bytes::SpillFolder;

/// Makes the clients with which one member calls the others. Clones share their connections.
#[derive(Clone)]
pub struct GrpcNetworkFactory(Arc<Peers>);

impl GrpcNetworkFactory {
    /// Calls on behalf of the member in `book`. All members are in one region.
    pub fn new(book: Arc<IdentityBook>, tls: Option<TlsMaterial>, config: TransportConfig) -> Self {
        Self(Arc::new(Peers::new(book, tls, config, None, None)))
    }

    /// The same with options for other regions than `own`, and with large compressed payloads in files of `spill`.
    pub fn across_regions(
        book: Arc<IdentityBook>,
        tls: Option<TlsMaterial>,
        config: TransportConfig,
        own: Region,
        options: FarOptions,
        spill: SpillFolder,
    ) -> Self {
        let far = Some(Far::new(own, options, spill));
        Self(Arc::new(Peers::new(book, tls, config, far, None)))
    }

    /// The same without TLS, over `streams` instead of the system's sockets.
    pub fn over_streams(
        book: Arc<IdentityBook>,
        config: TransportConfig,
        own: Region,
        options: FarOptions,
        spill: SpillFolder,
        streams: Arc<dyn Streams>,
    ) -> Self {
        let far = Some(Far::new(own, options, spill));
        Self(Arc::new(Peers::new(book, None, config, far, Some(streams))))
    }

    /// Sets the members' addresses in this member's configuration, which are tried if the address in the ring's log does not answer. Set
    /// once, before the first call.
    #[must_use]
    pub fn also_at(self, addresses: BTreeMap<MemberId, String>) -> Self {
        self.0.also_at(addresses);
        self
    }

    /// Looks names up by these instead of the system's resolver: for tests. Set once, before the first call.
    #[must_use]
    pub fn looks_up_by(self, names: Names) -> Self {
        self.0.looks_up_by(names);
        self
    }

    /// Bytes sent to each member so far.
    pub fn link_bytes(&self) -> BTreeMap<MemberId, LinkBytes> {
        self.0.link_bytes()
    }

    /// Savings by compression so far.
    pub fn compression(&self) -> CompressionFigures {
        self.0.compression()
    }

    /// Current failures and refusals, by member.
    pub fn troubles(&self) -> BTreeMap<MemberId, PeerTrouble> {
        self.0.troubles()
    }

    /// A member with its connections.
    pub(super) fn peer(&self, id: MemberId, record: &MemberRecord) -> Arc<Peer> {
        self.0.peer(id, record)
    }

    fn client(&self, target: MemberId, record: &MemberRecord, lane: Lane) -> PeerClient {
        PeerClient {
            peers: self.0.clone(),
            first: self.0.peer(target, record),
            lane,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for GrpcNetworkFactory {
    type Network = PeerClient;

    async fn new_client(&mut self, target: MemberId, record: &MemberRecord) -> PeerClient {
        self.client(target, record, Lane::Entries)
    }

    async fn new_heartbeat_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> PeerClient {
        self.client(target, record, Lane::Heartbeats)
    }
}

impl MemberCalls for GrpcNetworkFactory {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        record: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        async move {
            let peer = self.0.peer(to, record);
            let mut client = peer
                .urgent()
                .map_err(|error| CallError(error.to_string()))?;
            let request = peer.sealed(wire::question(&question));
            match tokio::time::timeout(deadline, client.ask(request)).await {
                Ok(Ok(response)) => {
                    peer.is_there();
                    wire::answer_from(response.get_ref())
                        .map_err(|error| CallError(error.to_string()))
                }
                Ok(Err(status)) if is_refusal(&status) => {
                    peer.is_there();
                    Err(CallError(status.message().to_owned()))
                }
                Ok(Err(status)) => Err(CallError(peer.failed(&status))),
                Err(_) => Err(CallError(peer.silence(deadline))),
            }
        }
        .boxed()
    }

    fn knock<'a>(
        &'a self,
        id: MemberId,
        record: &'a MemberRecord,
        deadline: Duration,
    ) -> BoxFuture<'a, Knock> {
        async move {
            let knocking = self.0.knock(id, record);
            let knocked = tokio::time::timeout(deadline, knocking);
            knocked.await.unwrap_or(Knock::Silent)
        }
        .boxed()
    }
}

#[derive(Debug, Clone, Copy)]
enum Lane {
    Entries,
    Heartbeats,
}

/// Calls one member. The engine keeps a client for its whole leadership, even if the member's address changes.
pub struct PeerClient {
    peers: Arc<Peers>,
    /// By the record with which the client was made.
    first: Arc<Peer>,
    lane: Lane,
}

impl PeerClient {
    /// The member at its current address.
    fn peer(&self) -> Arc<Peer> {
        let newest = self.peers.newest(self.first.id());
        newest.unwrap_or_else(|| self.first.clone())
    }

    /// A heartbeat, or any other request without entries.
    async fn heartbeat(
        peer: &Peer,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        if !request.entries.is_empty() {
            let reason = "entries travel on the stream, not on the connection of the heartbeats";
            return Err(RPCError::Network(NetworkError::from_string(reason)));
        }
        let head = wire::head_of(&request.vote, request.prev_log_id, request.leader_commit);
        peer.counters.heartbeat(&head);
        let mut client = peer.urgent().map_err(|error| unreachable(peer, error))?;
        let call = client.heartbeat(peer.sealed(head));
        let answer = unary(peer, RPCTypes::AppendEntries, deadline, call).await?;
        wire::append_result(answer).map_err(unreadable)
    }

    /// Requests a vote or a pre-vote.
    async fn ask_for_vote(
        &self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
        ask: impl AsyncFnOnce(
            RaftClient<Channel>,
            Request<schema::VoteRequest>,
        ) -> Result<Response<schema::VoteAnswer>, Status>,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let peer = &*self.peer();
        let client = peer.urgent().map_err(|error| unreachable(peer, error))?;
        let call = ask(client, peer.sealed(wire::vote_request(&request)));
        let answer = unary(peer, RPCTypes::Vote, option.hard_ttl(), call).await?;
        wire::vote_response(answer).map_err(unreadable)
    }

    /// Makes the member's log begin with a file of this one's.
    async fn begin(
        &self,
        vote: Vote,
        start: OfferedStart,
        deadline: Duration,
    ) -> RpcResult<SnapshotResponse<TypeConfig>> {
        let peer = &*self.peer();
        let Some(start) = start else {
            let message = "the member needs entries that are purged here, and this log has no file with which its \
                           log could begin";
            peer.troubled(None, message);
            return Err(RPCError::Unreachable(Unreachable::from_string(message)));
        };
        let request =
            wire::begin_request(&vote, &start).map_err(|error| unreachable(peer, error))?;
        let mut client = peer.bulk().map_err(|error| unreachable(peer, error))?;
        let call = client.begin(peer.sealed(request));
        let answer = unary(peer, RPCTypes::InstallSnapshot, deadline, call).await?;
        let vote = wire::begin_answer_from(answer).map_err(unreadable)?;
        Ok(SnapshotResponse::new(vote))
    }

    async fn open_stream<S>(&self, requests: S) -> RpcResult<Answers>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        let peer = self.peer();
        let further = peer.stripes();
        let (window, most) = match &further {
            Some(_) => (FAR_WINDOW_BYTES, FAR_PART_BYTES),
            None => (REPLICATION_WINDOW_BYTES, wire::PART_BYTES),
        };
        let window = Arc::new(Window::new(window));
        let requests = Packing::new(requests, peer.packer());
        let parts = Parts::new(requests, window.clone(), peer.counters.clone(), most);
        if let Some(further) = further {
            return Self::open_striped(peer, further, parts, window).await;
        }
        let mut client = peer.bulk().map_err(|error| unreachable(&peer, error))?;
        let call = client.append(peer.sealed(parts));
        let deadline = peer.config.call_deadline;
        let streaming = unary(&peer, RPCTypes::AppendEntries, deadline, call).await?;
        Ok(Answers::new(peer, streaming, window))
    }

    /// The same over several connections. The others are opened after the first, and share the load while much is in flight.
    async fn open_striped<S>(
        peer: Arc<Peer>,
        further: Vec<RaftClient<Channel>>,
        parts: Parts<S>,
        window: Arc<Window>,
    ) -> RpcResult<Answers>
    where
        Parts<S>: Stream<Item = AppendPart> + Send + Unpin + 'static,
    {
        let mut client = peer.bulk().map_err(|error| unreachable(&peer, error))?;
        let count = 1 + further.len();
        let session = new_session();
        let sealed = move |peer: &Peer, stripe: Stripe<Parts<S>>, number: usize| {
            let mut request = peer.sealed(stripe);
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            envelope::seal_stripe(Stripes { session, number }, request.metadata_mut());
            request
        };
        let under_way = window.clone();
        let deal = Deal::new(parts, count, move || under_way.bytes() >= MUCH_BYTES);
        let call = client.append_striped(sealed(&peer, deal.stripe(0), count));
        let deadline = peer.config.call_deadline;
        let call = call.inspect_err(|status| peer.note_stripes(status));
        let streaming = unary(&peer, RPCTypes::AppendEntries, deadline, call).await?;
        let further = (1..).zip(further).map(|(number, mut client)| {
            let (deal, peer) = (deal.clone(), peer.clone());
            async move {
                loop {
                    let request = sealed(&peer, deal.stripe(number), number);
                    match client.append_stripe(request).await {
                        Ok(_) => return Ok(()),
                        Err(status) if deal.has_used(number) => return Err(status),
                        // The receiver continues without it.
                        Err(status) if status.code() == Code::FailedPrecondition => return Ok(()),
                        // A failed connection has lost nothing.
                        Err(_) => tokio::time::sleep(peer.config.connect_deadline).await,
                    }
                }
            }
            .boxed()
        });
        let further: Vec<_> = further.collect();
        Ok(Answers::new(peer, streaming, window).over(further))
    }
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let result = Self::heartbeat(&self.peer(), request, option.hard_ttl()).await?;
        Ok(result.into())
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
        let ask = async |mut client: RaftClient<Channel>, request| client.vote(request).await;
        self.ask_for_vote(request, option, ask).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let ask = async |mut client: RaftClient<Channel>, request| client.pre_vote(request).await;
        self.ask_for_vote(request, option, ask).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Ok(self
            .begin(vote, snapshot.snapshot, option.hard_ttl())
            .await?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let peer = &*self.peer();
        let mut client = peer.urgent().map_err(|error| unreachable(peer, error))?;
        let call = client.transfer_leader(peer.sealed(wire::transfer_request(&request)));
        let answer = unary(peer, RPCTypes::TransferLeader, option.hard_ttl(), call).await?;
        wire::transfer_response(answer).map_err(unreadable)
    }
}

/// Whether the member itself refused, rather than was unreachable.
fn is_refusal(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && envelope::refusal_code(status).is_none()
}

impl ReportingNetwork for PeerClient {
    fn stream_reported<'s, S>(
        &'s mut self,
        mut requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        async move {
            // The engine's retry pause is inside its request stream: a call that fails before polling that stream would be repeated
            // immediately.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            match self.lane {
                Lane::Entries => {
                    let requests = stream::iter([first]).chain(requests);
                    Ok(self.open_stream(requests).await?.boxed())
                }
                Lane::Heartbeats => {
                    let peer = self.peer();
                    let deadline = option.hard_ttl();
                    let answer = async move {
                        let result = Self::heartbeat(&peer, first.request, deadline).await?;
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

/// Waits for a call, until its deadline.
async fn unary<T>(
    peer: &Peer,
    action: RPCTypes,
    deadline: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> RpcResult<T> {
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(response)) => {
            peer.well();
            Ok(response.into_inner())
        }
        // Whatever its code: a connection closed right after the accept would otherwise be retried immediately.
        Ok(Err(status)) => Err(RPCError::Unreachable(Unreachable::from_string(
            peer.failed(&status),
        ))),
        Err(_) => {
            peer.troubled(None, &peer.silence(deadline));
            Err(RPCError::Timeout(Timeout {
                action,
                id: peer.own_id(),
                target: peer.id(),
                timeout: deadline,
            }))
        }
    }
}

fn unreachable(peer: &Peer, error: impl std::error::Error) -> RPCError<TypeConfig> {
    let message = error.to_string();
    peer.troubled(None, &message);
    RPCError::Unreachable(Unreachable::from_string(message))
}

fn unreadable(error: wire::WireError) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(error))
}

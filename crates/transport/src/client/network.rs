//! The engine's network over gRPC.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use consensus::log_probe::{
    AnswerStream, Answered, Asked, Call, Lane, MemberClient, MemberNetwork, RpcResult,
};
use consensus::{Answer, CallError, Greeting, Knock, MemberCalls, Question};
use futures::future::{BoxFuture, join_all};
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt, TryFutureExt, stream};
use openraft::errors::{NetworkError, RPCError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use prost::Message;
use proxy::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest};
use raft_types::{
    MemberId, MemberRecord, OfferedStart, REPLICATION_WINDOW_BYTES, TypeConfig, Vote, lock,
};
use ring_admin::{IdentityBook, Member};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::client::append_stream::{Answers, Parts, Window, packed};
use crate::client::connector::AddressError;
use crate::client::far::{FAR_PART_BYTES, FAR_WINDOW_BYTES, MUCH_BYTES};
use crate::client::peers::{LinkBytes, NetworkOptions, Peer, PeerTrouble, Peers};
use crate::client::proxy_line::{AbortOnDrop, OpenLine, Received, SessionHandle, Together};
use crate::client::stripes::{Deal, Stripe, new_session};
use crate::compression::CompressionFigures;
use crate::envelope::Stripes;
use crate::schema::raft_client::RaftClient;
use crate::schema::{ProxyFrame, ProxyPart};
use crate::wire::{AnswerReader, RequestWriter};
use crate::{envelope, schema, wire};

/// Creates the clients with which one member calls the others. Clones share their connections.
#[derive(Clone)]
pub struct GrpcNetworkFactory(Arc<Peers>);

impl GrpcNetworkFactory {
    /// Creates a network that calls as the member in `book`.
    pub fn new(book: Arc<IdentityBook>, options: NetworkOptions) -> Self {
        Self(Arc::new(Peers::new(book, options)))
    }

    /// Returns the bytes sent to each member so far.
    pub fn link_bytes(&self) -> BTreeMap<MemberId, LinkBytes> {
        let counters = lock(&self.0.counters);
        let sent = counters.iter().map(|(id, link)| (*id, *lock(link)));
        sent.collect()
    }

    /// Returns the bytes saved by compression so far.
    pub fn compression(&self) -> CompressionFigures {
        let packer = self.0.far.as_ref().and_then(|far| far.packer.as_ref());
        packer.map(|packer| packer.figures()).unwrap_or_default()
    }

    /// Returns current failures and refusals, by member.
    pub fn troubles(&self) -> BTreeMap<MemberId, PeerTrouble> {
        let known = lock(&self.0.known);
        let peers = known.iter();
        let troubled = peers.filter_map(|(id, peer)| Some((*id, lock(&peer.trouble).clone()?)));
        troubled.collect()
    }
}

impl MemberNetwork for GrpcNetworkFactory {
    fn client(&self, lane: Lane, to: MemberId, record: &MemberRecord) -> Box<dyn MemberClient> {
        Box::new(PeerClient {
            peers: self.0.clone(),
            first: self.0.peer(to, record),
            lane,
        })
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
            let client = peer.urgent.clone();
            let mut client = client.map_err(|error| CallError(error.to_string()))?;
            let json = wire::encode(&question);
            let request = peer.sealed(schema::Question { json });
            match tokio::time::timeout(deadline, client.ask(request)).await {
                Ok(Ok(response)) => {
                    peer.is_there();
                    let answer = wire::decode("answer", &response.get_ref().json);
                    answer.map_err(|error| CallError(error.to_string()))
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

/// A client for one member. The engine keeps it for its whole leadership, even if the member's address changes.
struct PeerClient {
    peers: Arc<Peers>,
    /// The peer for the record with which the client was created.
    first: Arc<Peer>,
    lane: Lane,
}

impl PeerClient {
    /// Returns the peer at the member's current address.
    fn peer(&self) -> Arc<Peer> {
        let newest = self.peers.newest(self.first.id());
        newest.unwrap_or_else(|| self.first.clone())
    }

    /// Sends a heartbeat, or another request without entries.
    async fn heartbeat(
        peer: &Peer,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> RpcResult<Answered> {
        if !request.entries.is_empty() {
            let reason = "entries travel on the stream, not on the connection of the heartbeats";
            return Err(RPCError::Network(NetworkError::from_string(reason)));
        }
        let head = wire::head_of(&request.vote, request.prev_log_id, request.leader_commit);
        peer.count(|sent| sent.heartbeats += head.encoded_len() as u64);
        let mut client = connected(peer, &peer.urgent)?;
        let call = client.heartbeat(peer.sealed(head));
        let answer = unary(peer, RPCTypes::AppendEntries, deadline, call).await?;
        wire::answered_from(answer).map_err(unreadable)
    }

    async fn open_stream(&self, requests: BoxStream<'static, Asked>) -> RpcResult<Answers> {
        let peer = self.peer();
        let further = peer.stripes();
        let (window, most) = match &further {
            Some(_) => (FAR_WINDOW_BYTES, FAR_PART_BYTES),
            None => (REPLICATION_WINDOW_BYTES, wire::PART_BYTES),
        };
        let window = Arc::new(Window::new(window));
        let requests = packed(requests, peer.packer.clone());
        let parts = Parts {
            requests,
            window: window.clone(),
            peer: peer.clone(),
            most,
            current: None,
            ended: false,
        };
        if let Some(further) = further {
            return Self::open_striped(peer, further, parts, window).await;
        }
        let mut client = connected(&peer, &peer.bulk)?;
        let call = client.append(peer.sealed(parts));
        let deadline = peer.config.call_deadline;
        let streaming = unary(&peer, RPCTypes::AppendEntries, deadline, call).await?;
        let further = FuturesUnordered::new();
        Ok(Answers::new(peer, streaming, window, further))
    }

    /// Opens a stream that is distributed over several connections. The additional connections are opened after the first one, and share
    /// the load while many bytes are in flight.
    async fn open_striped(
        peer: Arc<Peer>,
        further: Vec<RaftClient<Channel>>,
        parts: Parts,
        window: Arc<Window>,
    ) -> RpcResult<Answers> {
        let mut client = connected(&peer, &peer.bulk)?;
        let count = 1 + further.len();
        let session = new_session();
        let sealed = move |peer: &Peer, stripe: Stripe<Parts>, number: usize| {
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
                        // The receiver continues without this connection.
                        Err(status) if status.code() == Code::FailedPrecondition => return Ok(()),
                        // A connection that failed before it carried a message has lost nothing.
                        Err(_) => tokio::time::sleep(peer.config.connect_deadline).await,
                    }
                }
            }
            .boxed()
        });
        let further = further.collect();
        Ok(Answers::new(peer, streaming, window, further))
    }
}

/// Returns true if the member itself refused; false if it could not be reached.
fn is_refusal(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && envelope::refusal_code(status).is_none()
}

impl MemberClient for PeerClient {
    fn stream(
        &mut self,
        mut requests: BoxStream<'static, Asked>,
        option: RPCOption,
    ) -> Call<'_, AnswerStream<'_>> {
        async move {
            // The engine's pause before a retry is inside its request stream, so the stream is polled first. A call that fails before that
            // would be repeated immediately.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            if self.lane == Lane::Entries {
                let requests = stream::iter([first]).chain(requests).boxed();
                return Ok(self.open_stream(requests).await?.boxed());
            }
            let peer = self.peer();
            let deadline = option.hard_ttl();
            let answer = async move { Self::heartbeat(&peer, first.request, deadline).await };
            Ok(stream::once(answer).boxed())
        }
        .boxed()
    }

    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        is_pre_vote: bool,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>> {
        async move {
            let peer = &*self.peer();
            let mut client = connected(peer, &peer.urgent)?;
            let request = peer.sealed(wire::vote_request(&request));
            let call = async {
                match is_pre_vote {
                    true => client.pre_vote(request).await,
                    false => client.vote(request).await,
                }
            };
            let answer = unary(peer, RPCTypes::Vote, option.hard_ttl(), call).await?;
            wire::vote_response(answer).map_err(unreadable)
        }
        .boxed()
    }

    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>> {
        async move {
            let peer = &*self.peer();
            let mut client = connected(peer, &peer.urgent)?;
            let call = client.transfer_leader(peer.sealed(wire::transfer_request(&request)));
            let answer = unary(peer, RPCTypes::TransferLeader, option.hard_ttl(), call).await?;
            wire::transfer_response(answer).map_err(unreadable)
        }
        .boxed()
    }

    fn begin(
        &mut self,
        vote: Vote,
        start: OfferedStart,
        option: RPCOption,
    ) -> Call<'_, SnapshotResponse<TypeConfig>> {
        async move {
            let peer = &*self.peer();
            let Some(start) = start else {
                let message = "the member needs entries that are purged here, and this log has no file with which its \
                               log could begin";
                peer.troubled(None, message);
                return Err(RPCError::Unreachable(Unreachable::from_string(message)));
            };
            let request = wire::begin_request(&vote, &start);
            let request = request.map_err(|error| unreachable(peer, error))?;
            let mut client = connected(peer, &peer.bulk)?;
            let call = client.begin(peer.sealed(request));
            let answer = unary(peer, RPCTypes::InstallSnapshot, option.hard_ttl(), call).await?;
            let vote = wire::required_vote(answer.vote).map_err(unreadable)?;
            Ok(SnapshotResponse::new(vote))
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
        // Any status is reported as unreachable. Otherwise a connection that is closed directly after it was accepted would be retried
        // immediately.
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

/// Returns a client that uses one of a member's connections.
fn connected(
    peer: &Peer,
    client: &Result<RaftClient<Channel>, AddressError>,
) -> RpcResult<RaftClient<Channel>> {
    client.clone().map_err(|error| unreachable(peer, error))
}

fn unreachable(peer: &Peer, error: impl std::error::Error) -> RPCError<TypeConfig> {
    let message = error.to_string();
    peer.troubled(None, &message);
    RPCError::Unreachable(Unreachable::from_string(message))
}

fn unreadable(error: wire::WireError) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(error))
}

// Opens connections in advance. A newly elected leader calls members that it has never called before. Opening its two connections to
// another region would delay a failover by a round trip for each, or more with TLS.

/// Interval of greetings while all members answer. Apart from heartbeats, greetings are most of an idle member's traffic, and each one
/// wakes both ends twice. A greeting detects a broken connection.
const WHILE_ALL_ANSWER: Duration = Duration::from_secs(5);
/// Interval of greetings while a member does not answer. It limits the time until the connection is opened again.
const WHILE_ONE_IS_SILENT: Duration = Duration::from_secs(2);

impl GrpcNetworkFactory {
    /// Greets the other members periodically, on both connections to each, and immediately after a membership change or a member's start.
    /// Never returns.
    pub async fn keep_connected(&self, member: Member) {
        loop {
            let others = member.others();
            let peers = others.iter().map(|(id, record)| self.0.peer(*id, record));
            let answered = join_all(peers.map(greet)).await;
            let interval = match answered.into_iter().all(|answers| answers) {
                true => WHILE_ALL_ANSWER,
                false => WHILE_ONE_IS_SILENT,
            };
            let something_changes = async {
                tokio::select! {
                    () = member.others_change(&others) => {}
                    () = member.another_arrives() => {}
                }
            };
            let _ = tokio::time::timeout(interval, something_changes).await;
        }
    }
}

/// Returns true if the member answers on both connections. A failure is recorded as for any other call.
async fn greet(peer: Arc<Peer>) -> bool {
    let on_each = [&peer.urgent, &peer.bulk].into_iter().flatten();
    let greetings = on_each.map(|client| {
        let (peer, mut client) = (&peer, client.clone());
        async move {
            let json = wire::encode(&Question::Greeting(Greeting::default()));
            let question = peer.sealed(schema::Question { json });
            let deadline = peer.config.call_deadline;
            match tokio::time::timeout(deadline, client.ask(question)).await {
                Ok(Ok(_)) => {
                    peer.well();
                    true
                }
                Ok(Err(status)) => {
                    peer.failed(&status);
                    false
                }
                Err(_) => false,
            }
        }
    });
    join_all(greetings).await.into_iter().all(|answers| answers)
}

// Proxy sessions, at the leader's end.

impl ProxyCalls for GrpcNetworkFactory {
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        mut requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let peer = self.0.peer(proxy, record);
        async move {
            // A session belongs to one leadership, so it uses the vote of the first request.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            let line = &peer.proxy_line;
            let (handle, answers) = line.session(|frames, line| carry(peer.clone(), frames, line));
            let writer = RequestWriter::new(handle.session, onward);
            let reader = AnswerReader::new(&first.vote);
            let handle = Arc::new(handle);
            let requests = stream::iter([first]).chain(requests).boxed();
            let sending = tokio::spawn(send(writer, requests, handle.clone()));
            let session = Session {
                handle,
                answers,
                reader,
                _sending: AbortOnDrop(sending.abort_handle()),
            };
            Ok(stream::unfold(Some(session), |session| async { session?.next().await }).boxed())
        }
        .boxed()
    }
}

/// Sends and receives the frames of a line, until the line breaks or has no sessions left. Returns the reason.
async fn carry(peer: Arc<Peer>, frames: Together<ProxyPart>, line: Weak<OpenLine>) -> LineBroken {
    let broken = |reason: &str| LineBroken(reason.to_owned());
    let failed = |status: Status| LineBroken(peer.failed(&status));
    let mut client = match &peer.bulk {
        Ok(client) => client.clone(),
        Err(error) => return broken(&error.to_string()),
    };
    let counting = peer.clone();
    let frames = frames.map(move |parts| {
        let frame = ProxyFrame { parts };
        counting.count(|sent| sent.op_ids += frame.encoded_len() as u64);
        frame
    });
    let opened = client.proxy(peer.sealed(frames));
    let deadline = peer.config.call_deadline;
    let mut answers = match tokio::time::timeout(deadline, opened).await {
        Ok(Ok(answers)) => answers.into_inner(),
        Ok(Err(status)) => return failed(status),
        Err(_) => return broken(&format!("no answer within {deadline:?}")),
    };
    loop {
        match answers.message().await {
            Ok(Some(frame)) => match line.upgrade() {
                Some(line) => line.hand_out(frame),
                None => return broken("no session is left"),
            },
            Ok(None) => return broken("the proxy ended the stream"),
            Err(status) => return failed(status),
        }
    }
}

async fn send(
    mut writer: RequestWriter,
    mut requests: BoxStream<'static, ProxyRequest>,
    handle: Arc<SessionHandle>,
) {
    while let Some(request) = requests.next().await {
        let Some(part) = writer.write(&request) else {
            break;
        };
        if !handle.send(part) {
            return;
        }
    }
    handle.end();
}

struct Session {
    handle: Arc<SessionHandle>,
    answers: mpsc::UnboundedReceiver<Received>,
    reader: AnswerReader,
    _sending: AbortOnDrop,
}

impl Session {
    async fn next(mut self) -> Option<(Result<ProxyAnswer, LineBroken>, Option<Self>)> {
        let part = match self.answers.recv().await {
            Some(Ok(part)) => part,
            Some(Err(broken)) => return Some((Err(broken), None)),
            None => {
                let session = self.handle.session;
                let lost = LineBroken(format!("session {session} has lost its line"));
                return Some((Err(lost), None));
            }
        };
        match self.reader.read(part) {
            Ok(Some(answer)) => Some((Ok(answer), Some(self))),
            Ok(None) => None,
            Err(error) => Some((Err(LineBroken(error.to_string())), None)),
        }
    }
}

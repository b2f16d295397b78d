//! A network inside one process whose every message takes as long as its distance: requests of a stream follow each other
//! without waiting for answers, as they do over a real connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::{Answer, CallError, MemberCalls, Question};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::distances::Distances;
use super::postman::Postman;
use super::receiver::{Receiver, unreachable};

/// Requests of one stream that are under way at most, as the product's window would have it for small entries.
const WINDOW: usize = 4096;

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;
type Request = AppendEntriesRequest<TypeConfig>;
type AppendResult = StreamAppendResult<TypeConfig>;

/// All members and the distances between them.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    postman: Postman,
    distances: Distances,
    members: Mutex<BTreeMap<MemberId, Receiver>>,
}

impl Network {
    pub(crate) fn new(postman: Postman, distances: Distances) -> Self {
        Self(Arc::new(Inner {
            postman,
            distances,
            members: Mutex::default(),
        }))
    }

    /// The end at one member.
    pub(crate) fn port(&self, own: MemberId) -> Port {
        Port {
            network: self.clone(),
            own,
        }
    }

    pub(crate) fn connect(&self, id: MemberId, receiver: Receiver) {
        self.lock().insert(id, receiver);
    }

    /// Lets go of the members.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn receiver(&self, id: MemberId) -> RpcResult<Receiver> {
        let receiver = self.lock().get(&id).cloned();
        receiver.ok_or_else(|| unreachable("the member is not there yet"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<MemberId, Receiver>> {
        self.0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One member's end.
#[derive(Clone)]
pub(crate) struct Port {
    network: Network,
    own: MemberId,
}

impl Port {
    fn line(&self, to: MemberId, lane: Lane) -> Line {
        let delay = self.network.0.distances.one_way(self.own, to);
        Line {
            network: self.network.clone(),
            to,
            delay,
            lane,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Port {
    type Network = Line;

    async fn new_client(&mut self, target: MemberId, _: &MemberRecord) -> Line {
        self.line(target, Lane::Entries)
    }

    async fn new_heartbeat_client(&mut self, target: MemberId, _: &MemberRecord) -> Line {
        self.line(target, Lane::Heartbeats)
    }
}

impl MemberCalls for Port {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        _: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        let own = self.own;
        async move {
            let line = self.line(to, Lane::Heartbeats);
            let exchange = line.exchange(deadline, |receiver| async move {
                Ok(receiver.answer(own, question).await)
            });
            exchange
                .await
                .unwrap_or_else(|error| Err(CallError(error.to_string())))
        }
        .boxed()
    }
}

/// A line to one member.
#[derive(Clone)]
pub(crate) struct Line {
    network: Network,
    to: MemberId,
    delay: Duration,
    lane: Lane,
}

#[derive(Clone, Copy)]
enum Lane {
    Entries,
    Heartbeats,
}

impl Line {
    /// One call: there, done, and back, within a deadline.
    async fn exchange<T, F>(
        &self,
        deadline: Duration,
        call: impl FnOnce(Receiver) -> F,
    ) -> RpcResult<T>
    where
        F: Future<Output = RpcResult<T>>,
    {
        let postman = &self.network.0.postman;
        let there_and_back = async {
            postman.wait(self.delay).await;
            let answer = call(self.network.receiver(self.to)?).await;
            postman.wait(self.delay).await;
            answer
        };
        match tokio::time::timeout(deadline, there_and_back).await {
            Ok(answer) => answer,
            Err(_) => Err(unreachable("no answer in time")),
        }
    }

    fn open<S>(&self, requests: S) -> RpcResult<BoxStream<'static, RpcResult<AppendResult>>>
    where
        S: Stream<Item = Request> + Send + Unpin + 'static,
    {
        let receiver = self.network.receiver(self.to)?;
        let (to_member, arriving) = mpsc::channel(WINDOW);
        let (to_leader, answers) = mpsc::channel(WINDOW);
        let window = Arc::new(Semaphore::new(WINDOW));
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().carry(requests, to_member, window.clone()));
        let answering = receiver.append(receive(arriving));
        tasks.spawn(self.clone().bring_back(answering, to_leader));
        let open = (answers, window, tasks);
        let answers = stream::unfold(open, |(mut answers, window, tasks)| async move {
            let answer = answers.recv().await?;
            window.add_permits(1);
            Some((answer, (answers, window, tasks)))
        });
        Ok(answers.boxed())
    }

    async fn carry(
        self,
        mut requests: impl Stream<Item = Request> + Unpin,
        to_member: mpsc::Sender<Request>,
        window: Arc<Semaphore>,
    ) {
        while let Some(request) = requests.next().await {
            let Ok(room) = window.acquire().await else {
                return;
            };
            room.forget();
            let to_member = to_member.clone();
            // There is room: the window is not larger than the channel. It may be closed, then the stream has ended.
            self.network.0.postman.after(self.delay, move || {
                drop(to_member.try_send(request));
            });
        }
    }

    async fn bring_back(
        self,
        mut answers: BoxStream<'static, RpcResult<AppendResult>>,
        to_leader: mpsc::Sender<RpcResult<AppendResult>>,
    ) {
        while let Some(answer) = answers.next().await {
            let to_leader = to_leader.clone();
            self.network.0.postman.after(self.delay, move || {
                drop(to_leader.try_send(answer));
            });
        }
    }
}

fn receive<T: Send + 'static>(
    receiver: mpsc::Receiver<T>,
) -> impl Stream<Item = T> + Send + Unpin + 'static {
    stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    })
    .boxed()
}

impl RaftNetworkV2<TypeConfig> for Line {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        request: Request,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let beat = |receiver: Receiver| async move { receiver.heartbeat(request).await };
        let answer = self.exchange(option.hard_ttl(), beat).await?;
        Ok(answer.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        mut requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<AppendResult>>>>
    where
        S: Stream<Item = Request> + OptionalSend + Unpin + 'static,
    {
        async move {
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            match self.lane {
                Lane::Entries => self.open(stream::iter([first]).chain(requests)),
                Lane::Heartbeats => {
                    let beat = |receiver: Receiver| async move { receiver.heartbeat(first).await };
                    let answer = self.exchange(option.hard_ttl(), beat).await;
                    Ok(stream::once(async { answer }).boxed())
                }
            }
        }
        .boxed()
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let vote = |receiver: Receiver| async move { receiver.vote(request).await };
        self.exchange(option.hard_ttl(), vote).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let vote = |receiver: Receiver| async move { receiver.pre_vote(request).await };
        self.exchange(option.hard_ttl(), vote).await
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let reason = "nothing is purged in this bench";
        Err(StreamingError::Unreachable(Unreachable::from_string(
            reason,
        )))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let transfer = |receiver: Receiver| async move { receiver.transfer_leader(request).await };
        self.exchange(option.hard_ttl(), transfer).await
    }
}

//! The network in front of the real one. It decides by [`Knowledge`] and acts: answers, sends,
//! processes what comes back.
//!
//! [`Knowledge`]: super::knowledge::Knowledge

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{NetSnapshot, NetStreamAppend, RPCOption, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, OwnLog, TypeConfig, Vote};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::config::Timers;
use crate::log_probe::knowledge::{Exchange, Outline, Way, window};
use crate::log_probe::shared::{Followers, Shared};
use crate::log_probe::tail_push::{TailPush, Widened, widen};
use crate::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};

/// A factory of clients that answer the engine's search themselves where they can. It wraps the
/// real factory when a member is started.
#[derive(Clone)]
pub struct LogProbe<F> {
    inner: F,
    own: Arc<dyn OwnLog>,
    window: Duration,
    followers: Followers,
}

impl<F> LogProbe<F> {
    /// In front of `inner`, for the member with this log. The timers are those of the ring: the lease
    /// bounds how long an answer may be given (rule 2 of the search).
    pub fn new(inner: F, own: Arc<dyn OwnLog>, timers: &Timers) -> Self {
        Self {
            inner,
            own,
            window: window(timers),
            followers: Followers::default(),
        }
    }
}

impl<F> RaftNetworkFactory<TypeConfig> for LogProbe<F>
where
    F: RaftNetworkFactory<TypeConfig, Network: ReportingNetwork>,
{
    type Network = LogProbeClient<F::Network>;

    async fn new_client(&mut self, target: MemberId, record: &MemberRecord) -> Self::Network {
        let search = Search {
            shared: self.followers.of(target, record.incarnation),
            own: self.own.clone(),
            window: self.window,
            ahead: Some(self.inner.new_client(target, record).await),
            courier: Arc::new(AsyncMutex::new(
                self.inner.new_heartbeat_client(target, record).await,
            )),
            push: None,
        };
        LogProbeClient {
            inner: self.inner.new_client(target, record).await,
            followed: search.shared.clone(),
            search: Some(search),
        }
    }

    /// Heartbeats are always real: they hold the lease and detect a lost log.
    async fn new_heartbeat_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        LogProbeClient {
            inner: self.inner.new_heartbeat_client(target, record).await,
            followed: self.followers.of(target, record.incarnation),
            search: None,
        }
    }

    async fn new_snapshot_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        LogProbeClient {
            inner: self.inner.new_snapshot_client(target, record).await,
            followed: self.followers.of(target, record.incarnation),
            search: None,
        }
    }
}

/// A client of [`LogProbe`].
pub struct LogProbeClient<N> {
    inner: N,
    followed: Arc<Shared>,
    search: Option<Search<N>>,
}

/// Additional state of the client that carries entries.
struct Search<N> {
    shared: Arc<Shared>,
    own: Arc<dyn OwnLog>,
    window: Duration,
    /// For the entries that are sent ahead, once in a leadership: a client serves only one.
    ahead: Option<N>,
    /// Carries the commit mark while the engine searches.
    courier: Arc<AsyncMutex<N>>,
    push: Option<AbortHandle>,
}

impl<N> Drop for Search<N> {
    fn drop(&mut self) {
        if let Some(push) = &self.push {
            push.abort();
        }
    }
}

impl<N: ReportingNetwork> Search<N> {
    /// Decides on a request, after waiting for answers in flight.
    async fn decide(
        &mut self,
        request: &AppendEntriesRequest<TypeConfig>,
        option: &RPCOption,
    ) -> Way {
        let asked = Outline::from(request);
        if asked.last.is_some() && self.shared.lock().is_blank(&asked.vote) {
            self.send_ahead(request, option).await;
        }
        let shared = self.shared.clone();
        loop {
            let changed = shared.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let way = shared.lock().decide(&asked, Instant::now(), self.window);
            if way != Way::Wait {
                return way;
            }
            changed.await;
        }
    }

    async fn send_ahead(&mut self, request: &AppendEntriesRequest<TypeConfig>, option: &RPCOption) {
        let Some(network) = self.ahead.take() else {
            return;
        };
        let (own, shared) = (self.own.clone(), self.shared.clone());
        if let Some(push) = TailPush::prepare(own, shared, request, self.window).await {
            let running = tokio::spawn(push.run(network, option.clone()));
            self.push = Some(running.abort_handle());
        }
    }

    /// Sends the commit mark without waiting. The engine assumes that it is delivered; if it is not,
    /// the next heartbeat repeats it. One at a time; a newer one includes an older one.
    fn pass_on(&self, notice: AppendEntriesRequest<TypeConfig>, option: RPCOption) {
        let Ok(mut courier) = self.courier.clone().try_lock_owned() else {
            return;
        };
        tokio::spawn(async move {
            let deadline = option.hard_ttl();
            let delivery = async {
                let notice = stream::iter([notice]);
                if let Ok(mut answers) = courier.stream_append(notice, option).await {
                    while answers.next().await.is_some() {}
                }
            };
            let _ = tokio::time::timeout(deadline, delivery).await;
        });
    }
}

type EngineAnswer = RpcResult<StreamAppendResult<TypeConfig>>;
/// An answer, and the session after it.
type Step<S> = (EngineAnswer, Option<S>);

/// One stream of the engine's requests.
enum Session<'s, N, S> {
    Searching(Searching<'s, N, S>),
    OnTheWire(OnTheWire<'s>),
}

/// No request was sent yet: requests may be answered from here.
struct Searching<'s, N, S> {
    inner: &'s mut N,
    search: &'s mut Search<N>,
    requests: S,
    option: RPCOption,
}

/// A request was sent, and so are all that follow.
struct OnTheWire<'s> {
    answers: BoxStream<'s, RpcResult<Answered>>,
    shared: Arc<Shared>,
    own: Arc<dyn OwnLog>,
    exchange: Exchange,
    widened: Option<Widened>,
}

impl<'s, N, S> Session<'s, N, S>
where
    N: ReportingNetwork,
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
{
    /// The next answer, and the session after it.
    async fn next(self) -> Option<Step<Self>> {
        let on_the_wire = match self {
            Self::Searching(searching) => match searching.next().await? {
                Ok(on_the_wire) => on_the_wire,
                Err(answered) => return Some(answered),
            },
            Self::OnTheWire(on_the_wire) => on_the_wire,
        };
        let (answer, goes_on) = on_the_wire.next().await?;
        Some((answer, goes_on.map(Self::OnTheWire)))
    }
}

impl OnTheWire<'_> {
    async fn next(mut self) -> Option<Step<Self>> {
        let answered = match self.answers.next().await? {
            Ok(answered) => answered,
            Err(error) => {
                self.shared.change(|known| known.forget());
                return Some((Err(error), None));
            }
        };
        self.shared
            .take_in(&self.exchange, &answered, self.own.as_ref());
        let mut result = answered.result;
        if let Some(asked) = self.widened {
            (result, self.widened) = asked.cut_back(result);
        }
        if let Ok(matching) = result {
            self.shared
                .lock()
                .acknowledge(&self.exchange.vote, matching);
        }
        let goes_on = result.is_ok().then_some(self);
        Some((Ok(result), goes_on))
    }
}

impl<'s, N, S> Searching<'s, N, S>
where
    N: ReportingNetwork,
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
{
    /// Answers the next request, or sends it.
    async fn next(mut self) -> Option<Result<OnTheWire<'s>, Step<Session<'s, N, S>>>> {
        // The engine's pause before another attempt is inside its stream of requests:
        // that one is polled first, before anything can fail.
        let request = self.requests.next().await?;
        let vote = request.vote;
        match self.search.decide(&request, &self.option).await {
            Way::Answer(result) => {
                if request.entries.is_empty() {
                    self.search.pass_on(request, self.option.clone());
                }
                if let Ok(matching) = result {
                    self.search.shared.lock().acknowledge(&vote, matching);
                }
                let goes_on = result.is_ok().then_some(Session::Searching(self));
                Some(Err((Ok(result), goes_on)))
            }
            Way::AnswerAndEnd(matching) => {
                let shared = &self.search.shared;
                shared.lock().acknowledge(&vote, Some(matching));
                Some(Err((Ok(Ok(Some(matching))), None)))
            }
            Way::Wire { at_the_end } => {
                let sent = self.send(request, at_the_end).await;
                Some(sent.map_err(|error| (Err(error), None)))
            }
            // `decide` has waited.
            Way::Wait => None,
        }
    }

    async fn send(
        self,
        mut request: AppendEntriesRequest<TypeConfig>,
        at_the_end: bool,
    ) -> RpcResult<OnTheWire<'s>> {
        let (shared, own) = (self.search.shared.clone(), self.search.own.clone());
        let widened = match at_the_end {
            true => widen(&mut request, own.as_ref()).await,
            false => None,
        };
        let exchange = shared.change(|known| known.begin(&request.vote, Instant::now()));
        let first = Asked::new(request, true);
        let rest = self.requests.map(|request| Asked::new(request, false));
        let requests = stream::iter([first]).chain(rest);
        match self.inner.stream_reported(requests, self.option).await {
            Ok(answers) => Ok(OnTheWire {
                answers,
                shared,
                own,
                exchange,
                widened,
            }),
            Err(error) => {
                shared.change(|known| known.forget());
                Err(error)
            }
        }
    }
}

impl<N: ReportingNetwork> NetStreamAppend<TypeConfig> for LogProbeClient<N> {
    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, EngineAnswer>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let Some(search) = &mut self.search else {
            // A heartbeat names what the engine has recorded: its conflict is the first sign that the follower has lost that.
            let (answers, followed) = (
                self.inner.stream_append(requests, option),
                self.followed.clone(),
            );
            return async move {
                let answers = answers.await?.inspect(move |answer| {
                    if let Ok(Err(StreamAppendError::Conflict(at))) = answer {
                        followed.change(|known| known.lacks(*at));
                    }
                });
                Ok(answers.boxed())
            }
            .boxed();
        };
        let session = Session::Searching(Searching {
            inner: &mut self.inner,
            search,
            requests,
            option,
        });
        let answers = stream::unfold(Some(session), |session| async { session?.next().await });
        async move { Ok(answers.boxed()) }.boxed()
    }
}

crate::passes_on_votes!([N: ReportingNetwork] LogProbeClient<N>);

impl<N: ReportingNetwork> NetSnapshot<TypeConfig> for LogProbeClient<N> {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, OfferedStart>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let upto = snapshot.meta.last_log_id;
        let forget = || self.followed.change(|known| known.forget());
        forget();
        let sent = self
            .inner
            .full_snapshot(vote, snapshot, cancel, option)
            .await;
        // Answers received until now are outdated.
        forget();
        if sent.is_ok() {
            self.followed.lock().acknowledge(&vote, upto);
        }
        sent
    }
}

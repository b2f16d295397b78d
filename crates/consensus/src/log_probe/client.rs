//! A network that wraps the real network. It decides by [`Knowledge`], answers or sends the engine's requests, and processes the answers.
//!
//! [`Knowledge`]: super::knowledge::Knowledge

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{LogId, MemberId, MemberRecord, OfferedStart, OwnLog, TypeConfig, Vote};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Timers;
use crate::log_probe::knowledge::{Exchange, Outline, Way, window};
use crate::log_probe::shared::{Followers, Shared};
use crate::log_probe::tail_push::{TailPush, Widened, widen};
use crate::log_probe::{
    AnswerStream, Answered, Asked, Call, Lane, MemberClient, MemberNetwork, RpcResult,
};

/// A network whose clients answer the requests of the engine's search themselves if they can. It wraps the real network when a member is
/// started.
pub struct LogProbe {
    inner: Arc<dyn MemberNetwork>,
    own: Arc<dyn OwnLog>,
    window: Duration,
    followers: Followers,
}

impl LogProbe {
    /// Wraps `inner` for the member with the log `own`. The timers are the ring's: the lease limits for how long answers may be given
    /// without a real exchange (rule 2 in `knowledge`).
    pub fn new(inner: impl MemberNetwork, own: Arc<dyn OwnLog>, timers: &Timers) -> Self {
        Self {
            inner: Arc::new(inner),
            own,
            window: window(timers),
            followers: Followers::default(),
        }
    }
}

impl MemberNetwork for LogProbe {
    /// Heartbeats are always sent, because the lease depends on them, and they detect a lost log.
    fn client(&self, lane: Lane, to: MemberId, record: &MemberRecord) -> Box<dyn MemberClient> {
        let followed = self.followers.of(to, record.incarnation);
        let client = |lane| self.inner.client(lane, to, record);
        let search = (lane == Lane::Entries).then(|| Search {
            shared: followed.clone(),
            own: self.own.clone(),
            window: self.window,
            ahead: Some(client(Lane::Entries)),
            courier: Arc::new(AsyncMutex::new(client(Lane::Heartbeats))),
            push: JoinSet::new(),
        });
        Box::new(LogProbeClient {
            inner: client(lane),
            followed,
            search,
        })
    }
}

/// A client of [`LogProbe`].
struct LogProbeClient {
    inner: Box<dyn MemberClient>,
    followed: Arc<Shared>,
    search: Option<Search>,
}

/// Additional state of the client that carries entries.
struct Search {
    shared: Arc<Shared>,
    own: Arc<dyn OwnLog>,
    window: Duration,
    /// The client for the entries that are sent ahead. It is used once, because a client serves only one leadership.
    ahead: Option<Box<dyn MemberClient>>,
    /// Carries the commit mark while the engine searches.
    courier: Arc<AsyncMutex<Box<dyn MemberClient>>>,
    /// The task that sends entries ahead. It is aborted when the client is dropped.
    push: JoinSet<()>,
}

impl Search {
    /// Decides on a request. If entries in flight will answer it, waits for their answers first.
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
            let changed = shared.changed.notified();
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
            self.push.spawn(push.run(network, option.clone()));
        }
    }

    /// Sends the commit mark without waiting. The engine assumes that the mark is delivered. If it is not, the next heartbeat repeats it.
    /// While one mark is being sent, another one is skipped.
    fn pass_on(&self, notice: AppendEntriesRequest<TypeConfig>, option: RPCOption) {
        let Ok(mut courier) = self.courier.clone().try_lock_owned() else {
            return;
        };
        tokio::spawn(async move {
            let deadline = option.hard_ttl();
            let delivery = async {
                let notice = stream::iter([Asked::new(notice, false)]).boxed();
                if let Ok(mut answers) = courier.stream(notice, option).await {
                    while answers.next().await.is_some() {}
                }
            };
            let _ = tokio::time::timeout(deadline, delivery).await;
        });
    }
}

type EngineAnswer = RpcResult<StreamAppendResult<TypeConfig>>;
/// An answer, and the session that continues after it.
type Step<S> = (EngineAnswer, Option<S>);

/// One stream of the engine's requests.
enum Session<'s> {
    Searching(Searching<'s>),
    OnTheWire(OnTheWire<'s>),
}

/// The state before a request is sent: requests may be answered without sending.
struct Searching<'s> {
    inner: &'s mut dyn MemberClient,
    search: &'s mut Search,
    requests: BoxStream<'static, Asked>,
    option: RPCOption,
}

/// The state after a request was sent: all later requests are sent too.
struct OnTheWire<'s> {
    answers: AnswerStream<'s>,
    shared: Arc<Shared>,
    own: Arc<dyn OwnLog>,
    exchange: Exchange,
    widened: Option<Widened>,
}

impl Session<'_> {
    /// Returns the next answer, and the session that continues after it.
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

impl<'s> Searching<'s> {
    /// Answers the next request, or sends it.
    async fn next(mut self) -> Option<Result<OnTheWire<'s>, Step<Session<'s>>>> {
        // The engine's pause before another attempt is inside its stream of requests. So the stream is polled before anything else can
        // fail.
        let request = self.requests.next().await?.request;
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
            // Not reached: `decide` has waited already.
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
        let requests = stream::iter([first]).chain(self.requests).boxed();
        match self.inner.stream(requests, self.option).await {
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

impl MemberClient for LogProbeClient {
    fn stream(
        &mut self,
        requests: BoxStream<'static, Asked>,
        option: RPCOption,
    ) -> Call<'_, AnswerStream<'_>> {
        let Some(search) = &mut self.search else {
            // A heartbeat names the last entry that the engine has recorded for the follower. So its conflict is the first sign that the
            // follower has lost that entry.
            let (answers, followed) = (self.inner.stream(requests, option), self.followed.clone());
            return async move {
                let answers = answers.await?.inspect(move |answer| {
                    let result = answer.as_ref().map(|answered| &answered.result);
                    if let Ok(Err(StreamAppendError::Conflict(at))) = result {
                        followed.change(|known| known.lacks(*at));
                    }
                });
                Ok(answers.boxed())
            }
            .boxed();
        };
        let session = Session::Searching(Searching {
            inner: &mut *self.inner,
            search,
            requests,
            option,
        });
        let answers = stream::unfold(Some(session), |session| async { session?.next().await });
        let answers = answers.map_ok(|result| Answered {
            result,
            report: None,
        });
        async move { Ok(answers.boxed()) }.boxed()
    }

    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        is_pre_vote: bool,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>> {
        self.inner.vote(request, is_pre_vote, option)
    }

    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>> {
        self.inner.transfer_leader(request, option)
    }

    fn begin(
        &mut self,
        vote: Vote,
        start: OfferedStart,
        option: RPCOption,
    ) -> Call<'_, SnapshotResponse<TypeConfig>> {
        let upto = start.as_ref().map(|start| LogId::from(start.before));
        async move {
            let forget = || self.followed.change(|known| known.forget());
            forget();
            let begun = self.inner.begin(vote, start, option).await;
            // Answers that were received until now are outdated.
            forget();
            if begun.is_ok() {
                self.followed.lock().acknowledge(&vote, upto);
            }
            begun
        }
        .boxed()
    }
}

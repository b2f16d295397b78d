//! The leader's end: a network that wraps the real one, and sends a member's entries over a proxy if there is one. A stream of the engine
//! keeps its route. For another route, the engine opens another stream, and sends the unanswered requests again. So a member has only one
//! replication state, regardless of the route.

use std::sync::{Arc, Mutex};

use consensus::log_probe::{
    AnswerStream, Answered, Asked, Call, Departure, Lane, MemberClient, MemberNetwork, RpcResult,
};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryFutureExt, stream};
use openraft::errors::{NetworkError, RPCError};
use openraft::network::RPCOption;
use openraft::raft::{
    SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{
    MemberId, MemberRecord, OfferedStart, REPLICATION_WINDOW_BYTES, TypeConfig, Vote, lock,
};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::health::{Failure, Hold, Patience, Way};
use crate::proxy_op::{
    self, LineBroken, Outstanding, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest, Stripped,
    payload_bytes,
};
use crate::route_table::RouteTable;
use crate::routes::Route;

/// A network whose clients may send entries over proxies. It wraps the real network.
pub struct Proxying<C> {
    inner: Arc<dyn MemberNetwork>,
    calls: C,
    route_table: RouteTable,
}

impl<C> Proxying<C> {
    /// Wraps `inner`; calls proxies over `calls`.
    pub fn new(inner: impl MemberNetwork, calls: C, route_table: RouteTable) -> Self {
        Self {
            inner: Arc::new(inner),
            calls,
            route_table,
        }
    }
}

impl<C: ProxyCalls> MemberNetwork for Proxying<C> {
    /// Only entries are sent over proxies. Heartbeats and votes never are.
    fn client(&self, lane: Lane, to: MemberId, record: &MemberRecord) -> Box<dyn MemberClient> {
        if lane == Lane::Entries {
            self.route_table.begin(to, record);
        }
        Box::new(ProxyingClient {
            inner: self.inner.client(lane, to, record),
            calls: self.calls.clone(),
            route_table: self.route_table.clone(),
            target: to,
            lane,
        })
    }
}

/// A client of [`Proxying`].
struct ProxyingClient<C> {
    inner: Box<dyn MemberClient>,
    calls: C,
    route_table: RouteTable,
    target: MemberId,
    lane: Lane,
}

impl<C: ProxyCalls> MemberClient for ProxyingClient<C> {
    fn stream(
        &mut self,
        mut requests: BoxStream<'static, Asked>,
        option: RPCOption,
    ) -> Call<'_, AnswerStream<'_>> {
        let (route_table, target) = (self.route_table.clone(), self.target);
        if self.lane != Lane::Entries {
            let answers = self.inner.stream(requests, option);
            return async move {
                let heard = move |answer: &RpcResult<Answered>| {
                    if matches!(answer, Ok(Answered { result: Ok(_), .. })) {
                        route_table.heard(target, Instant::now());
                    }
                };
                Ok(answers.await?.inspect(heard).boxed())
            }
            .boxed();
        }
        async move {
            // The engine's pause before another attempt is inside its stream of requests, so that stream is polled first.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            let route = route_table.route(target, Instant::now());
            let rest = while_on(route.clone(), route_table.clone(), target, requests);
            let requests = stream::iter([first]).chain(rest).boxed();
            match &*route {
                Route::Direct(_) => {
                    let counting = route_table.clone();
                    let requests = requests.map(move |mut asked| {
                        let entries = &asked.request.entries;
                        let bytes = payload_bytes(entries);
                        counting.traffic().direct(target, entries.len(), bytes);
                        if are_many(bytes)
                            && let Some(last) = entries.last()
                        {
                            asked.departure = Departure::watched();
                            counting.departs(target, last.log_id.index, &asked.departure);
                        }
                        asked
                    });
                    let answers = self.inner.stream(requests.boxed(), option).await?;
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
        self.inner.begin(vote, start, option)
    }
}

/// Returns the requests of a stream until its route changes.
fn while_on(
    route: Arc<Route>,
    route_table: RouteTable,
    target: MemberId,
    requests: BoxStream<'static, Asked>,
) -> impl Stream<Item = Asked> + Send + 'static {
    let ticks = check_interval(&route_table);
    let state = (requests, route_table.happenings(), ticks);
    stream::unfold(state, move |(mut requests, mut happenings, mut ticks)| {
        let (route_table, route) = (route_table.clone(), route.clone());
        async move {
            // A stream that waits for requests ends too. Otherwise its next request would use a route that is no longer valid.
            loop {
                if route_table.route(target, Instant::now()).proxies() != route.proxies() {
                    return None;
                }
                tokio::select! {
                    biased;
                    asked = requests.next() => {
                        return asked.map(|asked| (asked, (requests, happenings, ticks)));
                    }
                    _ = happenings.changed() => {}
                    _ = ticks.tick(), if route_table.chooses() => {}
                }
            }
        }
    })
}

// One stream of the engine over proxies: its requests in flight, its time limits, and the failures that are recorded for proxies and links.

/// State that the two ends of a session share.
#[derive(Debug)]
struct UnderWay {
    state: Mutex<(Outstanding, Patience)>,
    room: Notify,
    all_sent: Notify,
}

impl UnderWay {
    async fn wait_for_room(&self) {
        loop {
            let answered = self.room.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if lock(&self.state).0.bytes() < REPLICATION_WINDOW_BYTES {
                return;
            }
            answered.await;
        }
    }
}

/// One stream of the engine over proxies.
pub(crate) struct Session {
    answers: ProxyAnswers,
    under_way: Arc<UnderWay>,
    ticks: Interval,
    path: HeldBack,
    all_sent: bool,
}

impl Session {
    pub(crate) fn open<C: ProxyCalls>(
        calls: &C,
        route_table: RouteTable,
        proxies: &[MemberId],
        target: MemberId,
        requests: BoxStream<'static, Asked>,
    ) -> Self {
        let now = Instant::now();
        let mut patience = Patience::new(route_table.options(), now);
        // The first request exists already, even before the session reads it.
        patience.sent(now);
        let under_way = Arc::new(UnderWay {
            state: Mutex::new((Outstanding::default(), patience)),
            room: Notify::new(),
            all_sent: Notify::new(),
        });
        let path = HeldBack {
            route_table,
            proxies: proxies.to_vec(),
            target,
        };
        let sent = sent(requests, under_way.clone(), path.clone());
        let mut onward = proxies.iter().copied().chain([target]);
        let proxy = onward.next().unwrap_or(target);
        let answers = match path.route_table.record(proxy) {
            // Opening the session is part of the stream of answers, so it has the same time limits.
            Some(record) => calls
                .open(proxy, &record, onward.collect(), sent)
                .try_flatten_stream()
                .boxed(),
            None => {
                let unknown = LineBroken("nothing is known of it".to_owned());
                stream::iter([Err(unknown)]).boxed()
            }
        };
        Self {
            answers,
            under_way,
            ticks: check_interval(&path.route_table),
            path,
            all_sent: false,
        }
    }

    pub(crate) fn into_answers<'s>(self) -> BoxStream<'s, RpcResult<Answered>> {
        stream::unfold(Some(self), |session| async move {
            let mut session = session?;
            match session.next().await {
                Ok(Some(answered)) => {
                    // No more answers follow a rejection.
                    let continued = answered.result.is_ok().then_some(session);
                    Some((Ok(answered), continued))
                }
                Ok(None) => None,
                Err(failure) => {
                    let (path, now) = (&session.path, Instant::now());
                    let (table, target) = (&path.route_table, path.target);
                    match session.asked_too_early(&failure) {
                        Some(last) => table.wait_for(target, last),
                        None => table.failed(&path.proxies, target, &failure, now),
                    }
                    // The engine retries immediately after a network error. Then another route is chosen.
                    let left = format!("the proxy is no longer used: {failure}");
                    Some((
                        Err(RPCError::Network(NetworkError::from_string(left))),
                        None,
                    ))
                }
            }
        })
        .boxed()
    }

    /// Returns the last entry of a large request, if the request reached the proxy before the proxy had assembled the entry. Returns `None`
    /// if this has happened before for that request.
    fn asked_too_early(&self, failure: &Failure) -> Option<u64> {
        let Failure::Lacks(lacked) = failure else {
            return None;
        };
        let state = lock(&self.under_way.state);
        let request = state.0.oldest_with_entries()?;
        let last = request.request.last()?.index;
        let of_it = request.request.first_index() <= lacked.index && lacked.index <= last;
        let early = of_it && are_many(request.bytes);
        let (path, table) = (&self.path, &self.path.route_table);
        let known = table.waits_for(path.target) == Some(last);
        let has_left = table.way_to_all(&path.proxies, last) == Way::HasLeft;
        (early && has_left && !known).then_some(last)
    }

    /// Returns the member's next answer; `None` after all requests are answered and no more will be sent.
    async fn next(&mut self) -> Result<Option<Answered>, Failure> {
        loop {
            // The session ends here without the proxy's confirmation. The proxy may be gone, and no answer is due.
            if self.all_sent && lock(&self.under_way.state).0.is_empty() {
                return Ok(None);
            }
            let answer = tokio::select! {
                answer = self.answers.next() => answer,
                () = self.under_way.all_sent.notified() => {
                    self.all_sent = true;
                    continue;
                }
                _ = self.ticks.tick() => {
                    let (now, mut under_way) = (Instant::now(), lock(&self.under_way.state));
                    let oldest = under_way.0.oldest_with_entries();
                    let oldest = oldest.map(|oldest| oldest.request.first_index());
                    let HeldBack { route_table, proxies, .. } = &self.path;
                    let lacks = |index| proxies.iter().any(|proxy| route_table.lacks(*proxy, index));
                    if oldest.is_some_and(lacks) {
                        under_way.1.is_on_its_way(now);
                    }
                    match under_way.1.over(now) {
                        None => continue,
                        Some(failure) => return Err(failure),
                    }
                }
            };
            let now = Instant::now();
            let mut under_way = lock(&self.under_way.state);
            let (outstanding, patience) = &mut *under_way;
            match answer {
                Some(Ok(ProxyAnswer::Answered(answered))) => {
                    if !outstanding.answered(&answered) {
                        return Err(Failure::Nonsense);
                    }
                    patience.answered(now, !outstanding.is_empty());
                    drop(under_way);
                    self.under_way.room.notify_one();
                    let path = &self.path;
                    path.route_table.answered(path.target, &answered, now);
                    return Ok(Some(answered));
                }
                Some(Ok(ProxyAnswer::SentOn { moves, .. })) => patience.sign_of_life(now, moves),
                Some(Ok(ProxyAnswer::Missing { op_id, purged })) => {
                    let failure = if purged {
                        Failure::Purged
                    } else {
                        Failure::Lacks
                    };
                    return Err(failure(op_id));
                }
                Some(Ok(ProxyAnswer::CannotCall { member, why })) => {
                    tracing::debug!(%member, why, "a proxy cannot forward entries");
                    return Err(Failure::CannotCall(member));
                }
                Some(Ok(ProxyAnswer::Refused(why))) => {
                    tracing::warn!(proxies = ?self.path.proxies, why, "a proxy refuses to forward entries");
                    return Err(Failure::Refused);
                }
                Some(Err(broken)) => {
                    tracing::debug!(proxies = ?self.path.proxies, %broken, "the line to a proxy broke");
                    return Err(Failure::Unreachable);
                }
                None if outstanding.is_empty() => return Ok(None),
                None => return Err(Failure::Unreachable),
            }
        }
    }
}

/// Returns the requests without the payloads of their entries. A request is sent when earlier answers have made room for it.
fn sent(
    requests: BoxStream<'static, Asked>,
    under_way: Arc<UnderWay>,
    held_back: HeldBack,
) -> BoxStream<'static, ProxyRequest> {
    let (counting, target) = (held_back.route_table.clone(), held_back.target);
    let stripped = requests.map(move |asked| {
        let entries = &asked.request.entries;
        let stripped = Stripped {
            request: ProxyRequest::from(&asked),
            bytes: payload_bytes(entries),
        };
        counting
            .traffic()
            .proxied(target, entries.len(), stripped.bytes);
        stripped
    });
    let requests = proxy_op::joined(stripped.boxed()).boxed();
    stream::unfold((requests, held_back), move |(mut requests, held_back)| {
        let under_way = under_way.clone();
        async move {
            under_way.wait_for_room().await;
            let Some(stripped) = requests.next().await else {
                under_way.all_sent.notify_one();
                return None;
            };
            held_back.wait(&stripped, &under_way).await;
            let request = stripped.request.clone();
            let mut state = lock(&under_way.state);
            state.0.sent(stripped);
            state.1.sent(Instant::now());
            drop(state);
            Some((request, (requests, held_back)))
        }
    })
    .boxed()
}

// A payload for another region is compressed as a whole before its first piece is sent. A proxy waits for an entry only while pieces of it
// arrive. So the proxy receives the request for a large entry only after the whole entry was sent to it. If that was too early, because the
// proxy needs time to assemble the entry, the request is repeated after the proxy has acknowledged the entry.

/// Returns true if compressing this number of bytes may take longer than a proxy waits.
fn are_many(bytes: usize) -> bool {
    bytes >= REPLICATION_WINDOW_BYTES
}

/// The route of a session, on which large requests are delayed.
#[derive(Clone)]
struct HeldBack {
    route_table: RouteTable,
    proxies: Vec<MemberId>,
    target: MemberId,
}

impl HeldBack {
    /// Delays a large request until its entries were sent to the proxies, or acknowledged by them if required. The delay has a limit,
    /// because the proxies may be unable to accept the entries. Then the request is sent, and its failure is recorded as usual.
    async fn wait(&self, stripped: &Stripped, under_way: &UnderWay) {
        let Some(last) = stripped.request.last() else {
            return;
        };
        if !are_many(stripped.bytes) {
            return;
        }
        let acknowledged = self.route_table.waits_for(self.target) == Some(last.index);
        let mut hold = Hold::new(self.route_table.options(), stripped.bytes, Instant::now());
        let mut ticks = check_interval(&self.route_table);
        loop {
            let way = self.route_table.way_to_all(&self.proxies, last.index);
            let route = self.route_table.route(self.target, Instant::now());
            let is_in_use = route.proxies() == self.proxies;
            if !is_in_use || !hold.continues(way, acknowledged, Instant::now()) {
                if let Way::Leaves(pieces) = way {
                    let (proxies, member) = (&self.proxies, self.target);
                    tracing::info!(?proxies, %member, pieces, "a large transaction does not get on towards a proxy");
                }
                return;
            }
            {
                // If no other request is unanswered, no answer is due in the meantime.
                let mut state = lock(&under_way.state);
                if state.0.is_empty() {
                    state.1.answered(Instant::now(), false);
                }
            }
            ticks.tick().await;
        }
    }
}

/// Returns an interval for the checks of conditions that depend on the time.
pub(crate) fn check_interval(route_table: &RouteTable) -> Interval {
    let check_period = route_table.options().check_period();
    let mut ticks = interval_at(Instant::now() + check_period, check_period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests;

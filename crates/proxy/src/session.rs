//! One stream of the engine over proxies: what is under way on it, for how long nothing may come back, and what is held against
//! whom when it fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt, stream};
use openraft::errors::{NetworkError, RPCError};
use raft_types::{MemberId, REPLICATION_WINDOW_BYTES, TypeConfig};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::calls::{LineBroken, ProxyAnswers, ProxyCalls};
use crate::commit_news;
use crate::health::Failure;
use crate::patience::Patience;
use crate::request::{Outstanding, ProxyAnswer, ProxyRequest, Stripped};
use crate::route_table::RouteTable;

/// What the two ends of a session share.
#[derive(Debug)]
struct UnderWay {
    state: Mutex<(Outstanding, Patience)>,
    room: Notify,
    /// Nothing more is sent.
    all_sent: Notify,
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, (Outstanding, Patience)> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_for_room(&self) {
        loop {
            let answered = self.room.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if self.lock().0.bytes() < REPLICATION_WINDOW_BYTES {
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
    looks: Interval,
    route_table: RouteTable,
    proxies: Vec<MemberId>,
    target: MemberId,
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
        // There is a request already, whenever the session takes it.
        patience.sent(now);
        let under_way = Arc::new(UnderWay {
            state: Mutex::new((Outstanding::default(), patience)),
            room: Notify::new(),
            all_sent: Notify::new(),
        });
        let sent = sent(requests, under_way.clone(), route_table.clone(), target);
        let mut onward = proxies.iter().copied().chain([target]);
        let proxy = onward.next().unwrap_or(target);
        let answers = match route_table.record(proxy) {
            // The opening is a part of it, which has to be done in time like the rest.
            Some(record) => calls
                .open(proxy, &record, onward.collect(), sent)
                .try_flatten_stream()
                .boxed(),
            None => {
                stream::once(async { Err(LineBroken("nothing is known of it".to_owned())) }).boxed()
            }
        };
        Self {
            answers,
            under_way,
            looks: look_interval(&route_table),
            route_table,
            proxies: proxies.to_vec(),
            target,
            all_sent: false,
        }
    }

    pub(crate) fn into_answers<'s>(self) -> BoxStream<'s, RpcResult<Answered>> {
        stream::unfold(Some(self), |session| async move {
            let mut session = session?;
            match session.next().await {
                Ok(Some(answered)) => {
                    // Behind an objection nothing more is answered.
                    let goes_on = answered.result.is_ok().then_some(session);
                    Some((Ok(answered), goes_on))
                }
                Ok(None) => None,
                Err(failure) => {
                    let Self {
                        route_table,
                        proxies,
                        target,
                        ..
                    } = &session;
                    route_table.failed(proxies, *target, &failure, Instant::now());
                    Some((Err(another_route(&failure)), None))
                }
            }
        })
        .boxed()
    }

    /// The member's next answer; none when all is answered and nothing more is sent.
    async fn next(&mut self) -> Result<Option<Answered>, Failure> {
        loop {
            // The proxy has not to say so, too: it may be gone, and nothing is due any more that it could be too late with.
            if self.all_sent && self.under_way.lock().0.is_empty() {
                return Ok(None);
            }
            let said = tokio::select! {
                said = self.answers.next() => said,
                () = self.under_way.all_sent.notified() => {
                    self.all_sent = true;
                    continue;
                }
                _ = self.looks.tick() => {
                    match self.under_way.lock().1.over(Instant::now()) {
                        None => continue,
                        Some(failure) => return Err(failure),
                    }
                }
            };
            let now = Instant::now();
            let mut under_way = self.under_way.lock();
            let (outstanding, patience) = &mut *under_way;
            match said {
                Some(Ok(ProxyAnswer::Answered(answered))) => {
                    let known = outstanding.answered(&answered);
                    known.map_err(|_| Failure::Nonsense)?;
                    patience.answered(now, !outstanding.is_empty());
                    drop(under_way);
                    self.under_way.room.notify_one();
                    self.route_table.answered(self.target, &answered, now);
                    return Ok(Some(answered));
                }
                Some(Ok(ProxyAnswer::SentOn(_))) => patience.sign_of_life(now),
                Some(Ok(ProxyAnswer::Missing {
                    op_id,
                    purged: false,
                })) => {
                    return Err(Failure::Lacks(op_id));
                }
                Some(Ok(ProxyAnswer::Missing {
                    op_id,
                    purged: true,
                })) => {
                    return Err(Failure::Purged(op_id));
                }
                Some(Ok(ProxyAnswer::CannotCall { member, why })) => {
                    tracing::debug!(%member, why, "a proxy cannot send on");
                    return Err(Failure::CannotCall(member));
                }
                Some(Ok(ProxyAnswer::Refused(why))) => {
                    tracing::warn!(proxies = ?self.proxies, why, "a proxy refuses to send on");
                    return Err(Failure::Refused);
                }
                Some(Err(broken)) => {
                    tracing::debug!(proxies = ?self.proxies, %broken, "the line to a proxy broke");
                    return Err(Failure::Unreachable);
                }
                None if outstanding.is_empty() => return Ok(None),
                None => return Err(Failure::Unreachable),
            }
        }
    }
}

/// The requests without what their entries carry, as fast as answers make room.
fn sent(
    requests: BoxStream<'static, Asked>,
    under_way: Arc<UnderWay>,
    route_table: RouteTable,
    target: MemberId,
) -> BoxStream<'static, ProxyRequest> {
    let stripped = requests.map(move |asked| {
        let stripped = Stripped::from(&asked);
        let entries = asked.request.entries.len();
        route_table
            .traffic()
            .proxied(target, entries, stripped.bytes);
        stripped
    });
    let requests = commit_news::joined(stripped.boxed()).boxed();
    stream::unfold(requests, move |mut requests| {
        let under_way = under_way.clone();
        async move {
            under_way.wait_for_room().await;
            let Some(stripped) = requests.next().await else {
                under_way.all_sent.notify_one();
                return None;
            };
            let request = stripped.request.clone();
            let mut state = under_way.lock();
            state.0.sent(stripped);
            state.1.sent(Instant::now());
            drop(state);
            Some((request, requests))
        }
    })
    .boxed()
}

/// The engine tries again at once, and another route is chosen then.
fn another_route(failure: &Failure) -> RPCError<TypeConfig> {
    let words = format!("the proxy is left: {failure}");
    RPCError::Network(NetworkError::from_string(words))
}

/// Goes off as often as it is to be looked at what changes by the passing of time alone.
pub(crate) fn look_interval(route_table: &RouteTable) -> Interval {
    let look = route_table.options().look();
    let mut looks = interval_at(Instant::now() + look, look);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

#[cfg(test)]
mod tests;

//! The requesting end of a session with a proxy. Sends requests as they arrive, and returns the proxy's answers in order. Dropping the
//! answers ends the session.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use proxy::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyRequest};
use raft_types::MemberId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::message::{Body, CallId};
use super::pending_calls::PendingCalls;
use super::session_part::SessionPart;
use crate::shared::Shared;

/// The time since which requests, or the end of the requests, are in flight without an answer.
#[derive(Clone, Default)]
struct Unheard(Shared<Option<Instant>>);

impl Unheard {
    /// Records that something was sent.
    fn waits(&self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }

    /// Records that an answer was received.
    fn heard(&self) {
        *self.0.lock() = None;
    }

    fn since(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

struct Session {
    id: CallId,
    proxy: MemberId,
    pending: PendingCalls,
    news: mpsc::UnboundedReceiver<SessionPart>,
    sender: JoinHandle<()>,
    unheard: Unheard,
    dead_after: Duration,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sender.abort();
        self.pending.sessions.lock().hang_up(self.id);
        let dropped = Body::Session(self.id, SessionPart::Dropped);
        self.pending.send(self.proxy, dropped);
    }
}

/// Sends the requests, and returns the proxy's answers.
pub(super) fn call(
    pending: PendingCalls,
    proxy: MemberId,
    dead_after: Duration,
    onward: Vec<MemberId>,
    requests: BoxStream<'static, ProxyRequest>,
) -> ProxyAnswers {
    let id = pending.new_call();
    let news = pending.sessions.lock().call(id);
    let unheard = Unheard::default();
    let sending = send_all(
        pending.clone(),
        proxy,
        id,
        onward,
        requests,
        unheard.clone(),
    );
    let session = Session {
        id,
        proxy,
        news,
        sender: tokio::spawn(sending),
        pending,
        unheard,
        dead_after,
    };
    stream::unfold(Some(session), |session| async move {
        let mut session = session?;
        match session.next().await? {
            Ok(answer) => Some((Ok(answer), Some(session))),
            Err(broken) => Some((Err(broken), None)),
        }
    })
    .boxed()
}

async fn send_all(
    pending: PendingCalls,
    proxy: MemberId,
    id: CallId,
    onward: Vec<MemberId>,
    mut requests: BoxStream<'static, ProxyRequest>,
    unheard: Unheard,
) {
    let mut number = 0;
    while let Some(request) = requests.next().await {
        let part = SessionPart::Request {
            number,
            onward: onward.clone(),
            request,
        };
        unheard.waits();
        pending.send(proxy, Body::Session(id, part));
        number += 1;
    }
    unheard.waits();
    pending.send(proxy, Body::Session(id, SessionPart::End(number)));
}

impl Session {
    async fn next(&mut self) -> Option<Result<ProxyAnswer, LineBroken>> {
        loop {
            let since = self.unheard.since().unwrap_or_else(Instant::now);
            let news = timeout_at(since + self.dead_after, self.news.recv()).await;
            let Ok(news) = news else {
                let silent = self.unheard.since().map(|since| since.elapsed());
                if silent.is_some_and(|silent| silent >= self.dead_after) {
                    let why = format!("nothing has come for {:?}", self.dead_after);
                    return Some(Err(LineBroken(why)));
                }
                continue;
            };
            self.unheard.heard();
            return match news? {
                SessionPart::Answer(answer) => Some(Ok(answer)),
                SessionPart::Broken(why) => Some(Err(LineBroken(why))),
                _ => None,
            };
        }
    }
}

//! A network in which the test plays the other member: it records requests, and returns scripted answers. If the script has no answer, a
//! call waits forever, as if its packets were dropped.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::StreamExt;
use futures::stream::BoxStream;
use openraft::raft::SnapshotResponse;
use testkit::network::{Call, Carrier, Link, Reply};

/// The kind of the engine's client that has sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Entries,
    Heartbeats,
}

/// The sent requests and the scripted answers.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    sent: Vec<(Lane, Asked)>,
    answers: VecDeque<RpcResult<Answered>>,
}

impl Script {
    /// Sets the answer to the next request with entries.
    pub(crate) fn answers(&self, answer: RpcResult<Answered>) {
        self.lines().answers.push_back(answer);
    }

    /// Returns the requests that were sent since the last call.
    pub(crate) fn sent(&self) -> Vec<(Lane, Asked)> {
        std::mem::take(&mut self.lines().sent)
    }

    async fn exchange(&self, lane: Lane, asked: Asked) -> RpcResult<Answered> {
        let answer = {
            let mut lines = self.lines();
            lines.sent.push((lane, asked));
            lines.answers.pop_front()
        };
        match answer {
            Some(answer) => answer,
            None => pending().await,
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap()
    }
}

impl Carrier for Script {
    async fn call(&self, _: Link, call: Call, _: Duration) -> Option<Reply> {
        match call {
            Call::Heartbeat(request) => {
                let asked = Asked::new(request, false);
                let answered = self.exchange(Lane::Heartbeats, asked).await;
                Some(Reply::Heartbeat(answered.ok()?.result))
            }
            Call::Begin(vote, _) => Some(Reply::Begin(SnapshotResponse::new(vote))),
            _ => pending().await,
        }
    }

    async fn stream(
        &self,
        _: Link,
        requests: BoxStream<'static, Asked>,
        _: Duration,
    ) -> RpcResult<BoxStream<'static, RpcResult<Answered>>> {
        let script = self.clone();
        let answers = requests.then(move |asked| {
            let script = script.clone();
            async move { script.exchange(Lane::Entries, asked).await }
        });
        Ok(answers.boxed())
    }
}

//! The network without proxies: it carries requests to the members' logs and records each sender.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::StreamExt;
use futures::stream::BoxStream;
use openraft::errors::{NetworkError, RPCError};
use raft_types::{MemberId, OwnLog};
use testkit::network::{Call, Carrier, Link, Port, Reply};

use super::log::Log;

/// Duration of a call.
const LATENCY: Duration = Duration::from_millis(1);

/// A request that arrived at a member, and its sender.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) from: MemberId,
    pub(crate) asked: Asked,
}

impl Received {
    pub(crate) fn indexes(&self) -> Vec<u64> {
        let entries = self.asked.request.entries.iter();
        entries.map(|entry| entry.log_id.index).collect()
    }
}

/// The logs of all members. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Members(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    logs: BTreeMap<MemberId, Log>,
    received: BTreeMap<MemberId, Vec<Received>>,
    unreachable: BTreeSet<Link>,
    deaf: BTreeSet<MemberId>,
}

impl Members {
    pub(crate) fn log(&self, id: MemberId) -> Log {
        self.state().logs.entry(id).or_default().clone()
    }

    /// Returns the requests that arrived at a member since the last call.
    pub(crate) fn received(&self, id: MemberId) -> Vec<Received> {
        let mut state = self.state();
        std::mem::take(state.received.entry(id).or_default())
    }

    /// Makes calls from one member to the other fail.
    pub(crate) fn cut(&self, from: MemberId, to: MemberId) {
        self.state().unreachable.insert(Link { from, to });
    }

    /// Makes this member stop answering.
    pub(crate) fn deafen(&self, id: MemberId) {
        self.state().deaf.insert(id);
    }

    pub(crate) fn seen_from(&self, from: MemberId) -> Port<Self> {
        Port::new(from, self.clone())
    }

    async fn deliver(self, link: Link, asked: Asked) -> RpcResult<Answered> {
        tokio::time::sleep(LATENCY).await;
        let Link { from, to } = link;
        let reached = {
            let mut state = self.state();
            match state.unreachable.contains(&link) {
                true => Err(RPCError::Network(NetworkError::from_string("it is cut"))),
                false => {
                    let received = state.received.entry(to).or_default();
                    let asked = asked.clone();
                    received.push(Received { from, asked });
                    Ok(!state.deaf.contains(&to))
                }
            }
        };
        if !reached? {
            std::future::pending::<()>().await;
        }
        let log = self.log(to);
        let result = log.append(&asked.request);
        let report = asked.wants_report.then(|| log.report());
        Ok(Answered { result, report })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Carrier for Members {
    async fn call(&self, link: Link, call: Call, _: Duration) -> Option<Reply> {
        let Call::Heartbeat(request) = call else {
            unreachable!("no member votes or installs a log here");
        };
        let asked = Asked::new(request, false);
        Some(match self.clone().deliver(link, asked).await {
            Ok(answered) => Reply::Heartbeat(answered.result),
            Err(error) => Reply::Unreachable(error.to_string()),
        })
    }

    async fn stream(
        &self,
        link: Link,
        requests: BoxStream<'static, Asked>,
        _: Duration,
    ) -> RpcResult<BoxStream<'static, RpcResult<Answered>>> {
        let members = self.clone();
        let answers = requests.then(move |asked| members.clone().deliver(link, asked));
        Ok(answers.boxed())
    }
}

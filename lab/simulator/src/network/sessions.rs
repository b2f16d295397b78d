//! The sessions of one process: those that it has with proxies, and those that it serves as one.

use std::collections::BTreeMap;

use proxy::{ProxyAnswer, ProxyRequest};
use raft_types::MemberId;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::message::CallId;

/// What happens to a session at the end that sends the requests.
pub(super) enum SessionNews {
    Answer(ProxyAnswer),
    Over,
    Broken(String),
}

/// A session that a proxy serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// Who called the proxy: a leader, or another proxy.
    pub(crate) from: MemberId,
    pub(crate) proxy: MemberId,
    /// Who the proxy sends on to.
    pub(crate) next: MemberId,
}

/// See the module.
#[derive(Default)]
pub(super) struct Sessions {
    called: BTreeMap<CallId, mpsc::UnboundedSender<SessionNews>>,
    served: BTreeMap<CallId, Served>,
}

/// A session that this process serves. Whoever takes it out ends it.
struct Served {
    from: MemberId,
    onward: Vec<MemberId>,
    /// Gone once nothing more comes.
    requests: Option<mpsc::UnboundedSender<ProxyRequest>>,
    next: u64,
    task: Option<AbortHandle>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Sessions {
    /// A session with a proxy begins.
    pub(super) fn call(&mut self, session: CallId) -> mpsc::UnboundedReceiver<SessionNews> {
        let (sender, news) = mpsc::unbounded_channel();
        self.called.insert(session, sender);
        news
    }

    /// A session with a proxy is over.
    pub(super) fn hang_up(&mut self, session: CallId) {
        self.called.remove(&session);
    }

    /// Something came from a proxy. Whether anybody waits for it.
    pub(super) fn news(&self, session: CallId, news: SessionNews) -> bool {
        let called = self.called.get(&session);
        called.is_some_and(|called| called.send(news).is_ok())
    }

    /// Takes the next request of a session in. `Some` for a new session, which is to be served.
    pub(super) fn request(
        &mut self,
        session: CallId,
        (from, onward): (MemberId, &[MemberId]),
        number: u64,
        request: ProxyRequest,
    ) -> Result<Option<mpsc::UnboundedReceiver<ProxyRequest>>, String> {
        if number == 0 {
            let (requests, receiver) = mpsc::unbounded_channel();
            let _ = requests.send(request);
            let served = Served {
                from,
                onward: onward.to_vec(),
                requests: Some(requests),
                next: 1,
                task: None,
            };
            self.served.insert(session, served);
            return Ok(Some(receiver));
        }
        let Some(served) = self.served.get_mut(&session) else {
            return Err("no such session here".to_owned());
        };
        let requests = served.requests.as_ref();
        let requests = requests.filter(|_| served.next == number);
        if requests.is_none_or(|requests| requests.send(request).is_err()) {
            self.served.remove(&session);
            return Err("the session has a gap, or was given up".to_owned());
        }
        served.next += 1;
        Ok(None)
    }

    /// Who serves a session, for as long as it is there.
    pub(super) fn served_by(&mut self, session: CallId, task: AbortHandle) {
        match self.served.get_mut(&session) {
            Some(served) => served.task = Some(task),
            None => task.abort(),
        }
    }

    /// All requests of a session are here.
    pub(super) fn end(&mut self, session: CallId, all: u64) -> Result<(), String> {
        match self.served.get_mut(&session) {
            Some(served) if served.next == all => {
                served.requests = None;
                Ok(())
            }
            _ => {
                self.served.remove(&session);
                Err("the session has a gap, or was given up".to_owned())
            }
        }
    }

    /// A session is not served any more.
    pub(super) fn forget(&mut self, session: CallId) {
        self.served.remove(&session);
    }

    /// What this process serves as `proxy`.
    pub(super) fn relayed(&self, proxy: MemberId) -> Vec<Relayed> {
        let served = self.served.values();
        let relayed = served.filter_map(|served| {
            Some(Relayed {
                from: served.from,
                proxy,
                next: *served.onward.first()?,
            })
        });
        relayed.collect()
    }
}

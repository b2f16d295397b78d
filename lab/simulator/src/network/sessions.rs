//! The proxy sessions of a process: those that it has requested, and those that it serves.

use std::collections::BTreeMap;

use proxy::ProxyRequest;
use raft_types::MemberId;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::message::CallId;
use super::session_part::SessionPart;

/// A session that a proxy serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// The caller of the proxy: a leader, or another proxy.
    pub(crate) from: MemberId,
    pub(crate) proxy: MemberId,
    /// The next hop after the proxy.
    pub(crate) next: MemberId,
}

/// The sessions of a process.
#[derive(Default)]
pub(super) struct Sessions {
    called: BTreeMap<CallId, mpsc::UnboundedSender<SessionPart>>,
    served: BTreeMap<CallId, Served>,
}

/// A session that this process serves. Removing it ends the session.
struct Served {
    from: MemberId,
    onward: Vec<MemberId>,
    /// Sends requests to the task that serves the session. `None`: no request follows.
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
    /// Begins a session with a proxy.
    pub(super) fn call(&mut self, session: CallId) -> mpsc::UnboundedReceiver<SessionPart> {
        let (sender, news) = mpsc::unbounded_channel();
        self.called.insert(session, sender);
        news
    }

    /// Ends a session with a proxy.
    pub(super) fn hang_up(&mut self, session: CallId) {
        self.called.remove(&session);
    }

    /// Delivers an event from a proxy. Returns false if the session has no receiver.
    pub(super) fn news(&self, session: CallId, news: SessionPart) -> bool {
        let called = self.called.get(&session);
        called.is_some_and(|called| called.send(news).is_ok())
    }

    /// Delivers the next request of a session. If the session is new, returns it, so that the caller serves it.
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

    /// Sets the task that serves a session.
    pub(super) fn served_by(&mut self, session: CallId, task: AbortHandle) {
        match self.served.get_mut(&session) {
            Some(served) => served.task = Some(task),
            None => task.abort(),
        }
    }

    /// Records the total number of requests of a session.
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

    /// Removes a session that has ended.
    pub(super) fn forget(&mut self, session: CallId) {
        self.served.remove(&session);
    }

    /// Returns the sessions that this process, the member `proxy`, serves.
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

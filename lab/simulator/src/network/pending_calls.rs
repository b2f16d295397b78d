//! Everything that a member's process waits for: answers to its calls and streams, incoming streams, and sessions. It ends with the
//! process.

use std::collections::HashMap;

use consensus::log_probe::{Answered, Asked};
use raft_types::MemberId;
use testkit::disk::FaultyDisk;
use testkit::network::Reply;
use tokio::sync::{mpsc, oneshot};

use super::message::{Body, CallId, Message};
use super::message_queue::MessageQueue;
use super::sessions::{Relayed, Sessions};
use crate::shared::Shared;

/// An event for the requesting end of a stream.
pub(crate) enum StreamNews {
    /// The answer to a request.
    Answer(Answered),
    /// The total number of requests, sent after the last request.
    Ended(u64),
    Broken(String),
}

/// A stream of requests that another member sends.
struct Incoming {
    requests: mpsc::Sender<Asked>,
    next: u64,
}

/// Maximum number of unanswered requests of a stream.
pub(crate) const WINDOW: usize = 16;

/// The pending calls of a process. Clones share them.
#[derive(Clone)]
pub(crate) struct PendingCalls {
    pub(crate) own: MemberId,
    queue: MessageQueue,
    /// The disk of the process. After its power was cut, the process sends nothing.
    disk: FaultyDisk,
    state: Shared<State>,
    pub(super) sessions: Shared<Sessions>,
}

#[derive(Default)]
struct State {
    calls: HashMap<CallId, oneshot::Sender<Reply>>,
    outgoing: HashMap<CallId, mpsc::Sender<StreamNews>>,
    incoming: HashMap<CallId, Incoming>,
}

impl PendingCalls {
    pub(crate) fn new(own: MemberId, queue: MessageQueue, disk: FaultyDisk) -> Self {
        Self {
            own,
            queue,
            disk,
            state: Shared::default(),
            sessions: Shared::default(),
        }
    }

    /// Returns whether the process still runs. Its power may have been cut within the current step.
    pub(crate) fn alive(&self) -> bool {
        !self.disk.is_off()
    }

    pub(crate) fn send(&self, to: MemberId, body: Body) {
        if self.alive() {
            let from = self.own;
            self.queue.send(Message { from, to, body });
        }
    }

    /// Returns the sessions that this process serves as a proxy.
    pub(crate) fn relayed(&self) -> Vec<Relayed> {
        self.sessions.lock().relayed(self.own)
    }

    pub(super) fn new_call(&self) -> CallId {
        self.queue.new_call()
    }

    /// Begins a call. Returns its id, and the receiver of its answer.
    pub(crate) fn open_call(&self) -> (CallId, oneshot::Receiver<Reply>) {
        let call = self.queue.new_call();
        let (sender, receiver) = oneshot::channel();
        self.state.lock().calls.insert(call, sender);
        (call, receiver)
    }

    pub(crate) fn close_call(&self, call: CallId) {
        self.state.lock().calls.remove(&call);
    }

    pub(crate) fn replied(&self, call: CallId, reply: Reply) {
        let waits = self.state.lock().calls.remove(&call);
        if let Some(waits) = waits {
            // The caller may have stopped waiting.
            let _ = waits.send(reply);
        }
    }

    /// Begins a stream of requests to another member.
    pub(crate) fn open_stream(
        &self,
    ) -> (CallId, mpsc::Sender<StreamNews>, mpsc::Receiver<StreamNews>) {
        let stream = self.queue.new_call();
        // Room for the answers to all requests of the window, the end, and a failure.
        let (sender, receiver) = mpsc::channel(WINDOW + 2);
        self.state.lock().outgoing.insert(stream, sender.clone());
        (stream, sender, receiver)
    }

    pub(crate) fn close_stream(&self, stream: CallId) {
        self.state.lock().outgoing.remove(&stream);
    }

    pub(crate) fn news(&self, stream: CallId, news: StreamNews) {
        if let Some(outgoing) = self.state.lock().outgoing.get(&stream) {
            // The channel has room for everything that can be in flight, so that this cannot fail.
            let _ = outgoing.try_send(news);
        }
    }

    /// Delivers the next request of an incoming stream. If the stream is new, returns it for openraft.
    pub(crate) fn request(
        &self,
        stream: CallId,
        number: u64,
        asked: Asked,
    ) -> Result<Option<mpsc::Receiver<Asked>>, String> {
        let mut state = self.state.lock();
        if number == 0 {
            let (requests, receiver) = mpsc::channel(WINDOW + 1);
            let _ = requests.try_send(asked);
            state
                .incoming
                .insert(stream, Incoming { requests, next: 1 });
            return Ok(Some(receiver));
        }
        let Some(incoming) = state.incoming.get_mut(&stream) else {
            return Err("no such stream here".to_owned());
        };
        if incoming.next != number || incoming.requests.try_send(asked).is_err() {
            state.incoming.remove(&stream);
            return Err("the stream has a gap, or was given up".to_owned());
        }
        incoming.next += 1;
        Ok(None)
    }

    pub(crate) fn closed(&self, stream: CallId) {
        self.state.lock().incoming.remove(&stream);
    }
}

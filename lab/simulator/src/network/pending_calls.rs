//! What one process of a member waits for: answers to its calls and to its streams, and the streams that others send to
//! it, and the same for sessions. It goes with the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consensus::log_probe::{Answered, Asked};
use raft_types::MemberId;
use testkit::disk::FaultyDisk;
use testkit::network::Reply;
use tokio::sync::{mpsc, oneshot};

use super::message::{Body, CallId, Message};
use super::message_queue::MessageQueue;
use super::sessions::{Relayed, Sessions};

/// What happens to a stream at the end that sends the requests.
pub(crate) enum StreamNews {
    /// The answer to a request.
    Answer(Answered),
    /// This many requests were all.
    Ended(u64),
    Broken(String),
}

/// A stream of requests from another member.
struct Incoming {
    requests: mpsc::Sender<Asked>,
    next: u64,
}

/// How many requests of one stream may be unanswered.
pub(crate) const WINDOW: usize = 16;

/// Clones share the same calls.
#[derive(Clone)]
pub(crate) struct PendingCalls {
    pub(crate) own: MemberId,
    queue: MessageQueue,
    /// A process without its disk's power says nothing any more.
    disk: FaultyDisk,
    state: Arc<Mutex<State>>,
    sessions: Arc<Mutex<Sessions>>,
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
            state: Arc::default(),
            sessions: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process is still there; it may have been cut off in the middle of a step.
    pub(crate) fn alive(&self) -> bool {
        !self.disk.is_off()
    }

    pub(crate) fn send(&self, to: MemberId, body: Body) {
        if self.alive() {
            let from = self.own;
            self.queue.send(Message { from, to, body });
        }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions that this process serves as a proxy.
    pub(crate) fn relayed(&self) -> Vec<Relayed> {
        self.sessions().relayed(self.own)
    }

    pub(super) fn new_call(&self) -> CallId {
        self.queue.new_call()
    }

    /// A call whose answer is waited for.
    pub(crate) fn open_call(&self) -> (CallId, oneshot::Receiver<Reply>) {
        let call = self.queue.new_call();
        let (sender, receiver) = oneshot::channel();
        self.state().calls.insert(call, sender);
        (call, receiver)
    }

    pub(crate) fn close_call(&self, call: CallId) {
        self.state().calls.remove(&call);
    }

    pub(crate) fn replied(&self, call: CallId, reply: Reply) {
        let waits = self.state().calls.remove(&call);
        if let Some(waits) = waits {
            // Its caller may have given up.
            let _ = waits.send(reply);
        }
    }

    /// A stream of requests to another member.
    pub(crate) fn open_stream(
        &self,
    ) -> (CallId, mpsc::Sender<StreamNews>, mpsc::Receiver<StreamNews>) {
        let stream = self.queue.new_call();
        // Every request in the window, its end, and its breaking.
        let (sender, receiver) = mpsc::channel(WINDOW + 2);
        self.state().outgoing.insert(stream, sender.clone());
        (stream, sender, receiver)
    }

    pub(crate) fn close_stream(&self, stream: CallId) {
        self.state().outgoing.remove(&stream);
    }

    pub(crate) fn news(&self, stream: CallId, news: StreamNews) {
        if let Some(outgoing) = self.state().outgoing.get(&stream) {
            // There is room for all that can be under way; what is more was sent by nobody.
            let _ = outgoing.try_send(news);
        }
    }

    /// Takes the next request of an incoming stream in. `Some` for a new stream: its requests are to be
    /// given to the engine.
    pub(crate) fn request(
        &self,
        stream: CallId,
        number: u64,
        asked: Asked,
    ) -> Result<Option<mpsc::Receiver<Asked>>, String> {
        let mut state = self.state();
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
        self.state().incoming.remove(&stream);
    }
}

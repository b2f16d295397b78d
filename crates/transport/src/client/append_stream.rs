//! One append stream of the engine to a member. It compresses payloads for other regions, splits requests into messages, limits the bytes
//! in flight, and returns the answers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::task::AtomicWaker;
use futures::{FutureExt, Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, Timeout, Unreachable};
use openraft::network::RPCTypes;
use prost::Message;
use raft_types::{AppEntry, EntryPayload, SLOWEST_DISK_BYTES_PER_S, TypeConfig, lock};
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status, Streaming};

use crate::client::peers::Peer;
use crate::compression::Packer;
use crate::schema::{AppendAnswer, AppendPart};
use crate::wire::{PackedRequest, Splitter, answered_from};

// Bytes of a stream in flight. The sender waits at the limit; answers make room. The engine itself sends without a limit.

/// The window of one append stream, shared by its sender and its answers.
#[derive(Debug)]
pub(crate) struct Window {
    /// Limit of the bytes of entries in flight.
    most: usize,
    state: Mutex<State>,
    sender: AtomicWaker,
}

#[derive(Debug)]
struct State {
    /// The sizes of the entries of each sent and unanswered request.
    unanswered: VecDeque<usize>,
    bytes: usize,
    moved: Instant,
}

impl Window {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            state: Mutex::new(State {
                unanswered: VecDeque::new(),
                bytes: 0,
                moved: Instant::now(),
            }),
            sender: AtomicWaker::new(),
        }
    }

    /// Ready when another request may be sent. An entry larger than the window may be sent if nothing else is in flight.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.sender.register(context.waker());
        // An answer may have arrived between the two checks.
        match self.has_room() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Bytes in flight.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    fn has_room(&self) -> bool {
        self.bytes() < self.most
    }

    /// Records a sent message. If the message completes a request, `request` is the size of that request.
    pub(crate) fn sent(&self, request: Option<usize>) {
        let mut state = lock(&self.state);
        state.moved = Instant::now();
        if let Some(bytes) = request {
            state.bytes += bytes;
            state.unanswered.push_back(bytes);
        }
    }

    /// Records the answer to the oldest request. Returns false if no request was in flight.
    pub(crate) fn answered(&self) -> bool {
        let was_full = {
            let mut state = lock(&self.state);
            state.moved = Instant::now();
            let Some(bytes) = state.unanswered.pop_front() else {
                return false;
            };
            let was_full = state.bytes >= self.most;
            state.bytes -= bytes;
            was_full
        };
        if was_full {
            self.sender.wake();
        }
        true
    }

    /// Returns true if requests are in flight.
    pub(crate) fn is_open(&self) -> bool {
        !lock(&self.state).unanswered.is_empty()
    }

    /// Returns true if requests are in flight without progress. The limit is `deadline` plus the time that a slow disk needs to write them,
    /// because a member answers after its entries are durable.
    pub(crate) fn is_stalled(&self, deadline: Duration) -> bool {
        let state = lock(&self.state);
        let written = Duration::from_secs((state.bytes / SLOWEST_DISK_BYTES_PER_S) as u64);
        !state.unanswered.is_empty() && state.moved.elapsed() >= deadline + written
    }
}

// The answers to an append stream, for the engine, in the order of the requests. The first failure ends them. Each answer arrives before
// the stall deadline, or the stream fails.

type Item = RpcResult<Answered>;
/// The additional connections of a stream, until each of them ends.
pub(crate) type FurtherStripes = FuturesUnordered<BoxFuture<'static, Result<(), Status>>>;

/// The answers to one stream, in request order.
pub(crate) struct Answers {
    peer: Arc<Peer>,
    streaming: Streaming<AppendAnswer>,
    /// The additional connections of the stream, until each of them ends.
    stripes: FurtherStripes,
    window: Arc<Window>,
    /// Fires a few times per stall deadline, so that no timer is set for each message.
    check: Pin<Box<Sleep>>,
    ended: bool,
}

impl Answers {
    pub(crate) fn new(
        peer: Arc<Peer>,
        streaming: Streaming<AppendAnswer>,
        window: Arc<Window>,
        stripes: FurtherStripes,
    ) -> Self {
        let check = Box::pin(sleep(check_interval(&peer)));
        Self {
            peer,
            streaming,
            stripes,
            window,
            check,
            ended: false,
        }
    }

    fn decoded(&self, answer: AppendAnswer) -> Item {
        if !self.window.answered() {
            return Err(broken("the member sent an answer without a request"));
        }
        let answer = answered_from(answer).map_err(broken)?;
        self.peer.well();
        Ok(answer)
    }

    fn stalled(&self, deadline: Duration) -> RPCError<TypeConfig> {
        let message = format!("no progress for {deadline:?} while entries were being sent");
        self.peer.troubled(None, &message);
        RPCError::Timeout(Timeout {
            action: RPCTypes::AppendEntries,
            id: self.peer.own_id(),
            target: self.peer.id(),
            timeout: deadline,
        })
    }
}

impl Stream for Answers {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        loop {
            if let Poll::Ready(answer) = this.streaming.poll_next_unpin(context) {
                let item = match answer {
                    Some(Ok(answer)) => Some(this.decoded(answer)),
                    Some(Err(status)) => Some(Err(call_error(&this.peer, &status))),
                    None => {
                        let why = "the member ended the stream with requests unanswered";
                        this.window.is_open().then(|| Err(broken(why)))
                    }
                };
                this.ended = !matches!(item, Some(Ok(_)));
                return Poll::Ready(item);
            }
            while let Poll::Ready(Some(end)) = this.stripes.poll_next_unpin(context) {
                // A connection that ended without an error has delivered all its messages.
                if let Err(status) = end {
                    this.ended = true;
                    return Poll::Ready(Some(Err(call_error(&this.peer, &status))));
                }
            }
            ready!(this.check.poll_unpin(context));
            let deadline = this.peer.config.stall_deadline;
            if this.window.is_stalled(deadline) {
                this.ended = true;
                return Poll::Ready(Some(Err(this.stalled(deadline))));
            }
            let next = tokio::time::Instant::now() + check_interval(&this.peer);
            this.check.as_mut().reset(next);
        }
    }
}

fn check_interval(peer: &Peer) -> Duration {
    (peer.config.stall_deadline / 4).max(Duration::from_millis(1))
}

/// The error of a stream that failed; the engine opens another one.
fn broken(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Network(NetworkError::from_string(reason))
}

/// Returns the engine's error for a stream that failed after it was opened. If the member refused, the engine pauses before it retries. If
/// the connection broke, it retries immediately.
fn call_error(peer: &Peer, status: &Status) -> RPCError<TypeConfig> {
    let message = peer.failed(status);
    match status.code() {
        Code::Cancelled | Code::Unknown | Code::Internal => {
            RPCError::Network(NetworkError::from_string(message))
        }
        _ => RPCError::Unreachable(Unreachable::from_string(message)),
    }
}

// The engine's requests with compressed payloads for other regions.

/// The engine's requests. If there is a packer, their payloads are compressed.
pub(crate) fn packed(
    requests: impl Stream<Item = Asked> + Send + 'static,
    packer: Option<Arc<Packer>>,
) -> BoxStream<'static, PackedRequest> {
    let packed = requests.then(move |asked: Asked| {
        let packer = packer.clone();
        async move {
            match packer {
                None => asked.into(),
                Some(packer) => pack(&packer, asked).await,
            }
        }
    });
    packed.boxed()
}

async fn pack(packer: &Packer, asked: Asked) -> PackedRequest {
    let mut packed = Vec::with_capacity(asked.request.entries.len());
    for entry in &asked.request.entries {
        packed.push(match &entry.payload {
            EntryPayload::Normal(AppEntry::Transaction(payload)) => {
                packer.pack(entry.log_id.into(), payload.bytes()).await
            }
            _ => None,
        });
    }
    PackedRequest { asked, packed }
}

// The engine's requests as a message stream. The connection polls it directly, without a task in between.

/// The engine's requests as messages. A request is split when the connection polls.
pub(crate) struct Parts {
    pub(super) requests: BoxStream<'static, PackedRequest>,
    pub(super) window: Arc<Window>,
    pub(super) peer: Arc<Peer>,
    /// Maximum bytes of entries in a message.
    pub(super) most: usize,
    pub(super) current: Option<Splitter>,
    pub(super) ended: bool,
}

impl Stream for Parts {
    type Item = AppendPart;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AppendPart>> {
        let this = &mut *self;
        while !this.ended {
            let Some(splitter) = &mut this.current else {
                let request = ready!(this.requests.poll_next_unpin(context));
                this.ended = request.is_none();
                this.current = request.map(|request| Splitter::new(request, this.most));
                continue;
            };
            // In the middle of an entry, only HTTP/2's own window limits the sender.
            if !splitter.is_inside_entry() {
                ready!(this.window.poll_room(context));
            }
            match splitter.next_part() {
                Some(part) => {
                    this.window.sent(part.ends_request_of);
                    let bytes = part.message.encoded_len() as u64;
                    this.peer.count(|sent| sent.entries += bytes);
                    return Poll::Ready(Some(part.message));
                }
                None => this.current = None,
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use futures::task::noop_waker;
    use raft_types::REPLICATION_WINDOW_BYTES;

    use super::*;

    #[test]
    fn a_full_window_waits_for_an_answer() {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let window = Window::new(REPLICATION_WINDOW_BYTES);
        window.sent(Some(REPLICATION_WINDOW_BYTES - 1));
        assert!(window.poll_room(&mut context).is_ready());
        window.sent(Some(10));
        assert!(window.poll_room(&mut context).is_pending());
        assert!(window.answered());
        assert!(window.poll_room(&mut context).is_ready());
        assert!(window.is_open());
        assert!(window.answered());
        assert!(!window.is_open());
        assert!(!window.answered(), "an answer without a request");
    }

    #[test]
    fn only_requests_in_flight_can_stall() {
        let window = Window::new(REPLICATION_WINDOW_BYTES);
        assert!(!window.is_stalled(Duration::ZERO));
        window.sent(Some(0));
        assert!(window.is_stalled(Duration::ZERO));
        assert!(!window.is_stalled(Duration::from_secs(60)));
    }

    #[test]
    fn the_stall_deadline_includes_a_slow_disks_time() {
        let window = Window::new(REPLICATION_WINDOW_BYTES);
        window.sent(Some(REPLICATION_WINDOW_BYTES));
        assert!(!window.is_stalled(Duration::ZERO));
        window.sent(Some(0));
        assert!(window.answered());
        assert!(window.is_stalled(Duration::ZERO));
    }
}

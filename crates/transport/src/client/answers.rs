//! The answers to an append stream, for the engine: in the order of the requests, ended by the first
//! thing that goes wrong, and never later than the stall deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use consensus::log_probe::{Answered, RpcResult};
use futures::{FutureExt, Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, Timeout, Unreachable};
use openraft::network::RPCTypes;
use raft_types::TypeConfig;
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status, Streaming};

use super::peers::Peer;
use super::window::Window;
use crate::schema::AppendAnswer;
use crate::wire::answered_from;

type Item = RpcResult<Answered>;

/// See the module.
pub(crate) struct Answers {
    peer: Arc<Peer>,
    streaming: Streaming<AppendAnswer>,
    window: Arc<Window>,
    /// Goes off a few times within the stall deadline, so that nothing is armed for each message.
    look: Pin<Box<Sleep>>,
    ended: bool,
}

impl Answers {
    pub(crate) fn new(
        peer: Arc<Peer>,
        streaming: Streaming<AppendAnswer>,
        window: Arc<Window>,
    ) -> Self {
        let look = Box::pin(sleep(look_interval(&peer)));
        Self {
            peer,
            streaming,
            window,
            look,
            ended: false,
        }
    }

    fn take_in(&self, answer: AppendAnswer) -> Item {
        if !self.window.answered() {
            return Err(broken("the member answered what it was not asked"));
        }
        let answer = answered_from(answer).map_err(broken)?;
        self.peer.well();
        Ok(answer)
    }

    /// What an end without a status means.
    fn end(&self) -> Option<Item> {
        if let Some(reason) = self.window.take_failure() {
            return Some(Err(broken(reason)));
        }
        let open = self.window.is_open();
        open.then(|| {
            Err(broken(
                "the member ended the stream with requests unanswered",
            ))
        })
    }

    fn failed(&self, status: &Status) -> RPCError<TypeConfig> {
        call_error(&self.peer, status)
    }

    fn stalled(&self, deadline: Duration) -> RPCError<TypeConfig> {
        let message = format!("entries were under way for {deadline:?} and nothing moved");
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
                    Some(Ok(answer)) => Some(this.take_in(answer)),
                    Some(Err(status)) => Some(Err(this.failed(&status))),
                    None => this.end(),
                };
                this.ended = !matches!(item, Some(Ok(_)));
                return Poll::Ready(item);
            }
            ready!(this.look.poll_unpin(context));
            let deadline = this.peer.config.stall_deadline;
            if this.window.is_stalled(deadline) {
                this.ended = true;
                return Poll::Ready(Some(Err(this.stalled(deadline))));
            }
            let next = tokio::time::Instant::now() + look_interval(&this.peer);
            this.look.as_mut().reset(next);
        }
    }
}

fn look_interval(peer: &Peer) -> Duration {
    (peer.config.stall_deadline / 4).max(Duration::from_millis(1))
}

/// A stream that cannot be gone on with; the engine begins another one.
fn broken(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Network(NetworkError::from_string(reason))
}

/// A stream that failed after it was opened, as the engine tells errors apart: it waits before it tries again to reach a
/// member that refuses, and tries again at once when the connection broke in the middle.
fn call_error(peer: &Peer, status: &Status) -> RPCError<TypeConfig> {
    let message = peer.failed(status);
    match status.code() {
        Code::Cancelled | Code::Unknown | Code::Internal => {
            RPCError::Network(NetworkError::from_string(message))
        }
        _ => RPCError::Unreachable(Unreachable::from_string(message)),
    }
}

//! All sessions with one proxy use one stream, the line. Messages of different sessions that are ready together share a frame, in both
//! directions.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use proxy::LineBroken;
use raft_types::lock;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::schema::{ProxyAnswerFrame, ProxyAnswerPart, ProxyPart};

/// The line to one proxy. Its sessions own it, so it ends when the proxy's address changes or the proxy is no longer used.
#[derive(Debug, Default)]
pub(crate) struct ProxyLine(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Weak<OpenLine>,
    next_session: u32,
}

/// A stream that is open, or is being opened.
#[derive(Debug)]
pub(super) struct OpenLine {
    parts: mpsc::UnboundedSender<ProxyPart>,
    /// The receiver of each session's answers; `None` if the line is broken.
    sessions: Mutex<Option<Sessions>>,
}

pub(super) type Received = Result<ProxyAnswerPart, LineBroken>;
type Sessions = HashMap<u32, mpsc::UnboundedSender<Received>>;

impl OpenLine {
    /// Adds a session. Returns false if the line is broken.
    fn add(&self, session: u32, answers: &mpsc::UnboundedSender<Received>) -> bool {
        let mut sessions = lock(&self.sessions);
        let added = sessions
            .as_mut()
            .map(|all| all.insert(session, answers.clone()));
        added.is_some()
    }

    /// Distributes answers to the sessions.
    pub(super) fn hand_out(&self, frame: ProxyAnswerFrame) {
        let mut sessions = lock(&self.sessions);
        let Some(sessions) = sessions.as_mut() else {
            return;
        };
        for part in frame.parts {
            // If the session was dropped in the meantime, it does not need the answer.
            if let Some(session) = sessions.get(&part.session) {
                let _ = session.send(Ok(part));
            }
        }
    }

    fn broke(&self, why: &LineBroken) {
        let sessions = lock(&self.sessions).take();
        for session in sessions.unwrap_or_default().into_values() {
            let _ = session.send(Err(why.clone()));
        }
    }
}

/// Removes a session from its line when it is dropped. The receiver and the sender of the session share it. After the drop, nothing more is
/// sent.
pub(super) struct SessionHandle {
    line: Arc<OpenLine>,
    pub(super) session: u32,
}

impl SessionHandle {
    /// Sends a part of the session. Returns false if the line is broken.
    pub(super) fn send(&self, part: ProxyPart) -> bool {
        self.line.parts.send(part).is_ok()
    }

    /// Ends the requests of the session: no more follow, and pending ones are still answered.
    pub(super) fn end(&self) {
        self.send(ProxyPart {
            session: self.session,
            ends: true,
            ..ProxyPart::default()
        });
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        if let Some(sessions) = lock(&self.line.sessions).as_mut() {
            sessions.remove(&self.session);
        }
        // Ends the session at the proxy, if the line still exists. The first end means that no more requests follow, while pending ones are
        // still answered. The second end means that answers are no longer read.
        self.end();
        self.end();
    }
}

impl ProxyLine {
    /// Starts a session on the line. If there is no line, `carry` opens one, and runs until the line breaks or has no sessions left.
    /// `carry` then returns the reason.
    pub(super) fn session<F>(
        &self,
        carry: impl FnOnce(Together<ProxyPart>, Weak<OpenLine>) -> F,
    ) -> (SessionHandle, mpsc::UnboundedReceiver<Received>)
    where
        F: Future<Output = LineBroken> + Send + 'static,
    {
        let mut state = lock(&self.0);
        state.next_session = state.next_session.wrapping_add(1);
        let session = state.next_session;
        let (answers, received) = mpsc::unbounded_channel();
        if let Some(line) = state.open.upgrade()
            && line.add(session, &answers)
        {
            return (SessionHandle { line, session }, received);
        }
        let (parts, queue) = mpsc::unbounded_channel();
        let line = Arc::new(OpenLine {
            parts,
            sessions: Mutex::new(Some(HashMap::from([(session, answers)]))),
        });
        let open = Arc::downgrade(&line);
        let carried = carry(Together::new(queue), open.clone());
        state.open = open.clone();
        tokio::spawn(async move {
            let why = carried.await;
            if let Some(line) = open.upgrade() {
                line.broke(&why);
            }
        });
        (SessionHandle { line, session }, received)
    }
}

// Batches messages that are ready at the same time, in both directions, because a network frame costs more than a small message.

/// Maximum number of messages in a frame.
const MOST: usize = 256;

/// Aborts a task when the stream is dropped for which the task works.
pub(crate) struct AbortOnDrop(pub(crate) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The messages of a channel, in batches of those that are ready. Before a batch is sent, other senders get a turn.
pub(crate) struct Together<T> {
    queue: mpsc::UnboundedReceiver<T>,
    ready: Vec<T>,
    others_had_a_turn: bool,
}

impl<T> Together<T> {
    pub(crate) fn new(queue: mpsc::UnboundedReceiver<T>) -> Self {
        Self {
            queue,
            ready: Vec::new(),
            others_had_a_turn: false,
        }
    }
}

impl<T: Unpin> Stream for Together<T> {
    type Item = Vec<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<T>>> {
        let this = &mut *self;
        let room = MOST - this.ready.len();
        let ended = match this.queue.poll_recv_many(context, &mut this.ready, room) {
            Poll::Ready(received) => received == 0,
            Poll::Pending => false,
        };
        if this.ready.is_empty() {
            return match ended {
                true => Poll::Ready(None),
                false => Poll::Pending,
            };
        }
        if !this.others_had_a_turn && !ended && this.ready.len() < MOST {
            this.others_had_a_turn = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.others_had_a_turn = false;
        Poll::Ready(Some(std::mem::take(&mut this.ready)))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn ready_messages_share_a_frame_in_order() {
        let (sender, queue) = mpsc::unbounded_channel();
        let mut together = Together::new(queue);
        for number in 0..3 {
            sender.send(number).unwrap();
        }
        assert_eq!(together.next().await, Some(vec![0, 1, 2]));
        let later = sender.clone();
        tokio::spawn(async move {
            later.send(3).unwrap();
            tokio::spawn(async move { later.send(4).unwrap() });
        });
        assert_eq!(together.next().await, Some(vec![3, 4]));
        for number in 0..300 {
            sender.send(number).unwrap();
        }
        assert_eq!(together.next().await.map(|list| list.len()), Some(MOST));
        drop(sender);
        assert_eq!(
            together.next().await.map(|list| list.len()),
            Some(300 - MOST)
        );
        assert_eq!(together.next().await, None);
    }
}

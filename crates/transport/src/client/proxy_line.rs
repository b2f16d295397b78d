//! All sessions with one proxy on one stream: what they send at one moment travels together, and their answers come back so.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use proxy::LineBroken;
use tokio::sync::mpsc;

use crate::client::link_bytes::LinkCounters;
use crate::schema::{ProxyAnswerFrame, ProxyAnswerPart, ProxyFrame, ProxyPart};
use crate::together::Together;

/// The line to one proxy, for as long as it has sessions: they hold it, so that nothing of it stays when a proxy is called
/// elsewhere, or not at all any more.
#[derive(Debug, Default)]
pub(crate) struct ProxyLine(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Weak<OpenLine>,
    next_session: u32,
}

/// A stream that is there, or is just being opened.
#[derive(Debug)]
pub(super) struct OpenLine {
    parts: mpsc::UnboundedSender<ProxyPart>,
    /// Who waits for the answers of each session. None at all: the line is broken.
    sessions: Mutex<Option<Sessions>>,
}

pub(super) type Said = Result<ProxyAnswerPart, LineBroken>;
type Sessions = HashMap<u32, mpsc::UnboundedSender<Said>>;

impl OpenLine {
    fn sessions(&self) -> MutexGuard<'_, Option<Sessions>> {
        // Every change leaves the map whole.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a session may begin on it; not when it is broken.
    fn takes(&self, session: u32, answers: &mpsc::UnboundedSender<Said>) -> bool {
        let mut sessions = self.sessions();
        let sessions = sessions.as_mut();
        sessions
            .map(|all| all.insert(session, answers.clone()))
            .is_some()
    }

    /// Gives each session what it was answered.
    pub(super) fn hand_out(&self, frame: ProxyAnswerFrame) {
        let mut sessions = self.sessions();
        let Some(sessions) = sessions.as_mut() else {
            return;
        };
        for part in frame.parts {
            // A session that was dropped meanwhile has no use for it.
            if let Some(session) = sessions.get(&part.session) {
                let _ = session.send(Ok(part));
            }
        }
    }

    fn broke(&self, why: &LineBroken) {
        let Some(sessions) = self.sessions().take() else {
            return;
        };
        for session in sessions.into_values() {
            let _ = session.send(Err(why.clone()));
        }
    }
}

/// Takes a session out of its line, however it ends. Shared by who listens and who sends: when it is gone, nothing more is sent.
pub(super) struct SessionHandle {
    line: Arc<OpenLine>,
    pub(super) session: u32,
}

impl SessionHandle {
    /// Sends a part of the session. False when the line is broken.
    pub(super) fn send(&self, part: ProxyPart) -> bool {
        self.line.parts.send(part).is_ok()
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        if let Some(sessions) = self.line.sessions().as_mut() {
            sessions.remove(&self.session);
        }
        // Whoever serves it there shall stop, if the line is still there. Said once it means that no more requests come, and
        // what is sent on is still answered; said again it means that nobody listens.
        for _ in 0..2 {
            let _ = self.line.parts.send(ProxyPart {
                session: self.session,
                ends: true,
                ..ProxyPart::default()
            });
        }
    }
}

impl ProxyLine {
    /// A session on the line. Where there is none, `carry` opens one and carries it until it breaks, or nobody has a session
    /// on it any more; it says why it ended.
    pub(super) fn session<F>(
        &self,
        counters: &Arc<LinkCounters>,
        carry: impl FnOnce(Frames, Weak<OpenLine>) -> F,
    ) -> (SessionHandle, mpsc::UnboundedReceiver<Said>)
    where
        F: Future<Output = String> + Send + 'static,
    {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.next_session = state.next_session.wrapping_add(1);
        let session = state.next_session;
        let (answers, said) = mpsc::unbounded_channel();
        if let Some(line) = state.open.upgrade()
            && line.takes(session, &answers)
        {
            return (SessionHandle { line, session }, said);
        }
        let (parts, queue) = mpsc::unbounded_channel();
        let line = Arc::new(OpenLine {
            parts,
            sessions: Mutex::new(Some(HashMap::from([(session, answers)]))),
        });
        let frames = Frames {
            parts: Together::new(queue),
            counters: counters.clone(),
        };
        let (carried, broken) = (carry(frames, Arc::downgrade(&line)), Arc::downgrade(&line));
        tokio::spawn(async move {
            let why = carried.await;
            if let Some(line) = broken.upgrade() {
                line.broke(&LineBroken(why));
            }
        });
        state.open = Arc::downgrade(&line);
        (SessionHandle { line, session }, said)
    }
}

/// What goes out. A type of its own: a call is not `Send` with a stream that is boxed.
pub(super) struct Frames {
    parts: Together<ProxyPart>,
    counters: Arc<LinkCounters>,
}

impl Stream for Frames {
    type Item = ProxyFrame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ProxyFrame>> {
        let parts = self.parts.poll_next_unpin(context);
        parts.map(|parts| {
            let frame = ProxyFrame { parts: parts? };
            self.counters.op_ids(&frame);
            Some(frame)
        })
    }
}

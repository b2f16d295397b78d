//! All sessions with one proxy on one stream: what they send at one moment travels together, and their answers come back so.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use proxy::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest};
use raft_types::{MemberId, MemberRecord};
use tokio::sync::mpsc;

use super::link_bytes::LinkCounters;
use super::network::GrpcNetworkFactory;
use super::peers::Peer;
use crate::schema::{ProxyAnswerFrame, ProxyAnswerPart, ProxyFrame, ProxyPart};
use crate::together::Together;
use crate::wire::{AnswerReader, RequestWriter};

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
struct OpenLine {
    parts: mpsc::UnboundedSender<ProxyPart>,
    /// Who waits for the answers of each session. None at all: the line is broken.
    sessions: Mutex<Option<Sessions>>,
}

type Said = Result<ProxyAnswerPart, LineBroken>;
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

    fn hand_out(&self, frame: ProxyAnswerFrame) {
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
struct Seat {
    line: Arc<OpenLine>,
    session: u32,
}

impl Drop for Seat {
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
    /// A session on the line, which is opened where there is none.
    fn session(&self, peer: &Arc<Peer>) -> (Seat, mpsc::UnboundedReceiver<Said>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.next_session = state.next_session.wrapping_add(1);
        let session = state.next_session;
        let (answers, said) = mpsc::unbounded_channel();
        if let Some(line) = state.open.upgrade()
            && line.takes(session, &answers)
        {
            return (Seat { line, session }, said);
        }
        let (parts, queue) = mpsc::unbounded_channel();
        let line = Arc::new(OpenLine {
            parts,
            sessions: Mutex::new(Some(HashMap::from([(session, answers)]))),
        });
        let frames = Frames {
            parts: Together::new(queue),
            counters: peer.counters.clone(),
        };
        tokio::spawn(run(peer.clone(), Arc::downgrade(&line), frames));
        state.open = Arc::downgrade(&line);
        (Seat { line, session }, said)
    }
}

/// Carries a line until it breaks, or nobody has a session on it.
async fn run(peer: Arc<Peer>, line: Weak<OpenLine>, frames: Frames) {
    let broken = carry(&peer, &line, frames).await;
    if let Some(line) = line.upgrade() {
        line.broke(&LineBroken(broken));
    }
}

/// What goes out. A type of its own: a call is not `Send` with a stream that is boxed.
struct Frames {
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

async fn carry(peer: &Peer, line: &Weak<OpenLine>, frames: Frames) -> String {
    let mut client = match peer.bulk() {
        Ok(client) => client,
        Err(error) => return error.to_string(),
    };
    let opened = client.proxy(peer.sealed(frames));
    let mut answers = match tokio::time::timeout(peer.config.call_deadline, opened).await {
        Ok(Ok(answers)) => answers.into_inner(),
        Ok(Err(status)) => return peer.failed(&status),
        Err(_) => return format!("no answer within {:?}", peer.config.call_deadline),
    };
    loop {
        match answers.message().await {
            Ok(Some(frame)) => match line.upgrade() {
                Some(line) => line.hand_out(frame),
                None => return "nobody listens".to_owned(),
            },
            Ok(None) => return "the proxy ended the stream".to_owned(),
            Err(status) => return peer.failed(&status),
        }
    }
}

impl ProxyCalls for GrpcNetworkFactory {
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        mut requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let peer = self.peer(proxy, record);
        async move {
            // The vote is that of the first request: a session is of one leadership.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            let (seat, said) = peer.proxy_line.session(&peer);
            let writer = RequestWriter::new(seat.session, onward);
            let reader = AnswerReader::new(&first.vote);
            let seat = Arc::new(seat);
            let requests = stream::iter([first]).chain(requests).boxed();
            let sending = tokio::spawn(send(writer, requests, seat.clone()));
            let session = Session {
                seat,
                said,
                reader,
                sending,
            };
            Ok(stream::unfold(Some(session), |session| async { session?.next().await }).boxed())
        }
        .boxed()
    }
}

async fn send(
    mut writer: RequestWriter,
    mut requests: BoxStream<'static, ProxyRequest>,
    seat: Arc<Seat>,
) {
    let parts = &seat.line.parts;
    while let Some(request) = requests.next().await {
        let Some(part) = writer.write(&request) else {
            break;
        };
        if parts.send(part).is_err() {
            return;
        }
    }
    let _ = parts.send(writer.end());
}

struct Session {
    seat: Arc<Seat>,
    said: mpsc::UnboundedReceiver<Said>,
    reader: AnswerReader,
    sending: tokio::task::JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

impl Session {
    async fn next(mut self) -> Option<(Result<ProxyAnswer, LineBroken>, Option<Self>)> {
        let part = match self.said.recv().await {
            Some(Ok(part)) => part,
            Some(Err(broken)) => return Some((Err(broken), None)),
            None => {
                let session = self.seat.session;
                let lost = LineBroken(format!("session {session} has lost its line"));
                return Some((Err(lost), None));
            }
        };
        match self.reader.read(part) {
            Ok(Some(answer)) => Some((Ok(answer), Some(self))),
            Ok(None) => None,
            Err(error) => Some((Err(LineBroken(error.to_string())), None)),
        }
    }
}

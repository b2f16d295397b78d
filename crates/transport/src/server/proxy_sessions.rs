//! Serves the sessions on one line of a leader. Each session has its own task; the answers of all sessions share the stream.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use proxy::{ProxyRequest, ProxyService};
use raft_types::REPLICATION_WINDOW_BYTES;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::client::{AbortOnDrop, Together};
use crate::schema::{ProxyAnswerFrame, ProxyAnswerPart, ProxyFrame, ProxyOpen, ProxyPart};
use crate::wire::{AnswerWriter, Decoded, ENTRY_OVERHEAD, RequestReader, WireError};

/// Maximum number of queued requests of a session. A leader's unanswered requests contain at most one window of payloads.
const MOST_WAITING: usize = REPLICATION_WINDOW_BYTES / ENTRY_OVERHEAD;

/// Returns the answers to a line.
pub(crate) fn serve_line(
    service: Arc<dyn ProxyService>,
    frames: Streaming<ProxyFrame>,
) -> BoxStream<'static, Result<ProxyAnswerFrame, Status>> {
    let (answers, queue) = mpsc::unbounded_channel();
    let (failed, mut failure) = mpsc::unbounded_channel();
    let failure = stream::poll_fn(move |context| failure.poll_recv(context));
    let receiving = tokio::spawn(receive(service, frames, answers, failed));
    let line = AbortOnDrop(receiving.abort_handle());
    let together = Together::new(queue).map(move |parts| {
        // The closure owns the line, so the line exists until the answer stream is dropped.
        let _lives = &line;
        Ok(ProxyAnswerFrame { parts })
    });
    together.chain(failure.map(Err)).boxed()
}

/// A session, with its request queue and its task.
struct Session {
    reader: RequestReader,
    /// `None` after the last request.
    requests: Option<mpsc::Sender<ProxyRequest>>,
    serving: AbortOnDrop,
}

async fn receive(
    service: Arc<dyn ProxyService>,
    mut frames: Streaming<ProxyFrame>,
    answers: mpsc::UnboundedSender<ProxyAnswerPart>,
    failed: mpsc::UnboundedSender<Status>,
) {
    let mut sessions: HashMap<u32, Session> = HashMap::new();
    while let Ok(Some(frame)) = frames.message().await {
        for part in frame.parts {
            if let Err(error) = process(&service, &mut sessions, &answers, &part) {
                let _ = failed.send(Status::invalid_argument(error.to_string()));
                return;
            }
        }
        // Removes finished sessions.
        sessions.retain(|_, session| !session.serving.0.is_finished());
    }
}

fn process(
    service: &Arc<dyn ProxyService>,
    sessions: &mut HashMap<u32, Session>,
    answers: &mpsc::UnboundedSender<ProxyAnswerPart>,
    part: &ProxyPart,
) -> Decoded {
    if let Some(open) = &part.open {
        let session = open_session(service, answers, part.session, open)?;
        sessions.insert(part.session, session);
    }
    // Parts of a session that has ended may still be in flight.
    let Some(session) = sessions.get_mut(&part.session) else {
        return Ok(());
    };
    if part.ends {
        if session.requests.take().is_none() {
            // This is a second end: the leader no longer reads the answers.
            sessions.remove(&part.session);
        }
        return Ok(());
    }
    let request = session.reader.read(part)?;
    if let Some(requests) = &session.requests
        && let Err(mpsc::error::TrySendError::Full(_)) = requests.try_send(request)
    {
        return Err(WireError::OutOfOrder("more requests than a window has"));
    }
    Ok(())
}

fn open_session(
    service: &Arc<dyn ProxyService>,
    answers: &mpsc::UnboundedSender<ProxyAnswerPart>,
    number: u32,
    open: &ProxyOpen,
) -> Decoded<Session> {
    let (reader, onward) = RequestReader::open(open)?;
    let (requests, mut queue) = mpsc::channel::<ProxyRequest>(MOST_WAITING);
    let queue = stream::poll_fn(move |context| queue.poll_recv(context));
    let mut answered = service.serve(onward, queue.boxed());
    let mut writer = AnswerWriter::new(number, &reader.vote);
    let answers = answers.clone();
    let serving = tokio::spawn(async move {
        while let Some(answer) = answered.next().await {
            if answers.send(writer.write(answer)).is_err() {
                return;
            }
        }
        let _ = answers.send(writer.end());
    });
    Ok(Session {
        reader,
        requests: Some(requests),
        serving: AbortOnDrop(serving.abort_handle()),
    })
}

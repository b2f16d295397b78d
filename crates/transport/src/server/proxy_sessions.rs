//! The sessions on one line of a leader, each served by itself; their answers travel together.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use proxy::{ProxyRequest, ProxyService};
use raft_types::REPLICATION_WINDOW_BYTES;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tonic::{Status, Streaming};

use crate::schema::{ProxyAnswerFrame, ProxyAnswerPart, ProxyFrame, ProxyPart};
use crate::together::Together;
use crate::wire::{AnswerWriter, ENTRY_OVERHEAD, RequestReader, WireError};

/// Requests that may wait in one session: a leader has no more payload than a window under way.
const MOST_WAITING: usize = REPLICATION_WINDOW_BYTES / ENTRY_OVERHEAD;

/// What a line is answered.
pub(crate) fn serve_line(
    service: Arc<dyn ProxyService>,
    frames: Streaming<ProxyFrame>,
) -> BoxStream<'static, Result<ProxyAnswerFrame, Status>> {
    let (answers, queue) = mpsc::unbounded_channel();
    let (failed, failure) = mpsc::unbounded_channel();
    let taking_in = tokio::spawn(take_in(service, frames, answers, failed));
    let line = Line(taking_in.abort_handle());
    let together = Together::new(queue).map(move |parts| {
        // The line lives as long as its answers are wanted.
        let _lives = &line;
        Ok(ProxyAnswerFrame { parts })
    });
    together.chain(last_word(failure)).boxed()
}

/// Ends what serves the line when nobody wants its answers.
struct Line(AbortHandle);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn last_word(
    failure: mpsc::UnboundedReceiver<Status>,
) -> impl Stream<Item = Result<ProxyAnswerFrame, Status>> + Send {
    stream::unfold(failure, |mut failure| async move {
        let status = failure.recv().await?;
        Some((Err(status), failure))
    })
}

/// One session: where its requests go, and who serves it.
struct Session {
    reader: RequestReader,
    /// Gone once nothing more comes.
    requests: Option<mpsc::Sender<ProxyRequest>>,
    serving: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take_in(
    service: Arc<dyn ProxyService>,
    mut frames: Streaming<ProxyFrame>,
    answers: mpsc::UnboundedSender<ProxyAnswerPart>,
    failed: mpsc::UnboundedSender<Status>,
) {
    let mut sessions: HashMap<u32, Session> = HashMap::new();
    while let Ok(Some(frame)) = frames.message().await {
        for part in frame.parts {
            if let Err(error) = take_part(&service, &mut sessions, &answers, &part) {
                let _ = failed.send(Status::invalid_argument(error.to_string()));
                return;
            }
        }
        // Those that are served to the end.
        sessions.retain(|_, session| !session.serving.is_finished());
    }
}

fn take_part(
    service: &Arc<dyn ProxyService>,
    sessions: &mut HashMap<u32, Session>,
    answers: &mpsc::UnboundedSender<ProxyAnswerPart>,
    part: &ProxyPart,
) -> Result<(), WireError> {
    if let Some(open) = &part.open {
        let session = open_session(service, answers, part.session, open)?;
        sessions.insert(part.session, session);
    }
    // One that is over may have parts on their way.
    let Some(session) = sessions.get_mut(&part.session) else {
        return Ok(());
    };
    if part.ends {
        match session.requests.take() {
            Some(_) => {}
            // Said twice: the leader has dropped it.
            None => drop(sessions.remove(&part.session)),
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
    open: &crate::schema::ProxyOpen,
) -> Result<Session, WireError> {
    let (reader, onward) = RequestReader::open(open)?;
    let (requests, queue) = mpsc::channel::<ProxyRequest>(MOST_WAITING);
    let queue = stream::unfold(queue, |mut queue| async move {
        let request = queue.recv().await?;
        Some((request, queue))
    });
    let mut said = service.serve(onward, queue.boxed());
    let mut writer = AnswerWriter::new(number, &reader.vote());
    let answers = answers.clone();
    let serving = tokio::spawn(async move {
        while let Some(answer) = said.next().await {
            if answers.send(writer.write(answer)).is_err() {
                return;
            }
        }
        let _ = answers.send(writer.end());
    });
    Ok(Session {
        reader,
        requests: Some(requests),
        serving: serving.abort_handle(),
    })
}

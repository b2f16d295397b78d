//! The end of a stream that sends the requests: they go out while the window has room, and the answers come back in
//! their order. Dropping the answers closes the stream.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, Unreachable};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use raft_types::{MemberId, TypeConfig};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::desk::{Desk, StreamNews, WINDOW};
use super::message::{Body, CallId};

pub(super) type StreamAnswer = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

/// How long nothing may move while requests are under way.
const STALL_DEADLINE: Duration = Duration::from_secs(2);

struct Answers {
    stream: CallId,
    to: MemberId,
    desk: Desk,
    news: mpsc::Receiver<StreamNews>,
    window: Arc<Semaphore>,
    sender: JoinHandle<()>,
    answered: u64,
    /// How many requests there were in all, once that is known.
    all: Option<u64>,
    over: bool,
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.sender.abort();
        self.desk.close_stream(self.stream);
        self.desk.send(self.to, Body::Closed(self.stream));
    }
}

/// Sends the requests and gives the answers back.
pub(super) fn exchange<S>(desk: Desk, to: MemberId, requests: S) -> BoxStream<'static, StreamAnswer>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
{
    let (stream, ended, news) = desk.open_stream();
    let window = Arc::new(Semaphore::new(WINDOW));
    let sending = send_all(desk.clone(), to, stream, window.clone(), requests, ended);
    let answers = Answers {
        stream,
        to,
        sender: tokio::spawn(sending),
        desk,
        news,
        window,
        answered: 0,
        all: None,
        over: false,
    };
    stream::unfold(answers, |mut answers| async move {
        let answer = answers.next().await?;
        Some((answer, answers))
    })
    .boxed()
}

async fn send_all<S>(
    desk: Desk,
    to: MemberId,
    stream: CallId,
    window: Arc<Semaphore>,
    mut requests: S,
    ended: mpsc::Sender<StreamNews>,
) where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    let mut number = 0;
    while let Some(request) = requests.next().await {
        let Ok(room) = window.acquire().await else {
            return;
        };
        room.forget();
        let request = Body::Request {
            stream,
            number,
            request,
        };
        desk.send(to, request);
        number += 1;
    }
    // Nobody listens any more when the answers were dropped.
    let _ = ended.send(StreamNews::Ended(number)).await;
}

impl Answers {
    async fn next(&mut self) -> Option<StreamAnswer> {
        loop {
            if self.over || self.all.is_some_and(|all| all == self.answered) {
                return None;
            }
            let idle = self.window.available_permits() == WINDOW;
            let news = tokio::time::timeout(STALL_DEADLINE, self.news.recv()).await;
            match news {
                Ok(Some(StreamNews::Answer(answer))) => {
                    self.answered += 1;
                    self.window.add_permits(1);
                    self.over = answer.is_err();
                    return Some(Ok(answer));
                }
                Ok(Some(StreamNews::Ended(all))) => self.all = Some(all),
                Ok(Some(StreamNews::Broken(why))) => {
                    self.over = true;
                    return Some(Err(RPCError::Unreachable(Unreachable::from_string(why))));
                }
                Ok(None) => return None,
                Err(_) if idle => {}
                Err(_) => {
                    self.over = true;
                    let why = format!("nothing has moved for {STALL_DEADLINE:?}");
                    return Some(Err(RPCError::Network(NetworkError::from_string(why))));
                }
            }
        }
    }
}

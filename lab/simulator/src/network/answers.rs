//! The requesting end of a stream. Sends requests while the window has room, and returns the answers in order. Dropping the answers closes
//! the stream.

use std::sync::Arc;
use std::time::Duration;

use consensus::Timers;
use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, Unreachable};
use raft_types::MemberId;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::message::{Body, CallId};
use super::pending_calls::{PendingCalls, StreamNews, WINDOW};

/// How long requests may be in flight without progress before the connection is checked and closed, as in the real transport.
pub(crate) fn dead_after(timers: &Timers) -> Duration {
    let keepalive = timers.heartbeat.max(Duration::from_millis(250));
    keepalive + timers.longest_election().max(Duration::from_secs(1))
}

struct Answers {
    stream: CallId,
    to: MemberId,
    pending: PendingCalls,
    news: mpsc::Receiver<StreamNews>,
    window: Arc<Semaphore>,
    sender: JoinHandle<()>,
    answered: u64,
    /// The total number of requests, after the last one was sent.
    all: Option<u64>,
    over: bool,
    dead_after: Duration,
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.sender.abort();
        self.pending.close_stream(self.stream);
        self.pending.send(self.to, Body::Closed(self.stream));
    }
}

/// Sends the requests, and returns the answers.
pub(super) fn exchange<S>(
    pending: PendingCalls,
    to: MemberId,
    dead_after: Duration,
    requests: S,
) -> BoxStream<'static, RpcResult<Answered>>
where
    S: Stream<Item = Asked> + Send + Unpin + 'static,
{
    let (stream, ended, news) = pending.open_stream();
    let window = Arc::new(Semaphore::new(WINDOW));
    let sending = send_all(pending.clone(), to, stream, window.clone(), requests, ended);
    let answers = Answers {
        stream,
        to,
        sender: tokio::spawn(sending),
        pending,
        news,
        window,
        answered: 0,
        all: None,
        over: false,
        dead_after,
    };
    stream::unfold(answers, |mut answers| async move {
        let answer = answers.next().await?;
        Some((answer, answers))
    })
    .boxed()
}

async fn send_all<S>(
    pending: PendingCalls,
    to: MemberId,
    stream: CallId,
    window: Arc<Semaphore>,
    mut requests: S,
    ended: mpsc::Sender<StreamNews>,
) where
    S: Stream<Item = Asked> + Unpin,
{
    let mut number = 0;
    while let Some(asked) = requests.next().await {
        let Ok(room) = window.acquire().await else {
            return;
        };
        room.forget();
        let request = Body::Request {
            stream,
            number,
            asked,
        };
        pending.send(to, request);
        number += 1;
    }
    // If the answers were dropped, there is no receiver.
    let _ = ended.send(StreamNews::Ended(number)).await;
}

impl Answers {
    async fn next(&mut self) -> Option<RpcResult<Answered>> {
        loop {
            if self.over || self.all.is_some_and(|all| all == self.answered) {
                return None;
            }
            let idle = self.window.available_permits() == WINDOW;
            let news = tokio::time::timeout(self.dead_after, self.news.recv()).await;
            match news {
                Ok(Some(StreamNews::Answer(answer))) => {
                    self.answered += 1;
                    self.window.add_permits(1);
                    self.over = answer.result.is_err();
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
                    let why = format!("nothing has moved for {:?}", self.dead_after);
                    return Some(Err(RPCError::Network(NetworkError::from_string(why))));
                }
            }
        }
    }
}

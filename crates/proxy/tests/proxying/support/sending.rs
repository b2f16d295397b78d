//! An engine's use of a client: consecutive streams of requests.

use std::ops::Range;
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::{StreamExt, stream};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, StreamAppendError};
use raft_types::LogId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::log::Log;
use super::ring::{Client, vote};

/// The engine's limit of entries in a request.
const MOST_ENTRIES: u64 = 64;

fn option() -> RPCOption {
    RPCOption::new(Duration::from_secs(1))
}

/// Returns a request with some entries of the leader's log.
pub(crate) fn request(log: &Log, range: Range<u64>) -> Asked {
    let previous = range
        .start
        .checked_sub(1)
        .and_then(|index| log.id_at(index));
    Asked::new(
        AppendEntriesRequest {
            vote: vote(),
            prev_log_id: previous,
            entries: log.range(range),
            leader_commit: previous,
        },
        false,
    )
}

/// Consecutive streams with the requests of the test.
pub(crate) struct Sending {
    log: Log,
    requests: mpsc::UnboundedSender<Asked>,
    answers: mpsc::UnboundedReceiver<RpcResult<Answered>>,
    running: JoinHandle<Client>,
}

impl Sending {
    pub(crate) fn over(mut client: Client, log: Log) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let (answered, answers) = mpsc::unbounded_channel();
        let running = tokio::spawn(async move {
            let receive = |mut queue: mpsc::UnboundedReceiver<_>| async move {
                let asked = queue.recv().await?;
                Some((asked, queue))
            };
            let queue = stream::unfold(queue, receive).boxed();
            match client.stream(queue, option()).await {
                Err(error) => drop(answered.send(Err(error))),
                Ok(mut answers) => {
                    while let Some(answer) = answers.next().await {
                        let _ = answered.send(answer);
                    }
                }
            }
            client
        });
        Self {
            log,
            requests,
            answers,
            running,
        }
    }

    /// Opens the next stream after this one has ended.
    pub(crate) async fn open_another(&mut self) {
        let client = (&mut self.running).await.unwrap();
        *self = Self::over(client, self.log.clone());
    }

    /// Sends some entries of the leader's log.
    pub(crate) fn send(&self, range: Range<u64>) {
        self.ask(request(&self.log, range));
    }

    pub(crate) fn ask(&self, asked: Asked) {
        self.requests.send(asked).unwrap();
    }

    /// Returns the next answer; `None` after the stream has ended.
    pub(crate) async fn answer(&mut self) -> Option<RpcResult<Answered>> {
        self.answers.recv().await
    }

    /// Returns up to where the member's log equals the leader's, according to the member's next answer.
    pub(crate) async fn matching(&mut self) -> Option<u64> {
        let answered = self.answer().await.expect("an answer").unwrap();
        answered.result.unwrap().map(|matching| matching.index)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Sends a member all new entries of the leader's log, until it is dropped.
pub(crate) struct Replication(JoinHandle<()>);

impl Drop for Replication {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Replication {
    pub(crate) fn over(mut client: Client, log: Log) -> Self {
        Self(tokio::spawn(async move {
            let mut matching = None;
            loop {
                let requests = requests(log.clone(), matching);
                if let Ok(mut answers) = client.stream(requests.boxed(), option()).await {
                    while let Some(Ok(answered)) = answers.next().await {
                        match answered.result {
                            Ok(upto) => matching = upto,
                            Err(StreamAppendError::Conflict(at)) => {
                                let before = at.index.checked_sub(1);
                                matching = before.and_then(|before| log.id_at(before));
                                break;
                            }
                            Err(StreamAppendError::HigherVote(_)) => return,
                        }
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }))
    }
}

/// Returns all entries after `matching`, and later all new ones.
fn requests(log: Log, matching: Option<LogId>) -> impl futures::Stream<Item = Asked> + Send {
    let next = matching.map_or(0, |matching| matching.index + 1);
    stream::unfold((log, next), |(log, next)| async move {
        log.grows_to(next + 1).await;
        let upto = log.next_index().min(next + MOST_ENTRIES);
        Some((request(&log, next..upto), (log, upto)))
    })
}

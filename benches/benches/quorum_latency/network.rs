//! A network within one process that delays every message by the distance between its members. Requests of a stream are sent without
//! waiting for answers, as over a real connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use raft_types::{MemberId, TypeConfig};
use testkit::network::{Call, Carrier, Link, Port, Reply, unreachable};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::delay_timer::DelayTimer;
use super::distances::Distances;
use super::receiver::Receiver;

/// The most requests in flight on one stream, like the product's window for small entries.
const WINDOW: usize = 4096;

/// All members and the distances between them.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    delay_timer: DelayTimer,
    distances: Distances,
    members: Mutex<BTreeMap<MemberId, Receiver>>,
}

impl Network {
    pub(crate) fn new(delay_timer: DelayTimer, distances: Distances) -> Self {
        Self(Arc::new(Inner {
            delay_timer,
            distances,
            members: Mutex::default(),
        }))
    }

    /// Returns the network's end at one member.
    pub(crate) fn port(&self, own: MemberId) -> Port<Self> {
        Port::new(own, self.clone())
    }

    pub(crate) fn connect(&self, id: MemberId, receiver: Receiver) {
        self.lock().insert(id, receiver);
    }

    /// Removes all members from the network.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn receiver(&self, id: MemberId) -> Result<Receiver, &'static str> {
        let receiver = self.lock().get(&id).cloned();
        receiver.ok_or("the member is not there yet")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<MemberId, Receiver>> {
        self.0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry(
        self,
        delay: Duration,
        mut requests: BoxStream<'static, Asked>,
        to_member: mpsc::Sender<AppendEntriesRequest<TypeConfig>>,
        window: Arc<Semaphore>,
    ) {
        while let Some(asked) = requests.next().await {
            let Ok(room) = window.acquire().await else {
                return;
            };
            room.forget();
            let to_member = to_member.clone();
            // The channel has room, since it is at least as large as the window. If it is closed, the stream has ended.
            self.0.delay_timer.after(delay, move || {
                drop(to_member.try_send(asked.request));
            });
        }
    }

    async fn bring_back(
        self,
        delay: Duration,
        mut answers: BoxStream<'static, RpcResult<StreamAppendResult<TypeConfig>>>,
        to_leader: mpsc::Sender<RpcResult<Answered>>,
    ) {
        while let Some(answer) = answers.next().await {
            let report = None;
            let answered = answer.map(|result| Answered { result, report });
            let to_leader = to_leader.clone();
            self.0.delay_timer.after(delay, move || {
                drop(to_leader.try_send(answered));
            });
        }
    }
}

impl Carrier for Network {
    async fn call(&self, link: Link, call: Call, deadline: Duration) -> Option<Reply> {
        let delay = self.0.distances.one_way(link.from, link.to);
        let there_and_back = async {
            self.0.delay_timer.wait(delay).await;
            let reply = match self.receiver(link.to) {
                Ok(receiver) => receiver.take(link.from, call).await,
                Err(why) => return Reply::Unreachable(why.to_owned()),
            };
            self.0.delay_timer.wait(delay).await;
            reply
        };
        tokio::time::timeout(deadline, there_and_back).await.ok()
    }

    async fn stream(
        &self,
        link: Link,
        requests: BoxStream<'static, Asked>,
        _: Duration,
    ) -> RpcResult<BoxStream<'static, RpcResult<Answered>>> {
        let delay = self.0.distances.one_way(link.from, link.to);
        let receiver = self.receiver(link.to).map_err(unreachable)?;
        let (to_member, arriving) = mpsc::channel(WINDOW);
        let (to_leader, answers) = mpsc::channel(WINDOW);
        let window = Arc::new(Semaphore::new(WINDOW));
        let mut tasks = JoinSet::new();
        let carrying = self
            .clone()
            .carry(delay, requests, to_member, window.clone());
        tasks.spawn(carrying);
        let answering = receiver.append(receive(arriving));
        tasks.spawn(self.clone().bring_back(delay, answering, to_leader));
        let open = (answers, window, tasks);
        let answers = stream::unfold(open, |(mut answers, window, tasks)| async move {
            let answer = answers.recv().await?;
            window.add_permits(1);
            Some((answer, (answers, window, tasks)))
        });
        Ok(answers.boxed())
    }
}

fn receive<T: Send + 'static>(
    receiver: mpsc::Receiver<T>,
) -> impl Stream<Item = T> + Send + Unpin + 'static {
    stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    })
    .boxed()
}

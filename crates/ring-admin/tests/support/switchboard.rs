//! A network inside one process: a call is passed directly to the other member, unless the line between the members is cut. A call on a cut
//! line fails at its deadline. A line can have a delay; then requests are pipelined.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, RpcResult};
use consensus::{Inbound, Question};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use openraft::raft::AppendEntriesRequest;
use raft_types::{MemberId, OwnLog, TypeConfig};
use testkit::network::{Call, Carrier, Link, Port, Reply, receive, unreachable};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::memory_log::MemoryDisk;

/// The number of requests or answers that can be in flight on a line.
const PIPELINE: usize = 64;

/// All lines between all members.
#[derive(Clone, Default)]
pub(crate) struct Switchboard(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    members: BTreeMap<MemberId, (Inbound, MemoryDisk)>,
    /// Directed lines on which the caller cannot reach the callee.
    cut: BTreeSet<Link>,
    /// The one-way delays of lines; zero for missing lines.
    distances: BTreeMap<Link, Duration>,
    /// The number of requests with entries that were sent on each line.
    requests: BTreeMap<Link, u64>,
    campaigns_asked: Vec<MemberId>,
    /// Directed lines on which the caller cannot call the callee, but still answers calls of the callee.
    lost: BTreeSet<Link>,
    /// Directed lines that pass heartbeats, but not entries.
    without_entries: BTreeSet<Link>,
    /// Notified when a line is added to `without_entries`.
    entries_lost: Arc<Notify>,
    /// Directed lines on which the callee's address refuses new connections, even if a process listens there.
    refused: BTreeSet<Link>,
}

impl Switchboard {
    /// Returns a member's connection to the network.
    pub(crate) fn port(&self, own: MemberId) -> Port<Self> {
        Port::new(own, self.clone())
    }

    /// Connects a member. Its reports about its log are read from the disk.
    pub(crate) fn connect(&self, id: MemberId, inbound: Inbound, disk: MemoryDisk) {
        self.lines().members.insert(id, (inbound, disk));
    }

    /// Sets the one-way delay between two members.
    pub(crate) fn set_distance(&self, one: MemberId, other: MemberId, one_way: Duration) {
        let link = Link {
            from: one,
            to: other,
        };
        let both = [(link, one_way), (link.back(), one_way)];
        self.lines().distances.extend(both);
    }

    /// Returns the number of requests with entries from one member to another.
    pub(crate) fn requests(&self, from: MemberId, to: MemberId) -> u64 {
        let link = Link { from, to };
        self.lines().requests.get(&link).copied().unwrap_or(0)
    }

    /// Disconnects a member, like a crash.
    pub(crate) fn disconnect(&self, id: MemberId) {
        self.lines().members.remove(&id);
    }

    /// Disconnects a member as after the exit of its process: its host closes the connections, and refuses new ones.
    pub(crate) fn hang_up(&self, id: MemberId) {
        self.disconnect(id);
        let others: Vec<MemberId> = self.lines().members.keys().copied().collect();
        for other in others {
            self.close(id, other);
        }
    }

    /// Closes the connections that one member has opened to another.
    pub(crate) fn close(&self, from: MemberId, to: MemberId) {
        let link = Link { from, to };
        if self.is_cut(link) {
            return;
        }
        let board = self.clone();
        tokio::spawn(async move {
            board.travel(link).await;
            if let Some(Some((inbound, _))) = board.far_end(link) {
                inbound.hung_up(from);
            }
        });
    }

    /// Makes the address of `to` refuse new connections from `from`, although a process listens there.
    pub(crate) fn refuse(&self, from: MemberId, to: MemberId) {
        self.lines().refused.insert(Link { from, to });
    }

    /// Cuts both directions between a member and all others.
    pub(crate) fn isolate(&self, id: MemberId, others: impl IntoIterator<Item = MemberId>) {
        for other in others.into_iter().filter(|other| *other != id) {
            self.cut(id, other);
            self.cut(other, id);
        }
    }

    /// Cuts the line in one direction.
    pub(crate) fn cut(&self, from: MemberId, to: MemberId) {
        self.lines().cut.insert(Link { from, to });
    }

    /// Prevents calls of `from` to `to`, as with a wrong address. Member `from` still answers the calls of `to`.
    pub(crate) fn lose(&self, from: MemberId, to: MemberId) {
        self.lines().lost.insert(Link { from, to });
    }

    /// Drops requests with entries from one member to another, like a path that drops large packets.
    pub(crate) fn lose_entries(&self, from: MemberId, to: MemberId) {
        let mut lines = self.lines();
        lines.without_entries.insert(Link { from, to });
        lines.entries_lost.notify_waiters();
    }

    /// Repairs all lines.
    pub(crate) fn heal(&self) {
        self.lines().cut.clear();
        self.lines().lost.clear();
        self.lines().without_entries.clear();
    }

    /// Returns the members that were asked to campaign.
    pub(crate) fn campaigns_asked(&self) -> Vec<MemberId> {
        self.lines().campaigns_asked.clone()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap()
    }

    fn is_cut(&self, link: Link) -> bool {
        self.lines().cut.contains(&link)
    }

    fn distance(&self, link: Link) -> Duration {
        let distance = self.lines().distances.get(&link).copied();
        distance.unwrap_or_default()
    }

    async fn travel(&self, link: Link) {
        let distance = self.distance(link);
        if !distance.is_zero() {
            sleep(distance).await;
        }
    }

    /// Returns the member at the other end of a line, if it runs; the outer `None` if the line is cut.
    fn far_end(&self, link: Link) -> Option<Option<(Inbound, MemoryDisk)>> {
        let lines = self.lines();
        let open = !lines.cut.contains(&link) && !lines.lost.contains(&link);
        open.then(|| lines.members.get(&link.to).cloned())
    }

    /// Returns the requests as they arrive at the other end of a line, each after the line's delay.
    fn requests_arriving(
        self,
        link: Link,
        asked: impl Stream<Item = Asked> + Send + 'static,
        wanted: Arc<Mutex<VecDeque<bool>>>,
    ) -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static {
        let leaving = asked.map(move |asked| {
            if !asked.request.entries.is_empty() {
                *self.lines().requests.entry(link).or_default() += 1;
            }
            let lost = self.far_end(link).is_none() || self.lines().without_entries.contains(&link);
            let at = Instant::now() + self.distance(link);
            async move {
                sleep_until(at).await;
                if lost {
                    std::future::pending::<()>().await;
                }
                asked
            }
        });
        leaving.buffered(PIPELINE).map(move |asked| {
            wanted.lock().unwrap().push_back(asked.wants_report);
            asked.request
        })
    }
}

/// Returns the member at the other end of a line, or why it is not reached. If the line is cut, this waits until the deadline.
async fn reached<T>(far_end: Option<Option<T>>, deadline: Duration) -> Result<T, &'static str> {
    match far_end {
        Some(end) => end.ok_or("the member is down"),
        None => {
            sleep(deadline).await;
            Err("the line is cut")
        }
    }
}

impl Carrier for Switchboard {
    async fn call(&self, link: Link, call: Call, deadline: Duration) -> Option<Reply> {
        if let Call::Ask(Question::Campaign { .. }) = call {
            self.lines().campaigns_asked.push(link.to);
        }
        let far_end = self.far_end(link);
        self.travel(link).await;
        if let Call::Knock = call
            && (self.lines().refused.contains(&link) || matches!(far_end, Some(None)))
        {
            self.travel(link.back()).await;
            return Some(Reply::Refused);
        }
        let reply = match reached(far_end, deadline).await {
            Ok((inbound, _)) => receive(&inbound, link.from, call).await,
            Err(why) => return Some(Reply::Unreachable(why.to_owned())),
        };
        self.travel(link.back()).await;
        let way_back = (!self.is_cut(link.back())).then_some(Some(reply));
        let brought = reached(way_back, deadline).await;
        Some(brought.unwrap_or_else(|why| Reply::Unreachable(why.to_owned())))
    }

    async fn stream(
        &self,
        link: Link,
        requests: BoxStream<'static, Asked>,
        deadline: Duration,
    ) -> RpcResult<BoxStream<'static, RpcResult<Answered>>> {
        let far_end = reached(self.far_end(link), deadline).await;
        let (inbound, disk) = far_end.map_err(unreachable)?;
        inbound.leads(link.from);
        let wanted = Arc::new(Mutex::new(VecDeque::new()));
        let arriving = self
            .clone()
            .requests_arriving(link, requests, wanted.clone());
        let board = self.clone();
        let without_entries = async move {
            let changed = board.lines().entries_lost.clone();
            loop {
                let notified = changed.notified();
                if board.lines().without_entries.contains(&link) {
                    break;
                }
                notified.await;
            }
            sleep(deadline).await;
        };
        let board = self.clone();
        let stalled = stream::once(async move {
            let lost = board.lines().without_entries.contains(&link);
            lost.then(|| Err(unreachable("large packets are lost")))
        });
        let board = self.clone();
        let answers = inbound.append(arriving).map(move |answer| {
            let wants_report = wanted.lock().unwrap().pop_front() == Some(true);
            let report = wants_report.then(|| disk.report());
            let answer = answer.map_err(unreachable);
            let answered = answer.map(|result| Answered { result, report });
            let board = board.clone();
            let at = Instant::now() + board.distance(link.back());
            async move {
                sleep_until(at).await;
                let way_back = (!board.is_cut(link.back())).then_some(Some(answered?));
                reached(way_back, deadline).await.map_err(unreachable)
            }
        });
        let answers = answers
            .buffered(PIPELINE)
            .take_until(Box::pin(without_entries));
        Ok(answers
            .chain(stalled.filter_map(std::future::ready))
            .boxed())
    }
}

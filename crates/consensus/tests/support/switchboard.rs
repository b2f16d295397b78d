//! A network inside one process: calls go straight from one member to the other, unless the line
//! between them is cut. A cut line does not refuse a call, it lets it run into its deadline. A line can
//! be long: then everything on it takes its time, and requests follow each other without waiting.

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

/// How many requests or answers a line carries at once.
const PIPELINE: usize = 64;

/// All lines between all members.
#[derive(Clone, Default)]
pub(crate) struct Switchboard(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    members: BTreeMap<MemberId, (Inbound, MemoryDisk)>,
    /// Directed: the caller does not reach the other.
    cut: BTreeSet<Link>,
    /// One way; what is not here takes no time.
    distances: BTreeMap<Link, Duration>,
    /// Requests with entries that went out.
    requests: BTreeMap<Link, u64>,
    campaigns_asked: Vec<MemberId>,
    /// Directed: the caller does not find the other, whose own calls it answers.
    lost: BTreeSet<Link>,
    /// Directed: heartbeats pass, and entries do not.
    without_entries: BTreeSet<Link>,
    /// That is so of one more.
    entries_lost: Arc<Notify>,
    /// Directed: the other's address refuses the caller, whether anything listens there or not.
    refused: BTreeSet<Link>,
}

impl Switchboard {
    /// The end of the lines at one member.
    pub(crate) fn port(&self, own: MemberId) -> Port<Self> {
        Port::new(own, self.clone())
    }

    /// Connects a member; the disk is what it reports of.
    pub(crate) fn connect(&self, id: MemberId, inbound: Inbound, disk: MemoryDisk) {
        self.lines().members.insert(id, (inbound, disk));
    }

    /// Lets everything between two members take this long, one way.
    pub(crate) fn set_distance(&self, one: MemberId, other: MemberId, one_way: Duration) {
        let link = Link {
            from: one,
            to: other,
        };
        let both = [(link, one_way), (link.back(), one_way)];
        self.lines().distances.extend(both);
    }

    /// How many requests with entries went from one member to another.
    pub(crate) fn requests(&self, from: MemberId, to: MemberId) -> u64 {
        let link = Link { from, to };
        self.lines().requests.get(&link).copied().unwrap_or(0)
    }

    /// Takes a member away, as a crash does.
    pub(crate) fn disconnect(&self, id: MemberId) {
        self.lines().members.remove(&id);
    }

    /// Takes a member away, as the end of its process does: its machine closes its connections, and refuses new ones.
    pub(crate) fn hang_up(&self, id: MemberId) {
        self.disconnect(id);
        let others: Vec<MemberId> = self.lines().members.keys().copied().collect();
        for other in others {
            self.close(id, other);
        }
    }

    /// The connections that one member has opened to another one are closed.
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

    /// From now on the address of `to` refuses new connections of `from`, although somebody listens there.
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

    /// Cuts one direction.
    pub(crate) fn cut(&self, from: MemberId, to: MemberId) {
        self.lines().cut.insert(Link { from, to });
    }

    /// One member does not find another one any more, as by a wrong address of it; what that one asks, it answers.
    pub(crate) fn lose(&self, from: MemberId, to: MemberId) {
        self.lines().lost.insert(Link { from, to });
    }

    /// Large packets are lost between one member and another one.
    pub(crate) fn lose_entries(&self, from: MemberId, to: MemberId) {
        let mut lines = self.lines();
        lines.without_entries.insert(Link { from, to });
        lines.entries_lost.notify_waiters();
    }

    /// Mends all lines.
    pub(crate) fn heal(&self) {
        self.lines().cut.clear();
        self.lines().lost.clear();
        self.lines().without_entries.clear();
    }

    /// Whom members asked to campaign.
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

    /// The other end as it is now; none where the line is cut.
    fn far_end(&self, link: Link) -> Option<Option<(Inbound, MemoryDisk)>> {
        let lines = self.lines();
        let open = !lines.cut.contains(&link) && !lines.lost.contains(&link);
        open.then(|| lines.members.get(&link.to).cloned())
    }

    /// The requests as they come to the other end, each after its time on the line.
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

/// The member at the other end, or why there is none: a cut line says so at the deadline.
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

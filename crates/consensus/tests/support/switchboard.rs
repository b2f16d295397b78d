//! A network inside one process: calls go straight from one member to the other, unless the line
//! between them is cut. A cut line does not refuse a call, it lets it run into its deadline. A line can
//! be long: then everything on it takes its time, and requests follow each other without waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, ReportingNetwork};
use consensus::{Answer, CallError, Inbound, MemberCalls, Question};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, OwnLog, TypeConfig, Vote};
use tokio::time::{Instant, sleep, sleep_until};

use super::memory_log::MemoryDisk;

/// All lines between all members.
#[derive(Clone, Default)]
pub(crate) struct Switchboard(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    members: BTreeMap<MemberId, (Inbound, MemoryDisk)>,
    /// Directed: the first does not reach the second.
    cut: BTreeSet<(MemberId, MemberId)>,
    /// One way; what is not here takes no time.
    distances: BTreeMap<(MemberId, MemberId), Duration>,
    /// Requests with entries that went out.
    requests: BTreeMap<(MemberId, MemberId), u64>,
    campaigns_asked: Vec<MemberId>,
}

impl Switchboard {
    /// The end of the lines at one member.
    pub(crate) fn port(&self, own: MemberId) -> Port {
        Port {
            board: self.clone(),
            own,
        }
    }

    /// Connects a member; the disk is what it reports of.
    pub(crate) fn connect(&self, id: MemberId, inbound: Inbound, disk: MemoryDisk) {
        self.lines().members.insert(id, (inbound, disk));
    }

    /// Lets everything between two members take this long, one way.
    pub(crate) fn set_distance(&self, one: MemberId, other: MemberId, one_way: Duration) {
        let both = [((one, other), one_way), ((other, one), one_way)];
        self.lines().distances.extend(both);
    }

    /// How many requests with entries went from one member to another.
    pub(crate) fn requests(&self, from: MemberId, to: MemberId) -> u64 {
        self.lines().requests.get(&(from, to)).copied().unwrap_or(0)
    }

    /// Takes a member away, as a crash does.
    pub(crate) fn disconnect(&self, id: MemberId) {
        self.lines().members.remove(&id);
    }

    /// Cuts both directions between a member and all others.
    pub(crate) fn isolate(&self, id: MemberId, others: impl IntoIterator<Item = MemberId>) {
        for other in others.into_iter().filter(|other| *other != id) {
            self.lines().cut.extend([(id, other), (other, id)]);
        }
    }

    /// Cuts one direction.
    pub(crate) fn cut(&self, from: MemberId, to: MemberId) {
        self.lines().cut.insert((from, to));
    }

    /// Mends all lines.
    pub(crate) fn heal(&self) {
        self.lines().cut.clear();
    }

    /// Whom members asked to campaign.
    pub(crate) fn campaigns_asked(&self) -> Vec<MemberId> {
        self.lines().campaigns_asked.clone()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap()
    }
}

impl Lines {
    fn distance(&self, from: MemberId, to: MemberId) -> Duration {
        self.distances.get(&(from, to)).copied().unwrap_or_default()
    }
}

/// One member's end.
#[derive(Clone)]
pub(crate) struct Port {
    board: Switchboard,
    own: MemberId,
}

impl Port {
    fn line(&self, target: MemberId) -> Line {
        Line {
            board: self.board.clone(),
            from: self.own,
            to: target,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Port {
    type Network = Line;

    async fn new_client(&mut self, target: MemberId, _: &MemberRecord) -> Line {
        self.line(target)
    }
}

impl MemberCalls for Port {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        _: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        async move {
            if let Question::Campaign { .. } = question {
                self.board.lines().campaigns_asked.push(to);
            }
            let line = self.line(to);
            let reached = line.reach(deadline).await;
            let inbound = reached.map_err(|error| CallError(error.to_string()))?;
            let answer = inbound.answer(self.own, question).await?;
            let back = line.back(answer, deadline).await;
            back.map_err(|error| CallError(error.to_string()))
        }
        .boxed()
    }
}

/// A line to one member.
#[derive(Clone)]
pub(crate) struct Line {
    board: Switchboard,
    from: MemberId,
    to: MemberId,
}

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

impl Line {
    /// The other end, or the deadline.
    async fn reach(&self, deadline: Duration) -> RpcResult<Inbound> {
        let (inbound, distance) = {
            let lines = self.board.lines();
            let open = !lines.cut.contains(&(self.from, self.to));
            let inbound = open.then(|| lines.members.get(&self.to).cloned());
            (inbound, lines.distance(self.from, self.to))
        };
        if !distance.is_zero() {
            sleep(distance).await;
        }
        match inbound {
            Some(Some((inbound, _))) => Ok(inbound),
            Some(None) => Err(unreachable("the member is down")),
            None => {
                tokio::time::sleep(deadline).await;
                Err(unreachable("the line is cut"))
            }
        }
    }

    /// Brings an answer back, or the deadline.
    async fn back<T>(&self, answer: T, deadline: Duration) -> RpcResult<T> {
        let distance = self.board.lines().distance(self.to, self.from);
        if !distance.is_zero() {
            sleep(distance).await;
        }
        if self.board.lines().cut.contains(&(self.to, self.from)) {
            tokio::time::sleep(deadline).await;
            return Err(unreachable("the line back is cut"));
        }
        Ok(answer)
    }
}

fn unreachable(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

impl RaftNetworkV2<TypeConfig> for Line {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound.heartbeat(rpc).await.map_err(unreachable)?;
        self.back(answer.into(), option.hard_ttl()).await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let line = &*self;
        let deadline = option.hard_ttl();
        let answers = stream::unfold(Some(input), move |input| async move {
            let mut input = input?;
            let request = input.next().await?;
            let answer = line.append_one(request, deadline).await;
            let goes_on = matches!(answer, Ok(Ok(_)));
            Some((answer, goes_on.then_some(input)))
        });
        async move { Ok(answers.boxed()) }.boxed()
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound.vote(rpc).await.map_err(unreachable)?;
        self.back(answer, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound.pre_vote(rpc).await.map_err(unreachable)?;
        self.back(answer, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let start = snapshot.snapshot.expect("the log has file starts");
        let answer = inbound.install(vote, start).await.map_err(unreachable)?;
        Ok(self.back(answer, option.hard_ttl()).await?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let inbound = self.reach(option.hard_ttl()).await?;
        let answer = inbound
            .transfer_leader(request)
            .await
            .map_err(unreachable)?;
        self.back(answer, option.hard_ttl()).await
    }
}

impl Line {
    async fn append_one(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let inbound = self.reach(deadline).await?;
        let heartbeat = request.entries.is_empty();
        if !heartbeat {
            self.count_request();
        }
        let answer = if heartbeat {
            inbound.heartbeat(request).await
        } else {
            let mut answers = inbound.append(stream::iter([request]));
            answers
                .next()
                .await
                .ok_or_else(|| unreachable("no answer"))?
        };
        self.back(answer.map_err(unreachable)?, deadline).await
    }
}

/// How many requests or answers a line carries at once.
const PIPELINE: usize = 64;

impl ReportingNetwork for Line {
    fn stream_reported<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        let deadline = option.hard_ttl();
        async move {
            let mut requests = requests;
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            let (inbound, disk) = self.far_end(deadline).await?;
            let wanted = Arc::new(Mutex::new(VecDeque::new()));
            let asked = stream::iter([first]).chain(requests);
            let arriving = self.clone().requests_arriving(asked, wanted.clone());
            let line = &*self;
            let answers = inbound.append(arriving).map(move |answer| {
                let wants_report = wanted.lock().unwrap().pop_front() == Some(true);
                let report = wants_report.then(|| disk.report());
                let answer = answer.map_err(unreachable);
                let answered = answer.map(|result| Answered { result, report });
                let at = Instant::now() + line.board.lines().distance(line.to, line.from);
                async move {
                    sleep_until(at).await;
                    line.back_from_afar(answered?, deadline).await
                }
            });
            Ok(answers.buffered(PIPELINE).boxed())
        }
        .boxed()
    }
}

impl Line {
    fn count_request(&self) {
        let mut lines = self.board.lines();
        *lines.requests.entry((self.from, self.to)).or_default() += 1;
    }

    /// The other end without the way to it.
    async fn far_end(&self, deadline: Duration) -> RpcResult<(Inbound, MemoryDisk)> {
        let end = {
            let lines = self.board.lines();
            let open = !lines.cut.contains(&(self.from, self.to));
            open.then(|| lines.members.get(&self.to).cloned())
        };
        match end {
            Some(Some(end)) => Ok(end),
            Some(None) => Err(unreachable("the member is down")),
            None => {
                sleep(deadline).await;
                Err(unreachable("the line is cut"))
            }
        }
    }

    /// The requests as they come to the other end, each after its time on the line.
    fn requests_arriving(
        self,
        asked: impl Stream<Item = Asked> + Send + 'static,
        wanted: Arc<Mutex<VecDeque<bool>>>,
    ) -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static {
        let leaving = asked.map(move |asked| {
            if !asked.request.entries.is_empty() {
                self.count_request();
            }
            let lines = self.board.lines();
            let lost = lines.cut.contains(&(self.from, self.to));
            let at = Instant::now() + lines.distance(self.from, self.to);
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

    async fn back_from_afar(&self, answered: Answered, deadline: Duration) -> RpcResult<Answered> {
        if self.board.lines().cut.contains(&(self.to, self.from)) {
            sleep(deadline).await;
            return Err(unreachable("the line back is cut"));
        }
        Ok(answered)
    }
}

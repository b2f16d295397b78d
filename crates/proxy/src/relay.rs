//! The proxy's end: it takes requests without payloads, puts back what its own log has, and sends them on.
//!
//! It decides nothing: the leader keeps all bookkeeping, and the member's engine judges each request as if the leader itself
//! had sent it. An entry is read by its op id, which is unique in a ring, and its checksum is checked where it is read from
//! a file and where it arrives; so it does not matter whether it is durable here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::matching::{Answered, Asked, ReportingNetwork};
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt, stream};
use openraft::network::{RPCOption, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, StreamAppendError};
use raft_types::{Entry, LogId, MemberId, MemberRecord, OpId, OwnLog, TypeConfig};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use crate::board::Board;
use crate::calls::{ProxyAnswers, ProxyCalls, ProxyService};
use crate::request::{ProxyAnswer, ProxyRequest, payload_bytes};

/// Answers that wait for the leader's line.
const QUEUE: usize = 64;

/// A member as a proxy.
#[derive(Clone)]
pub struct Relay<F, C> {
    own: MemberId,
    log: Arc<dyn OwnLog>,
    network: F,
    calls: C,
    board: Board,
    records: Records,
}

/// Tells of a member of the ring.
pub type Records = Arc<dyn Fn(MemberId) -> Option<MemberRecord> + Send + Sync>;

impl<F, C> Relay<F, C>
where
    F: RaftNetworkFactory<TypeConfig, Network: ReportingNetwork> + Clone,
    C: ProxyCalls,
{
    /// Sends on over `network`, which knows no proxies, and over `calls` to other ones.
    pub fn new(
        own: MemberId,
        log: Arc<dyn OwnLog>,
        network: F,
        calls: C,
        board: Board,
        records: Records,
    ) -> Self {
        Self {
            own,
            log,
            network,
            calls,
            board,
            records,
        }
    }

    fn begin(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer> {
        self.board
            .traffic()
            .relayed(|relayed| relayed.sessions += 1);
        match self.next_of(&onward) {
            Err(why) => {
                self.board.traffic().relayed(|relayed| relayed.refused += 1);
                stream::iter([ProxyAnswer::Refused(why)]).boxed()
            }
            Ok((next, record)) => {
                let (answers, answered) = mpsc::channel(QUEUE);
                let relay = self.clone();
                tokio::spawn(async move {
                    let stopped = answers.clone();
                    tokio::select! {
                        () = stopped.closed() => {}
                        () = relay.carry(next, record, onward, requests, answers) => {}
                    }
                });
                let receive = |mut answered: mpsc::Receiver<_>| async move {
                    let answer = answered.recv().await?;
                    Some((answer, answered))
                };
                stream::unfold(answered, receive).boxed()
            }
        }
    }

    /// Who is next, if the way can be gone.
    fn next_of(&self, onward: &[MemberId]) -> Result<(MemberId, MemberRecord), String> {
        let limit = self.board.options().max_hops;
        if onward.len() > limit {
            let hops = onward.len();
            return Err(format!(
                "{hops} more hops are asked for, and {limit} are allowed"
            ));
        }
        if onward.contains(&self.own) {
            return Err(format!("the way leads back to member {}", self.own));
        }
        let next = *onward.first().ok_or("nobody is named to send on to")?;
        let known = (self.records)(next);
        let known = known.ok_or_else(|| format!("member {next} is not in this member's ring"))?;
        Ok((next, known))
    }

    async fn carry(
        self,
        next: MemberId,
        record: MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
        answers: mpsc::Sender<ProxyAnswer>,
    ) {
        let further = onward.get(1..).unwrap_or_default();
        let last = match further {
            [] => self.put_back(next, &record, requests, &answers).await,
            further => {
                let opened = self
                    .calls
                    .open(next, &record, further.to_vec(), requests)
                    .await;
                match opened {
                    Err(broken) => Some(cannot_call(next, broken)),
                    Ok(said) => hand_back(next, said, &answers).await,
                }
            }
        };
        let Some(last) = last else { return };
        self.board.traffic().relayed(|relayed| match &last {
            ProxyAnswer::Missing { .. } => relayed.missing += 1,
            ProxyAnswer::CannotCall { .. } => relayed.cannot_call += 1,
            ProxyAnswer::Refused(_) => relayed.refused += 1,
            ProxyAnswer::Answered(_) | ProxyAnswer::SentOn(_) => {}
        });
        // Who does not listen any more has no use for it.
        let _ = answers.send(last).await;
    }

    /// Sends on to who the entries are for. What ends the session, if something does.
    async fn put_back(
        &self,
        target: MemberId,
        record: &MemberRecord,
        requests: BoxStream<'static, ProxyRequest>,
        answers: &mpsc::Sender<ProxyAnswer>,
    ) -> Option<ProxyAnswer> {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let options = self.board.options();
        let putting_back = PuttingBack {
            appended: self.log.appended(),
            log: self.log.clone(),
            requests,
            current: None,
            wait: options.wait,
            progress: progress.clone(),
            board: self.board.clone(),
        };
        let whole = stream::unfold(putting_back, |mut state| async move {
            let asked = state.next().await?;
            Some((asked, state))
        });
        let mut client = self.network.clone().new_client(target, record).await;
        let option = RPCOption::new(options.wait);
        // The opening is a part of it: it waits for the first request to be put together, and for the member to be reached.
        let mut coming = client
            .stream_reported(whole.boxed(), option)
            .try_flatten_stream();
        let mut sign = tokio::time::interval(options.sign_of_life());
        sign.reset();
        loop {
            let answer = tokio::select! {
                answer = coming.next() => answer,
                _ = sign.tick() => {
                    let upto = lock(&progress).unanswered();
                    if let Some(upto) = upto && answers.send(ProxyAnswer::SentOn(upto)).await.is_err() {
                        return None;
                    }
                    continue;
                }
            };
            match answer {
                Some(Ok(answered)) => {
                    lock(&progress).answered(&answered);
                    sign.reset();
                    if answers.send(ProxyAnswer::Answered(answered)).await.is_err() {
                        return None;
                    }
                }
                Some(Err(error)) => {
                    return Some(ended(&progress).unwrap_or_else(|| cannot_call(target, error)));
                }
                None => return ended(&progress),
            }
        }
    }
}

impl<F, C> ProxyService for Relay<F, C>
where
    F: RaftNetworkFactory<TypeConfig, Network: ReportingNetwork> + Clone,
    C: ProxyCalls,
{
    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer> {
        self.begin(onward, requests)
    }
}

/// Hands on what another proxy says.
async fn hand_back(
    next: MemberId,
    mut said: ProxyAnswers,
    answers: &mpsc::Sender<ProxyAnswer>,
) -> Option<ProxyAnswer> {
    while let Some(answer) = said.next().await {
        match answer {
            Ok(answer) => answers.send(answer).await.ok()?,
            Err(broken) => return Some(cannot_call(next, broken)),
        }
    }
    None
}

fn cannot_call(member: MemberId, error: impl std::error::Error) -> ProxyAnswer {
    ProxyAnswer::CannotCall {
        member,
        why: error.to_string(),
    }
}

/// How far a session is.
#[derive(Debug, Default)]
struct Progress {
    /// A request is being put together.
    waits: bool,
    /// The last entry that was sent on.
    sent: u64,
    /// Where the requests end that were sent on and are not answered.
    due: VecDeque<Option<LogId>>,
    /// What ends the session, after the answers that are due.
    end: Option<ProxyAnswer>,
}

impl Progress {
    fn sent(&mut self, asked: &Asked) {
        let last = asked.request.entries.last().map(|entry| entry.log_id);
        if let Some(last) = last {
            self.sent = last.index;
        }
        self.due.push_back(last.or(asked.request.prev_log_id));
    }

    fn answered(&mut self, answered: &Answered) {
        match answered.result {
            Ok(matching) => {
                while self.due.front().is_some_and(|last| *last <= matching) {
                    self.due.pop_front();
                }
            }
            // Nothing more is answered after it.
            Err(_) => self.due.clear(),
        }
    }

    /// Up to where entries were sent on, while an answer is due.
    fn unanswered(&self) -> Option<u64> {
        (self.waits || !self.due.is_empty()).then_some(self.sent)
    }
}

type SharedProgress = Arc<Mutex<Progress>>;

fn lock(progress: &SharedProgress) -> std::sync::MutexGuard<'_, Progress> {
    // Every change leaves it whole.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(progress: &SharedProgress) -> Option<ProxyAnswer> {
    lock(progress).end.take()
}

/// Puts entries back into requests, in their order.
struct PuttingBack {
    log: Arc<dyn OwnLog>,
    appended: watch::Receiver<u64>,
    requests: BoxStream<'static, ProxyRequest>,
    current: Option<Current>,
    wait: Duration,
    progress: SharedProgress,
    board: Board,
}

/// A request of which something is to be sent on yet.
struct Current {
    request: ProxyRequest,
    previous: Option<LogId>,
    next: u64,
    wants_report: bool,
    deadline: Instant,
}

/// What the log has of a request.
enum Found {
    Entries(Vec<Entry>),
    NotYet,
    Purged,
}

impl PuttingBack {
    /// The next request to send on; none when the session is over.
    async fn next(&mut self) -> Option<Asked> {
        if lock(&self.progress).end.is_some() {
            return None;
        }
        if self.current.is_none() {
            let request = self.requests.next().await?;
            self.begin(request)?;
        }
        lock(&self.progress).waits = true;
        let asked = self.rest_of_current().await;
        let mut progress = lock(&self.progress);
        progress.waits = self.current.is_some();
        if let Some(asked) = &asked {
            progress.sent(asked);
        }
        drop(progress);
        asked
    }

    fn begin(&mut self, request: ProxyRequest) -> Option<()> {
        let end = if !request.is_whole() {
            Some(ProxyAnswer::Refused(
                "the entries of a request do not follow each other".to_owned(),
            ))
        } else {
            // A later leader was heard of here: its word ends the session as the member's own would.
            let later = self.log.report().vote.filter(|vote| *vote > request.vote);
            later.map(|vote| {
                ProxyAnswer::Answered(Answered {
                    result: Err(StreamAppendError::HigherVote(vote)),
                    report: None,
                })
            })
        };
        if let Some(end) = end {
            lock(&self.progress).end = Some(end);
            return None;
        }
        self.current = Some(Current {
            previous: request.previous,
            next: request.first_index(),
            wants_report: request.wants_report,
            deadline: Instant::now() + self.wait,
            request,
        });
        Some(())
    }

    async fn rest_of_current(&mut self) -> Option<Asked> {
        loop {
            self.appended.borrow_and_update();
            let current = self.current.as_mut()?;
            if current.request.is_empty() {
                let asked = current.take(Vec::new());
                self.current = None;
                return Some(asked);
            }
            let op_id = OpId::new(current.request.term_at(current.next)?, current.next);
            match find(self.log.as_ref(), current).await {
                Found::Entries(entries) => {
                    let (count, bytes) = (entries.len() as u64, payload_bytes(&entries) as u64);
                    self.board.traffic().relayed(|relayed| {
                        relayed.entries += count;
                        relayed.bytes += bytes;
                    });
                    let asked = current.take(entries);
                    if current
                        .request
                        .last()
                        .is_none_or(|last| last.index < current.next)
                    {
                        self.current = None;
                    }
                    return Some(asked);
                }
                Found::Purged => return Some(self.give_up(op_id, true)),
                Found::NotYet => {
                    let deadline = current.deadline;
                    let grown = timeout_at(deadline, self.appended.changed()).await;
                    if !matches!(grown, Ok(Ok(()))) {
                        return Some(self.give_up(op_id, false));
                    }
                }
            }
        }
    }

    /// Ends the session behind a request without entries, which tells the member that its leader lives.
    fn give_up(&mut self, op_id: OpId, purged: bool) -> Asked {
        lock(&self.progress).end = Some(ProxyAnswer::Missing { op_id, purged });
        match self.current.take() {
            Some(mut current) => current.take(Vec::new()),
            None => unreachable!("only a request that was begun is given up"),
        }
    }
}

impl Current {
    /// A request with these entries, behind which this one goes on.
    fn take(&mut self, entries: Vec<Entry>) -> Asked {
        let previous = self.previous;
        if let Some(last) = entries.last() {
            self.previous = Some(last.log_id);
            self.next = last.log_id.index + 1;
        }
        Asked {
            request: AppendEntriesRequest {
                vote: self.request.vote,
                prev_log_id: previous,
                entries,
                leader_commit: self.request.leader_commit,
            },
            wants_report: std::mem::take(&mut self.wants_report),
        }
    }
}

/// The entries that a request wants next, as many as one reading brings.
async fn find(log: &dyn OwnLog, current: &Current) -> Found {
    let Some(last) = current.request.last() else {
        return Found::NotYet;
    };
    // Asked before reading: an entry that is durable then and cannot be read is purged.
    let durable = log.report().runs.last().map(|run| run.last);
    let read = log
        .entries(current.next..last.index + 1)
        .await
        .unwrap_or_default();
    let there = read
        .first()
        .is_some_and(|first| first.log_id.index == current.next);
    if !there {
        return match durable {
            Some(durable) if durable >= current.next => Found::Purged,
            _ => Found::NotYet,
        };
    }
    let wanted = (current.next..).zip(&read).take_while(|(index, entry)| {
        let OpId { term, index: found } = entry.log_id.into();
        found == *index && current.request.term_at(found) == Some(term)
    });
    match wanted.count() {
        0 => Found::NotYet,
        count => {
            let mut entries = read;
            entries.truncate(count);
            Found::Entries(entries)
        }
    }
}

//! The proxy's end: it accepts requests without payloads, adds the payloads from its own log, and forwards the requests.
//!
//! The proxy makes no decisions. The leader keeps all replication state, and the member's engine checks each request as if the leader had
//! sent it. An entry is found by its op id, which is unique in a ring. The checksum of an entry is checked when it is read from a file and
//! when it arrives. So the entry need not be durable on the proxy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consensus::log_probe::{Answered, Asked, Departure, Lane, MemberNetwork};
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt, stream};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, StreamAppendError};
use raft_types::{
    Entry, LogId, MemberId, MemberRecord, OpId, OwnLog, SLOWEST_DISK_BYTES_PER_S, lock,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use crate::proxy_op::{ProxyAnswer, ProxyCalls, ProxyRequest, ProxyService, payload_bytes};
use crate::route_table::RouteTable;

/// Maximum number of answers that wait for the leader's connection.
const QUEUE: usize = 64;

/// A member as a proxy.
#[derive(Clone)]
pub struct Relay<C> {
    own: MemberId,
    log: Arc<dyn OwnLog>,
    network: Arc<dyn MemberNetwork>,
    calls: C,
    route_table: RouteTable,
}

impl<C: ProxyCalls> Relay<C> {
    /// Creates a relay. It forwards to members over `network`, which uses no proxies, and to other proxies over `calls`.
    pub fn new(
        own: MemberId,
        log: Arc<dyn OwnLog>,
        network: impl MemberNetwork,
        calls: C,
        route_table: RouteTable,
    ) -> Self {
        Self {
            own,
            log,
            network: Arc::new(network),
            calls,
            route_table,
        }
    }

    /// Returns the next member of the route, or the refusal if the route is not possible.
    fn next_of(&self, onward: &[MemberId]) -> Result<(MemberId, MemberRecord), ProxyAnswer> {
        let refused = |why: String| Err(ProxyAnswer::Refused(why));
        let (hops, limit) = (onward.len(), self.route_table.options().max_hops);
        if hops > limit {
            return refused(format!(
                "{hops} more hops are asked for, and {limit} are allowed"
            ));
        }
        if onward.contains(&self.own) {
            return refused(format!("the route leads back to member {}", self.own));
        }
        let Some(&next) = onward.first() else {
            return refused("no member is named to forward to".to_owned());
        };
        match self.route_table.record_in_the_ring(next) {
            Some(record) => Ok((next, record)),
            None => refused(format!("member {next} is not in this member's ring")),
        }
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
            [] => self.reconstitute(next, &record, requests, &answers).await,
            further => {
                let opened = self
                    .calls
                    .open(next, &record, further.to_vec(), requests)
                    .await;
                match opened {
                    Err(broken) => Some(cannot_call(next, broken)),
                    Ok(mut received) => loop {
                        match received.next().await {
                            Some(Ok(answer)) => match answers.send(answer).await {
                                Ok(()) => {}
                                Err(_) => return,
                            },
                            Some(Err(broken)) => break Some(cannot_call(next, broken)),
                            None => return,
                        }
                    },
                }
            }
        };
        let Some(last) = last else { return };
        self.route_table.traffic().relayed(|relayed| match &last {
            ProxyAnswer::Missing { .. } => relayed.missing += 1,
            ProxyAnswer::CannotCall { .. } => relayed.cannot_call += 1,
            ProxyAnswer::Refused(_) => relayed.refused += 1,
            ProxyAnswer::Answered(_) | ProxyAnswer::SentOn { .. } => {}
        });
        // If the receiver is closed, the leader does not need the answer.
        let _ = answers.send(last).await;
    }

    /// Forwards requests to the target of the entries. Returns the answer that ends the session, if any.
    async fn reconstitute(
        &self,
        target: MemberId,
        record: &MemberRecord,
        requests: BoxStream<'static, ProxyRequest>,
        answers: &mpsc::Sender<ProxyAnswer>,
    ) -> Option<ProxyAnswer> {
        let progress = Arc::<Mutex<Progress>>::default();
        let options = self.route_table.options();
        let reconstitution = Reconstitution {
            appended: self.log.appended(),
            log: self.log.clone(),
            requests,
            current: None,
            wait: options.wait,
            progress: progress.clone(),
            route_table: self.route_table.clone(),
        };
        let whole = stream::unfold(reconstitution, |mut state| async move {
            let asked = state.next().await?;
            Some((asked, state))
        });
        let mut client = self.network.client(Lane::Entries, target, record);
        let option = RPCOption::new(options.wait);
        // Opening the stream is part of this future. It waits until the first request is assembled, and the member is reached.
        let mut coming = client.stream(whole.boxed(), option).try_flatten_stream();
        let mut sign = tokio::time::interval(options.sign_of_life());
        sign.reset();
        loop {
            let answer = tokio::select! {
                answer = coming.next() => answer,
                _ = sign.tick() => {
                    let answer = lock(&progress).sign_of_life(Instant::now());
                    if let Some(answer) = answer && answers.send(answer).await.is_err() {
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
                    let end = lock(&progress).end.take();
                    return end.or_else(|| Some(cannot_call(target, error)));
                }
                None => return lock(&progress).end.take(),
            }
        }
    }
}

impl<C: ProxyCalls> ProxyService for Relay<C> {
    fn part_arrives(&self) {
        self.route_table.part_arrives();
    }

    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer> {
        let traffic = self.route_table.traffic();
        traffic.relayed(|relayed| relayed.sessions += 1);
        match self.next_of(&onward) {
            Err(refusal) => {
                traffic.relayed(|relayed| relayed.refused += 1);
                stream::iter([refusal]).boxed()
            }
            Ok((next, record)) => {
                let (answers, mut answered) = mpsc::channel(QUEUE);
                let relay = self.clone();
                tokio::spawn(async move {
                    let stopped = answers.clone();
                    tokio::select! {
                        () = stopped.closed() => {}
                        () = relay.carry(next, record, onward, requests, answers) => {}
                    }
                });
                stream::poll_fn(move |context| answered.poll_recv(context)).boxed()
            }
        }
    }
}

fn cannot_call(member: MemberId, error: impl std::error::Error) -> ProxyAnswer {
    ProxyAnswer::CannotCall {
        member,
        why: error.to_string(),
    }
}

// Adds the payloads of requests from this member's own log, in order, and tracks the progress of a session.

/// A session's progress.
#[derive(Debug, Default)]
struct Progress {
    /// True while a request is being assembled.
    waits: bool,
    /// The last entry that was forwarded.
    sent: u64,
    /// The requests that were forwarded and are not answered yet.
    due: VecDeque<Due>,
    /// The answer that ends the session. It is sent after the answers that are due.
    end: Option<ProxyAnswer>,
}

/// A request that was forwarded and is not answered yet.
#[derive(Debug)]
struct Due {
    /// The last entry of the request.
    last: Option<LogId>,
    /// The size of its payloads in bytes.
    bytes: usize,
    departure: Departure,
    /// How many of its pieces had been sent at the last check, and when that number changed.
    pieces: u64,
    seen: Instant,
}

impl Due {
    /// Returns true if the request progresses: more of it was sent since the last check, or all of it was sent. In the second case, the
    /// member answers after the entries are durable.
    fn moves(&mut self, now: Instant) -> bool {
        let pieces = self.departure.pieces();
        if pieces != self.pieces {
            (self.pieces, self.seen) = (pieces, now);
            return true;
        }
        let written = Duration::from_secs((self.bytes / SLOWEST_DISK_BYTES_PER_S) as u64);
        self.departure.is_over() && now.saturating_duration_since(self.seen) < written
    }
}

impl Progress {
    fn sent(&mut self, asked: &Asked, now: Instant) {
        let last = asked.request.entries.last().map(|entry| entry.log_id);
        if let Some(last) = last {
            self.sent = last.index;
        }
        self.due.push_back(Due {
            last: last.or(asked.request.prev_log_id),
            bytes: payload_bytes(&asked.request.entries),
            departure: asked.departure.clone(),
            pieces: 0,
            seen: now,
        });
    }

    fn answered(&mut self, answered: &Answered) {
        match answered.result {
            // If several requests end with the same entry, each has its own answer.
            Ok(matching) => {
                while let Some(last) = self.due.front().map(|due| due.last)
                    && last <= matching
                {
                    self.due.pop_front();
                    if last == matching {
                        break;
                    }
                }
            }
            // No more answers follow an error.
            Err(_) => self.due.clear(),
        }
    }

    /// Returns the sign of life for the leader; `None` if no answer is due.
    fn sign_of_life(&mut self, now: Instant) -> Option<ProxyAnswer> {
        let upto = self.sent;
        let moves = self.due.front_mut().map(|oldest| oldest.moves(now));
        let due = self.waits || moves.is_some();
        let moves = moves.unwrap_or_default();
        due.then_some(ProxyAnswer::SentOn { upto, moves })
    }
}

/// Adds the payloads to requests, in order.
struct Reconstitution {
    log: Arc<dyn OwnLog>,
    appended: watch::Receiver<u64>,
    requests: BoxStream<'static, ProxyRequest>,
    current: Option<Current>,
    wait: Duration,
    progress: Arc<Mutex<Progress>>,
    route_table: RouteTable,
}

/// A request of which a part has not been forwarded yet.
struct Current {
    request: ProxyRequest,
    previous: Option<LogId>,
    next: u64,
    wants_report: bool,
    deadline: Instant,
    /// The number of arrived parts of entries when the deadline was set.
    parts: u64,
}

/// The result of a search in the log for a request's entries.
enum Found {
    Entries(Vec<Entry>),
    NotYet,
    /// The entry will never be available: it is purged, or the log cannot be read.
    Never {
        purged: bool,
    },
}

impl Reconstitution {
    /// Returns the next request to forward; `None` if the session is over.
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
            progress.sent(asked, Instant::now());
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
            // If this log has a later leader's vote, the session ends with the answer that the member itself would give.
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
            parts: self.route_table.parts(),
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
                    self.route_table.traffic().relayed(|relayed| {
                        relayed.entries += count;
                        relayed.bytes += bytes;
                    });
                    let asked = current.take(entries);
                    let last = current.request.last();
                    if last.is_none_or(|last| last.index < current.next) {
                        self.current = None;
                    }
                    return Some(asked);
                }
                Found::Never { purged } => return Some(self.give_up(op_id, purged)),
                Found::NotYet => {
                    match timeout_at(current.deadline, self.appended.changed()).await {
                        Ok(Ok(())) => {}
                        // A large entry needs time to arrive, and a second copy of it would not arrive earlier. So the wait continues while
                        // its parts arrive.
                        Err(_) if current.parts != self.route_table.parts() => {
                            current.parts = self.route_table.parts();
                            current.deadline = Instant::now() + self.wait;
                        }
                        Err(_) | Ok(Err(_)) => return Some(self.give_up(op_id, false)),
                    }
                }
            }
        }
    }

    /// Ends the session. First a request without entries is forwarded, which shows the member that its leader is alive.
    fn give_up(&mut self, op_id: OpId, purged: bool) -> Asked {
        lock(&self.progress).end = Some(ProxyAnswer::Missing { op_id, purged });
        match self.current.take() {
            Some(mut current) => current.take(Vec::new()),
            None => unreachable!("only a request that was begun is given up"),
        }
    }
}

impl Current {
    /// Returns a request with these entries. The current request continues after them.
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
            departure: Departure::watched(),
        }
    }
}

/// Returns the next entries of a request, as many as one read returns.
async fn find(log: &dyn OwnLog, current: &Current) -> Found {
    let Some(last) = current.request.last() else {
        return Found::NotYet;
    };
    // This is checked before the read: if an entry is durable before it and cannot be read, the entry is purged.
    let durable = log.report().runs.last().map(|run| run.last);
    let read = match log.entries(current.next..last.index + 1).await {
        Ok(read) => read,
        Err(error) => {
            tracing::warn!(%error, "an entry to forward cannot be read from this member's log");
            return Found::Never { purged: false };
        }
    };
    let there = read
        .first()
        .is_some_and(|first| first.log_id.index == current.next);
    if !there {
        return match durable {
            Some(durable) if durable >= current.next => Found::Never { purged: true },
            _ => Found::NotYet,
        };
    }
    let wanted = (current.next..).zip(&read).take_while(|(index, entry)| {
        let OpId { term, index: found } = entry.log_id.into();
        found == *index && current.request.term_at(found) == Some(term)
    });
    match wanted.count() {
        0 => Found::NotYet,
        count => Found::Entries(read.into_iter().take(count).collect()),
    }
}

#[cfg(test)]
mod tests {
    use consensus::log_probe::Answered;
    use raft_types::{MemberId, Vote};

    use super::*;
    use crate::proxy_op::samples::{at, sized};

    /// Returns true if the proxy reports progress on the member's next answer.
    fn moves(progress: &mut Progress, now: Instant) -> bool {
        match progress.sign_of_life(now) {
            Some(ProxyAnswer::SentOn { moves, .. }) => moves,
            other => panic!("{other:?}"),
        }
    }

    fn sent(progress: &mut Progress, index: u64, bytes: usize, now: Instant) -> Departure {
        let request = AppendEntriesRequest {
            vote: Vote::new_committed(3, MemberId(1)),
            prev_log_id: Some(at(index - 1)),
            entries: vec![sized(index, bytes)],
            leader_commit: None,
        };
        let departure = Departure::watched();
        let asked = Asked {
            departure: departure.clone(),
            ..Asked::new(request, false)
        };
        progress.sent(&asked, now);
        departure
    }

    #[test]
    fn a_large_entry_progresses_while_it_is_sent_and_written() {
        const SECONDS_TO_WRITE: u32 = 3;
        let bytes = SLOWEST_DISK_BYTES_PER_S * SECONDS_TO_WRITE as usize;
        let mut now = Instant::now();
        let mut progress = Progress::default();
        let departure = sent(&mut progress, 5, bytes, now);
        let small = sent(&mut progress, 6, 100, now);
        let mut progress_of = |progress: &mut Progress, count: u32| -> Vec<bool> {
            let progress_of = (0..count).map(|_| {
                now += Duration::from_secs(1);
                moves(progress, now)
            });
            progress_of.collect()
        };
        assert_eq!(
            progress_of(&mut progress, 2),
            [false; 2],
            "none of it has left"
        );
        for _ in 0..5 {
            departure.piece_left(false);
            assert_eq!(progress_of(&mut progress, 2), [true, false]);
        }
        departure.piece_left(true);
        small.piece_left(true);
        assert_eq!(
            progress_of(&mut progress, SECONDS_TO_WRITE + 1),
            [true, true, true, false]
        );
        progress.answered(&Answered {
            result: Ok(Some(at(5))),
            report: None,
        });
        assert_eq!(
            progress_of(&mut progress, 2),
            [true, false],
            "the small one has left"
        );
    }
}

//! The protocol between a leader and a proxy: appends that carry only the op ids of their entries (PROXY_OP), and their
//! outcome.

use std::collections::VecDeque;
use std::time::Duration;

use consensus::log_probe::{Answered, Asked};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use openraft::raft::StreamAppendError;
use raft_types::{
    Entry, EntryPayload, LogId, MAX_MESSAGE_BYTES, MemberId, MemberRecord, OpId, TermRun, Vote,
};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

/// An append without the content of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRequest {
    /// The vote of the leader that sends it.
    pub vote: Vote,
    /// The entry before the first one.
    pub previous: Option<LogId>,
    /// Up to where the leader has committed.
    pub leader_commit: Option<LogId>,
    /// The entries, which follow `previous` without a gap.
    pub entries: Vec<TermRun>,
    /// Whether the answer should carry the report of the member's log.
    pub wants_report: bool,
}

impl ProxyRequest {
    /// The index of the first entry, whether there is one or not.
    pub fn first_index(&self) -> u64 {
        let next = |previous: LogId| previous.index.saturating_add(1);
        self.previous.map_or(0, next)
    }

    /// The last entry, or the one before the first where there is none.
    pub fn last(&self) -> Option<LogId> {
        let last = self.entries.last();
        last.map(|run| OpId::new(run.term, run.last).into())
            .or(self.previous)
    }

    /// The required term of the entry with this index.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        let run = self.entries.iter().find(|run| run.last >= index)?;
        (run.first <= index).then_some(run.term)
    }

    /// True if this is one of the entries, or the one before them.
    fn has(&self, entry: LogId) -> bool {
        let among = self.term_at(entry.index) == Some(entry.leader_id.term);
        among || self.previous == Some(entry)
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        let lengths = self.entries.iter().map(|run| run.last - run.first + 1);
        lengths.sum()
    }

    /// Whether it carries no entry, as a heartbeat.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the runs follow `previous`, and each other, without a gap and with non-decreasing terms. Data from the
    /// network is checked before use.
    pub fn is_whole(&self) -> bool {
        let mut next = self
            .previous
            .map_or(Some(0), |previous| previous.index.checked_add(1));
        let mut term = self.previous.map_or(0, |previous| previous.leader_id.term);
        for run in &self.entries {
            if Some(run.first) != next || run.last < run.first || run.term < term {
                return false;
            }
            term = run.term;
            next = run.last.checked_add(1);
        }
        next.is_some()
    }
}

/// A request of the engine without its payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stripped {
    pub(crate) request: ProxyRequest,
    /// Size of its payloads, by [`payload_bytes`].
    pub(crate) bytes: usize,
}

impl From<&Asked> for ProxyRequest {
    fn from(asked: &Asked) -> Self {
        let mut entries: Vec<TermRun> = Vec::new();
        for entry in &asked.request.entries {
            let OpId { term, index } = entry.log_id.into();
            match entries.last_mut() {
                Some(run) if run.term == term => run.last = index,
                _ => entries.push(TermRun {
                    term,
                    first: index,
                    last: index,
                }),
            }
        }
        Self {
            vote: asked.request.vote,
            previous: asked.request.prev_log_id,
            leader_commit: asked.request.leader_commit,
            entries,
            wants_report: asked.wants_report,
        }
    }
}

/// A proxy's answer to the leader in a session.
#[derive(Debug, Clone)]
pub enum ProxyAnswer {
    /// The member's answer, in the order of the requests. A request that was cut into several has several answers; the last one
    /// is for its last entry. An answer beyond a request also answers it.
    Answered(Answered),
    /// A request was forwarded and is not answered yet; the proxy lives.
    SentOn {
        /// The last entry that was forwarded.
        upto: u64,
        /// Whether the member's next answer progresses: more of its request was sent, or all of it, and the member writes it.
        moves: bool,
    },
    /// The session is over: this entry is not here, and with `purged` it never will be.
    Missing {
        /// The first missing entry.
        op_id: OpId,
        /// True if it was here before.
        purged: bool,
    },
    /// The session is over: this member, the target or another proxy, could not be called.
    CannotCall {
        /// The target, or the next proxy on the way.
        member: MemberId,
        /// The error of the call.
        why: String,
    },
    /// The session is over before it began, with the reason: this member cannot serve the request.
    Refused(String),
}

/// Unanswered requests over a proxy, so that impossible answers are rejected.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    requests: VecDeque<Stripped>,
    bytes: usize,
}

impl Outstanding {
    pub(crate) fn sent(&mut self, stripped: Stripped) {
        self.bytes += stripped.bytes;
        self.requests.push_back(stripped);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Bytes of the payloads in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first request with entries that is not answered.
    pub(crate) fn oldest_with_entries(&self) -> Option<&Stripped> {
        let mut requests = self.requests.iter();
        requests.find(|stripped| !stripped.request.is_empty())
    }

    /// Records an answer, and with it every request that it covers. False for one to a request that was not sent.
    pub(crate) fn answered(&mut self, answered: &Answered) -> bool {
        let mut asked = self.requests.iter().map(|stripped| &stripped.request);
        let Some(oldest) = asked.clone().next() else {
            return false;
        };
        match &answered.result {
            Ok(matching) => {
                let known = asked.any(|request| {
                    matching.map_or(request.previous.is_none(), |upto| request.has(upto))
                });
                let asked = known && *matching >= oldest.previous;
                if asked {
                    self.cover(*matching);
                }
                asked
            }
            Err(StreamAppendError::Conflict(at)) => asked.any(|request| request.has(*at)),
            Err(StreamAppendError::HigherVote(vote)) => *vote > oldest.vote,
        }
    }

    /// Removes one request that ends with this entry: each has its own answer. There are several where one has no entries, or
    /// if the first of a stream was widened.
    fn cover(&mut self, matching: Option<LogId>) {
        while let Some(last) = self.requests.front().map(|front| front.request.last())
            && last <= matching
            && let Some(front) = self.requests.pop_front()
        {
            self.bytes -= front.bytes;
            if last == matching {
                break;
            }
        }
    }
}

/// Bytes of the entries' payloads, plus a little for each entry.
pub(crate) fn payload_bytes(entries: &[Entry]) -> usize {
    let of_entry = |entry: &Entry| match &entry.payload {
        EntryPayload::Normal(entry) => entry.body_length(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    };
    const EACH: usize = 64;
    const _: () = assert!(EACH < MAX_MESSAGE_BYTES);
    entries.iter().map(|entry| of_entry(entry) + EACH).sum()
}

// A commit notice has few bytes, and a frame for it is costly on a long link. For a member behind a proxy the notice
// waits a moment for the next request, which includes it. A notice omitted here was never sent and gets no answer,
// so this runs before a session records its requests.

/// Short compared with the latency to another region, long compared with the time between the commits of a busy ring.
const WAITS: Duration = Duration::from_millis(10);

/// The requests without those that the next one makes redundant. The first is sent immediately: it opens the session.
pub(crate) fn joined(
    requests: BoxStream<'static, Stripped>,
) -> impl Stream<Item = Stripped> + Send + 'static {
    let state = (requests.fuse(), None, true);
    stream::unfold(state, |(mut requests, held, first)| async move {
        let mut going: Stripped = match held {
            Some(held) => held,
            None => requests.next().await?,
        };
        let until = Instant::now() + WAITS;
        let mut held = None;
        while !first && held.is_none() && is_news_alone(&going.request) {
            match timeout_at(until, requests.next()).await {
                Ok(Some(next)) if includes(&next.request, &going.request) => going = next,
                Ok(Some(next)) => held = Some(next),
                Ok(None) | Err(_) => break,
            }
        }
        Some((going, (requests, held, false)))
    })
}

fn is_news_alone(request: &ProxyRequest) -> bool {
    request.is_empty() && !request.wants_report
}

/// Whether a request includes all of the preceding one, which is only a commit notice.
fn includes(next: &ProxyRequest, news: &ProxyRequest) -> bool {
    next.vote == news.vote
        && next.previous == news.previous
        && next.leader_commit >= news.leader_commit
}

// The interface to the network: how a session with a proxy is opened.

/// A proxy cannot be called, or no longer; with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LineBroken(pub String);

/// The answers of a session, in the order of the requests, until it is over.
pub type ProxyAnswers = BoxStream<'static, Result<ProxyAnswer, LineBroken>>;

/// A network over which proxies can be called.
pub trait ProxyCalls: Clone + Send + Sync + 'static {
    /// Opens a session at `proxy`, which forwards to the first of `onward`; the last one is the target of the entries.
    /// It ends when `requests` ends and all are answered, or with the first failure.
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>>;
}

/// The receiving end of sessions.
pub trait ProxyService: Send + Sync + 'static {
    /// Serves a session: forwards to the first of `onward`. Dropping the answers ends it.
    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer>;

    /// A part of an entry larger than a message arrived from a leader: sessions that wait for the entry extend their wait.
    fn part_arrives(&self);
}

#[cfg(test)]
pub(crate) mod samples {
    use raft_types::{AppEntry, EntryPayload, MemberId, TransactionPayload};

    use super::*;

    pub(crate) fn at(index: u64) -> LogId {
        OpId::new(3, index).into()
    }

    /// An entry with a payload of this size.
    pub(crate) fn sized(index: u64, bytes: usize) -> Entry {
        let payload = TransactionPayload::seal(vec![0; bytes].into());
        Entry {
            log_id: at(index),
            payload: EntryPayload::Normal(AppEntry::Transaction(payload)),
        }
    }

    /// Entries after `previous`, up to `last`; none if both are equal.
    pub(crate) fn request(previous: u64, last: u64) -> Stripped {
        let run = TermRun {
            term: 3,
            first: previous + 1,
            last,
        };
        let request = ProxyRequest {
            vote: Vote::new_committed(3, MemberId(1)),
            previous: Some(at(previous)),
            leader_commit: None,
            entries: Vec::from_iter((previous < last).then_some(run)),
            wants_report: false,
        };
        Stripped { request, bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::at;
    use super::*;

    fn request(previous: u64, last: u64, bytes: usize) -> Stripped {
        Stripped {
            bytes,
            ..samples::request(previous, last)
        }
    }

    fn acknowledge(outstanding: &mut Outstanding, index: u64) -> bool {
        outstanding.answered(&Answered {
            result: Ok(Some(at(index))),
            report: None,
        })
    }

    #[test]
    fn a_request_without_entries_has_its_own_answer() {
        let mut outstanding = Outstanding::default();
        outstanding.sent(request(4, 6, 20));
        outstanding.sent(request(6, 6, 0));
        assert!(acknowledge(&mut outstanding, 6));
        assert!(!outstanding.is_empty(), "the commit mark is not answered");
        assert_eq!(outstanding.bytes(), 0);
        assert!(acknowledge(&mut outstanding, 6));
        assert!(outstanding.is_empty());
        assert!(!acknowledge(&mut outstanding, 6));
    }

    #[test]
    fn overlapping_requests_are_answered_in_turn() {
        let mut outstanding = Outstanding::default();
        // The first of a stream, with more than the engine sent; the engine continues after its own last entry.
        outstanding.sent(request(60, 64, 40));
        outstanding.sent(request(62, 64, 20));
        outstanding.sent(request(64, 66, 20));
        // Each is cut into several.
        for index in [61, 62, 63, 64, 63, 64, 65, 66] {
            assert!(acknowledge(&mut outstanding, index), "{index}");
        }
        assert!(outstanding.is_empty());
    }

    #[test]
    fn answers_without_a_request_are_rejected() {
        let mut outstanding = Outstanding::default();
        assert!(!acknowledge(&mut outstanding, 1));
        outstanding.sent(request(4, 6, 20));
        assert!(!acknowledge(&mut outstanding, 3));
        assert!(!acknowledge(&mut outstanding, 7));
        assert!(acknowledge(&mut outstanding, 5));
        assert_eq!(outstanding.bytes(), 20, "a part is not all");
    }
}

#[cfg(test)]
mod commit_news_tests {
    use futures::channel::mpsc;

    use super::*;
    use crate::proxy_op::samples;
    use crate::proxy_op::samples::at;

    fn request(previous: u64, last: u64, commit: u64) -> Stripped {
        let mut stripped = samples::request(previous, last);
        stripped.request.leader_commit = Some(at(commit));
        stripped
    }

    async fn joined_all(requests: Vec<Stripped>) -> Vec<Stripped> {
        joined(stream::iter(requests).boxed()).collect().await
    }

    #[tokio::test]
    async fn a_commit_notice_is_joined_with_the_next_request() {
        let entries = [request(4, 5, 4), request(5, 6, 5)];
        let last = request(6, 6, 6);
        let sent = vec![
            entries[0].clone(),
            request(5, 5, 5),
            entries[1].clone(),
            // Two of them become one.
            request(6, 6, 5),
            last.clone(),
        ];
        let expected: Vec<_> = entries.into_iter().chain([last]).collect();
        assert_eq!(joined_all(sent).await, expected);
    }

    #[tokio::test]
    async fn a_commit_notice_is_sent_unless_the_next_request_includes_it() {
        let mut wanting = request(6, 6, 6);
        wanting.request.wants_report = true;
        let sent = vec![
            // The first is sent immediately.
            request(5, 5, 5),
            request(5, 6, 5),
            // At another position in the log.
            request(6, 6, 6),
            request(3, 4, 6),
            // A report is requested.
            wanting,
            request(6, 7, 6),
            // An earlier commit.
            request(7, 7, 7),
            request(7, 8, 6),
        ];
        assert_eq!(joined_all(sent.clone()).await, sent);
    }

    #[tokio::test]
    async fn a_commit_notice_waits_only_briefly() {
        let (sender, requests) = mpsc::unbounded();
        let mut joined = Box::pin(joined(requests.boxed()));
        for sent in [request(5, 6, 5), request(6, 6, 6)] {
            sender.unbounded_send(sent.clone()).unwrap();
            assert_eq!(joined.next().await, Some(sent));
        }
        drop(sender);
        assert_eq!(joined.next().await, None);
    }
}

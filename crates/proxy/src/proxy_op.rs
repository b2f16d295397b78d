//! The protocol between a leader and a proxy: append requests with only the op ids of their entries (PROXY_OP), and the answers.

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
    /// The vote of the sending leader.
    pub vote: Vote,
    /// The entry before the first one.
    pub previous: Option<LogId>,
    /// The leader's commit index.
    pub leader_commit: Option<LogId>,
    /// The op ids of the entries, which follow `previous` without a gap.
    pub entries: Vec<TermRun>,
    /// True if the answer should include the report of the member's log.
    pub wants_report: bool,
}

impl ProxyRequest {
    /// Returns the index of the first entry; without entries, the index after `previous`.
    pub fn first_index(&self) -> u64 {
        let next = |previous: LogId| previous.index.saturating_add(1);
        self.previous.map_or(0, next)
    }

    /// Returns the last entry; without entries, `previous`.
    pub fn last(&self) -> Option<LogId> {
        let last = self.entries.last();
        last.map(|run| OpId::new(run.term, run.last).into())
            .or(self.previous)
    }

    /// Returns the term that the entry with this index must have.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        let run = self.entries.iter().find(|run| run.last >= index)?;
        (run.first <= index).then_some(run.term)
    }

    /// Returns true if `entry` is one of the entries, or `previous`.
    fn has(&self, entry: LogId) -> bool {
        let among = self.term_at(entry.index) == Some(entry.leader_id.term);
        among || self.previous == Some(entry)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        let lengths = self.entries.iter().map(|run| run.last - run.first + 1);
        lengths.sum()
    }

    /// Returns true if the request has no entries, like a heartbeat.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if the runs follow `previous` and each other without a gap, and their terms do not decrease. Data from the network is
    /// checked before it is used.
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
    /// The size of its payloads, as computed by [`payload_bytes`].
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
    /// The member's answer, in the order of the requests. If a request was cut into several, it has several answers; the last one is for
    /// its last entry. An answer for a later entry than a request's also answers that request.
    Answered(Answered),
    /// A sign of life: a request was forwarded and is not answered yet.
    SentOn {
        /// The last entry that was forwarded.
        upto: u64,
        /// True if the member's next answer progresses: more of its request was sent, or all of it was sent and the member writes it.
        moves: bool,
    },
    /// Ends the session: the proxy lacks this entry.
    Missing {
        /// The first missing entry.
        op_id: OpId,
        /// True if the proxy has purged the entry, so it will never have it.
        purged: bool,
    },
    /// Ends the session: the next member on the route could not be called.
    CannotCall {
        /// The member that could not be called: the target, or the next proxy.
        member: MemberId,
        /// The error of the call.
        why: String,
    },
    /// Ends the session before it begins: this member cannot serve the request, for this reason.
    Refused(String),
}

/// The unanswered requests of a session, with which impossible answers are detected.
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

    /// Returns the bytes of the payloads in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the oldest unanswered request with entries.
    pub(crate) fn oldest_with_entries(&self) -> Option<&Stripped> {
        let mut requests = self.requests.iter();
        requests.find(|stripped| !stripped.request.is_empty())
    }

    /// Records an answer. Every request that the answer covers is ended. Returns false if no such request was sent.
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

    /// Removes the requests before `matching`, and one request that ends with it, because each request has its own answer. Several requests
    /// end with the same entry if one has no entries, or if the first request of a stream was extended.
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

/// Returns the bytes of the entries' payloads, plus a constant for each entry.
pub(crate) fn payload_bytes(entries: &[Entry]) -> usize {
    let of_entry = |entry: &Entry| match &entry.payload {
        EntryPayload::Normal(entry) => entry.body_length(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    };
    const EACH: usize = 64;
    const _: () = assert!(EACH < MAX_MESSAGE_BYTES);
    entries.iter().map(|entry| of_entry(entry) + EACH).sum()
}

// A commit notice is small, but a frame of its own is costly on a long link. So for a member behind a proxy, the notice waits for
// [`WAITS`], and is omitted if the next request includes it. An omitted notice gets no answer. So this runs before a session records its
// requests.

/// Short compared with the latency to another region, and long compared with the time between commits of a busy ring.
const WAITS: Duration = Duration::from_millis(10);

/// Omits the commit notices that the next request includes. The first request is sent immediately, because it opens the session.
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

/// Returns true if a request includes the preceding commit notice `news`.
fn includes(next: &ProxyRequest, news: &ProxyRequest) -> bool {
    next.vote == news.vote
        && next.previous == news.previous
        && next.leader_commit >= news.leader_commit
}

// The interface to the network, with which a session with a proxy is opened.

/// Why a proxy cannot be called, or can no longer be called.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LineBroken(pub String);

/// The answers of a session, in the order of the requests, until it is over.
pub type ProxyAnswers = BoxStream<'static, Result<ProxyAnswer, LineBroken>>;

/// A network over which proxies can be called.
pub trait ProxyCalls: Clone + Send + Sync + 'static {
    /// Opens a session at `proxy`, which forwards to the first member of `onward`. The last member of `onward` is the target of the
    /// entries. The session ends when `requests` has ended and all requests are answered, or with the first failure.
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
    /// Serves a session, and forwards its requests to the first member of `onward`. The session ends when the answers are dropped.
    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer>;

    /// Records that a part of an entry arrived from a leader, if the entry is larger than a message. Sessions that wait for the entry then
    /// wait longer.
    fn part_arrives(&self);
}

#[cfg(test)]
pub(crate) mod samples {
    use raft_types::{AppEntry, EntryPayload, MemberId, TransactionPayload};

    use super::*;

    pub(crate) fn at(index: u64) -> LogId {
        OpId::new(3, index).into()
    }

    /// Returns an entry with a payload of this size.
    pub(crate) fn sized(index: u64, bytes: usize) -> Entry {
        let payload = TransactionPayload::seal(vec![0; bytes].into());
        Entry {
            log_id: at(index),
            payload: EntryPayload::Normal(AppEntry::Transaction(payload)),
        }
    }

    /// Returns a request for the entries after `previous`, up to `last`; without entries if both are equal.
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
        // The first request of a stream was extended beyond the engine's last entry. The engine continues after its own last entry.
        outstanding.sent(request(60, 64, 40));
        outstanding.sent(request(62, 64, 20));
        outstanding.sent(request(64, 66, 20));
        // Each request is cut into several.
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
            // These two notices become one.
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
            // The first request is sent immediately.
            request(5, 5, 5),
            request(5, 6, 5),
            // This request is at another position in the log.
            request(6, 6, 6),
            request(3, 4, 6),
            // This request wants a report.
            wanting,
            request(6, 7, 6),
            // This request has an earlier commit index.
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

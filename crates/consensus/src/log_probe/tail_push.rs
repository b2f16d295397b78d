//! A new leader sends a follower the newest entries of its log before the engine's search finds out which entries the follower lacks. For
//! two windows, it also sends every entry that it appends. So the first commit over a long distance takes one round trip. These are
//! ordinary requests of this leader. A follower that already has the entries changes nothing. A follower that lacks the preceding entry
//! reports that.
//!
//! A question without entries is sent first. A connection that has carried little begins with about 14 KB in one flight (RFC 6928), and
//! waits for an answer before it sends the rest. Without the question, the matching point would be known only after all entries have
//! arrived, one round trip later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use raft_types::{Entry, LogId, MAX_MESSAGE_BYTES, OwnLog, TypeConfig, Vote, lock};
use tokio::time::Instant;

use crate::log_probe::knowledge::{Exchange, is_under};
use crate::log_probe::shared::Shared;
use crate::log_probe::{Asked, MemberClient};

/// How many entries to send. The next smaller number is used if the entries are too large.
const TAIL_LENGTHS: [u64; 4] = [64, 16, 4, 1];

/// Bytes that are sent before the first answer: the first flight of a connection that has carried little. More bytes would delay new
/// entries, usually without a benefit. A follower that lacks more entries reports that in the meantime.
const FIRST_FLIGHT_BYTES: usize = 10 << 10;

/// How many times per window a follower without missing entries is asked again.
const AGAIN_IN_A_WINDOW: u32 = 4;

/// Interval between two checks of the own log for entries to send.
const LOOK: Duration = Duration::from_millis(1);

/// Entries that are sent ahead to one follower in one leadership.
pub(super) struct TailPush {
    own: Arc<dyn OwnLog>,
    shared: Arc<Shared>,
    /// The vote of every request.
    vote: Vote,
    leader_commit: Option<LogId>,
    first: Tail,
    begun: Exchange,
    lasts: Duration,
}

impl TailPush {
    /// Reads the newest entries, which [`Self::run`] sends. Returns `None` if no entries fit.
    pub(super) async fn prepare(
        own: Arc<dyn OwnLog>,
        shared: Arc<Shared>,
        cause: &AppendEntriesRequest<TypeConfig>,
        window: Duration,
    ) -> Option<Self> {
        let first = tail(own.as_ref(), &cause.vote).await?;
        let upto = first.1.last()?.log_id;
        let begun = shared.change(|known| {
            let begun = known.begin(&cause.vote, Instant::now());
            known.push(&begun, upto);
            begun
        });
        Some(Self {
            own,
            shared,
            vote: cause.vote,
            leader_commit: cause.leader_commit,
            first,
            begun,
            lasts: window,
        })
    }

    /// Sends entries and processes the answers, until two windows have passed or the engine has finished its search.
    pub(super) async fn run(self, mut network: Box<dyn MemberClient>, option: RPCOption) {
        let _ended = Ended {
            shared: self.shared.clone(),
            begun: self.begun,
        };
        // Answers may take one more window.
        let deadline = self.lasts * 3;
        let _ = tokio::time::timeout(deadline, self.exchange(&mut *network, option)).await;
    }

    async fn exchange(self, network: &mut dyn MemberClient, option: RPCOption) {
        let (shared, own, begun) = (self.shared.clone(), self.own.clone(), self.begun);
        let on_their_way = OnTheirWay::default();
        let requests = self.requests(on_their_way.clone()).boxed();
        let mut answers = match network.stream(requests, option).await {
            Ok(answers) => answers,
            Err(_) => return shared.change(|known| known.forget()),
        };
        while let Some(answer) = answers.next().await {
            let Ok(answered) = answer else {
                return shared.change(|known| known.forget());
            };
            let exchange = on_their_way.answered(&answered.result).unwrap_or(begun);
            shared.take_in(&exchange, &answered, own.as_ref());
            if answered.result.is_err() {
                return;
            }
        }
    }

    fn requests(self, on_their_way: OnTheirWay) -> impl Stream<Item = Asked> + Send + 'static {
        let until = Instant::now() + self.lasts * 2;
        let question = Asked::new(self.request(None, Vec::new(), None), true);
        let entries = stream::unfold((self, None), move |(mut push, sent)| {
            let on_their_way = on_their_way.clone();
            async move {
                let request = match sent {
                    None => {
                        // Entries that are available at the same moment are sent as one frame, and read only after the whole frame has
                        // arrived. So the question is sent first.
                        tokio::task::yield_now().await;
                        let (previous, entries) = std::mem::take(&mut push.first);
                        push.request(previous, entries, push.leader_commit)
                    }
                    Some(sent) => push.next(sent, until).await?,
                };
                let entries = request.entries.last().map(|entry| entry.log_id);
                let upto = entries.or(request.prev_log_id)?;
                let exchange = push.shared.change(|known| {
                    let exchange = known.begin(&push.vote, Instant::now());
                    known.push(&exchange, upto);
                    exchange
                });
                on_their_way.sent(upto, exchange);
                Some((Asked::new(request, false), (push, Some(upto))))
            }
        });
        stream::iter([question]).chain(entries)
    }

    fn request(
        &self,
        previous: Option<LogId>,
        entries: Vec<Entry>,
        leader_commit: Option<LogId>,
    ) -> AppendEntriesRequest<TypeConfig> {
        AppendEntriesRequest {
            vote: self.vote,
            prev_log_id: previous,
            entries,
            leader_commit,
        }
    }

    /// Returns a request with the entries after `sent`, if there are any. If no entry is appended for a quarter of a window, returns a
    /// request without entries. The search may last longer than a window, if many members share processors or the latency is long compared
    /// with the window.
    async fn next(&self, sent: LogId, until: Instant) -> Option<AppendEntriesRequest<TypeConfig>> {
        let again_at = Instant::now() + self.lasts / AGAIN_IN_A_WINDOW;
        let behind_sent = |entries| self.request(Some(sent), entries, self.leader_commit);
        loop {
            tokio::time::sleep(LOOK).await;
            if Instant::now() >= until || !self.shared.lock().is_pushing(&self.begun) {
                return None;
            }
            let start = sent.index + 1;
            let entries = self.own.entries(start..u64::MAX).await.ok()?;
            if !leads(self.own.as_ref(), &self.vote) {
                return None;
            }
            let entries = suffix_that_fits(entries);
            match entries.first() {
                Some(first) if first.log_id.index == start => return Some(behind_sent(entries)),
                // There are too many entries to send ahead. The engine sends them.
                Some(_) => return None,
                None if Instant::now() >= again_at => return Some(behind_sent(Vec::new())),
                None => {}
            }
        }
    }
}

/// Ends the wait for the answers when it is dropped, however the push ends.
struct Ended {
    shared: Arc<Shared>,
    begun: Exchange,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.shared.change(|known| known.end_push(&self.begun));
    }
}

/// Unanswered requests, by their last entry. An answer counts from the time of the newest request that it covers.
#[derive(Clone, Default)]
struct OnTheirWay(Arc<Mutex<VecDeque<(LogId, Exchange)>>>);

impl OnTheirWay {
    fn sent(&self, upto: LogId, exchange: Exchange) {
        let mut sent = lock(&self.0);
        sent.push_back((upto, exchange));
    }

    fn answered(&self, result: &StreamAppendResult<TypeConfig>) -> Option<Exchange> {
        let Ok(Some(matching)) = result else {
            return None;
        };
        let mut sent = lock(&self.0);
        let mut covered = None;
        // If several requests have the same last entry, the answer belongs to the first of them.
        while sent.front().is_some_and(|(upto, _)| upto <= matching) {
            let (upto, exchange) = sent.pop_front()?;
            covered = Some(exchange);
            if upto == *matching {
                break;
            }
        }
        covered
    }
}

/// The newest entries of the own log, and the entry before them.
type Tail = (Option<LogId>, Vec<Entry>);

/// Reads the newest entries of the own log and the entry before them, while the log is this leader's.
async fn tail(own: &dyn OwnLog, vote: &Vote) -> Option<Tail> {
    let end = own.report().runs.last()?.last;
    for length in TAIL_LENGTHS {
        // Reads one more entry than is sent, because the request names the preceding entry.
        let start = (end + 1).saturating_sub(length + 1);
        let mut entries = own.entries(start..u64::MAX).await.ok()?;
        if !leads(own, vote) {
            return None;
        }
        let reaches_the_end = entries.last().is_some_and(|last| last.log_id.index >= end);
        let starts = entries
            .first()
            .is_some_and(|first| first.log_id.index == start);
        if !reaches_the_end
            || !starts
            || entries.iter().map(bytes_of).sum::<usize>() > UNASKED_BYTES
        {
            continue;
        }
        // At least one entry is sent.
        let sent = count_that_fits(entries.iter().rev(), FIRST_FLIGHT_BYTES).max(1);
        // The first entry of the log has no preceding entry.
        let before = entries
            .len()
            .saturating_sub(sent)
            .max(usize::from(start > 0));
        let sent = entries.split_off(before);
        let previous = entries.last().map(|entry| entry.log_id);
        return (!sent.is_empty()).then_some((previous, sent));
    }
    None
}

/// Returns true if the own log is still the log of the leader with this vote. Must be checked after reading: a later leader's vote is
/// stored before its entries.
fn leads(own: &dyn OwnLog, vote: &Vote) -> bool {
    is_under(&own.report(), vote)
}

fn suffix_that_fits(mut entries: Vec<Entry>) -> Vec<Entry> {
    let fitting = count_that_fits(entries.iter().rev(), UNASKED_BYTES);
    entries.split_off(entries.len() - fitting)
}

/// Returns how many of these entries fit in `budget` bytes.
fn count_that_fits<'a>(entries: impl Iterator<Item = &'a Entry>, budget: usize) -> usize {
    let mut used = 0;
    let fitting = entries.take_while(|entry| {
        used += bytes_of(entry);
        used <= budget
    });
    fitting.count()
}

// A request that begins at the matching point is extended with the rest of the own log, because the engine would send eight entries and
// wait. The answer is reduced to the entries that the engine sent.

/// Maximum number of bytes of additional entries in one request. This is what a follower lacks after a round trip of 60 ms, with 15,000
/// entries of 500 bytes per second.
pub(super) const UNASKED_BYTES: usize = MAX_MESSAGE_BYTES / 2;

/// The engine's own limit for the entries in a step of its search. A larger request means that the search is over.
const ENTRIES_PER_STEP: usize = 8;

/// A request that was extended: the last entry that the engine sent, and the last entry that was sent in fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Widened {
    asked: LogId,
    sent: LogId,
}

impl Widened {
    /// Returns the answer for the engine. The second value is `None` after the whole request was answered. A request may have been cut into
    /// several; then the last answer is for its last entry.
    pub(super) fn cut_back(
        self,
        result: StreamAppendResult<TypeConfig>,
    ) -> (StreamAppendResult<TypeConfig>, Option<Self>) {
        match result {
            Ok(matching) => {
                let goes_on = matching < Some(self.sent);
                (Ok(matching.min(Some(self.asked))), goes_on.then_some(self))
            }
            Err(refused) => (Err(refused), None),
        }
    }
}

/// Adds the next entries of the own log to the request, up to [`UNASKED_BYTES`].
pub(super) async fn widen(
    request: &mut AppendEntriesRequest<TypeConfig>,
    own: &dyn OwnLog,
) -> Option<Widened> {
    let asked = request.entries.last()?.log_id;
    let used: usize = request.entries.iter().map(bytes_of).sum();
    if request.entries.len() > ENTRIES_PER_STEP || used >= UNASKED_BYTES {
        return None;
    }
    // Entries that cannot be read now are sent later, when the engine sends them itself.
    let rest = own.entries(asked.index + 1..u64::MAX).await.ok()?;
    // The leadership is checked after the read, because a later leader's vote is stored before its entries.
    let follows = rest
        .first()
        .is_some_and(|next| next.log_id.index == asked.index + 1);
    if !leads(own, &request.vote) || !follows {
        return None;
    }
    let fitting = count_that_fits(rest.iter(), UNASKED_BYTES - used);
    request.entries.extend(rest.into_iter().take(fitting));
    let sent = request.entries.last()?.log_id;
    (sent > asked).then_some(Widened { asked, sent })
}

/// Returns the approximate size of an entry on the wire.
pub(super) fn bytes_of(entry: &Entry) -> usize {
    const OVERHEAD: usize = 64;
    OVERHEAD + entry.payload.body_length()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::raft::StreamAppendError;
    use raft_types::{AppEntry, EntryPayload, OpId, TransactionPayload};

    use super::*;

    fn id(index: u64) -> LogId {
        OpId::new(1, index).into()
    }

    /// A repeated request has the same last entry. Its answer counts only from the time of the first request.
    #[test]
    fn an_answer_is_as_fresh_as_what_it_answers() {
        let vote = Vote::new_committed(1, raft_types::MemberId(1));
        let mut knowledge = crate::log_probe::knowledge::Knowledge::default();
        let began = Instant::now();
        let mut at = |milliseconds| {
            let sent = began + Duration::from_millis(milliseconds);
            knowledge.begin(&vote, sent)
        };
        let sent = [(9, at(0)), (9, at(30)), (10, at(60)), (10, at(90))];
        let way = OnTheirWay::default();
        for (index, exchange) in sent {
            way.sent(id(index), exchange);
        }
        let answered = |index| way.answered(&Ok(Some(id(index)))).map(|of| of.sent);
        let after = |milliseconds| Some(began + Duration::from_millis(milliseconds));
        assert_eq!(answered(9), after(0));
        // The follower has more entries than were requested, which covers the earlier requests too.
        assert_eq!(answered(10), after(60));
        assert_eq!(answered(10), after(90));
        assert_eq!(answered(10), None);
    }

    #[test]
    fn the_engine_gets_no_more_than_it_asked_in_however_many_answers() {
        let widened = Widened {
            asked: id(10),
            sent: id(20),
        };
        for (answered, handed_on, goes_on) in [
            (5, 5, true),
            (10, 10, true),
            (15, 10, true),
            (20, 10, false),
        ] {
            let (result, rest) = widened.cut_back(Ok(Some(id(answered))));
            assert_eq!(result, Ok(Some(id(handed_on))));
            assert_eq!(rest, goes_on.then_some(widened), "{answered}");
        }
        let refused = Err(StreamAppendError::Conflict(id(9)));
        assert_eq!(widened.cut_back(refused.clone()), (refused, None));
    }

    #[test]
    fn unrequested_entries_fit_in_a_message() {
        let payload = |bytes| TransactionPayload::seal(Bytes::from(vec![0; bytes]));
        let entry = |index| Entry {
            log_id: id(index),
            payload: EntryPayload::Normal(AppEntry::Transaction(payload(100 << 10))),
        };
        let entries: Vec<_> = (0..20).map(entry).collect();
        assert_eq!(count_that_fits(entries.iter(), UNASKED_BYTES), 5);
        assert_eq!(count_that_fits(entries[..1].iter(), 100 << 10), 0);
        let last = suffix_that_fits(entries);
        assert_eq!(last.first().unwrap().log_id.index, 15);
    }
}

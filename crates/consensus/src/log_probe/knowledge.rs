//! A leader's knowledge of one follower's log, and the decision which requests of the engine can be answered from it. These are pure
//! functions; the time is an argument. Two rules apply:
//!
//! * **Rule 1, one vote.** A report counts only while this leadership's vote is stored on both the follower and this member. A follower of
//!   a later leader may have received an old entry of this member's term again, from *that* leader. The later leader's log may lose to a
//!   third one. If this member counted the entry, it would commit an entry that is then lost (figure 8 of the Raft paper). After a leader
//!   is deposed, its own log may already be the new leader's.
//! * **Rule 2, bounded time.** Answers are given from here only for a window after the last real exchange was *sent*. The engine counts any
//!   answer as a sign of life at the time of the request. Without a bound, a deposed leader would grant itself linearizable reads. The
//!   follower accepted the exchange after it was sent. Within a window that is shorter than the lease, it has not voted for another member.
//!
//! Within a term, a follower never drops an entry that it shares with its leader. So common entries stay common, and an answer from here is
//! equivalent to a late acknowledgement. The only exception is a disk that loses acknowledged entries, even under the same leader. Then the
//! follower reports a conflict at an entry that it is known to have. All knowledge about the follower is then dropped. The engine reverts
//! its own record itself.

use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use raft_types::{LogId, LogReport, OpId, TypeConfig, Vote};
use tokio::time::Instant;

use crate::config::Timers;

/// How long the result of a real exchange is valid after the exchange was sent (rule 2).
pub(super) fn window(timers: &Timers) -> Duration {
    // Three fifths of the lease leave room for clocks that differ in speed. A heartbeat is longer than the slowest round trip, so the
    // window always outlives the exchange. With a longer window, a deposed leader would only rely on its quorum for longer.
    timers.heartbeat.min(timers.lease * 3 / 5)
}

/// The content of an engine's request, without its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) vote: Vote,
    pub(super) previous: Option<LogId>,
    /// `None` if the request only carries the commit mark.
    pub(super) last: Option<LogId>,
}

impl From<&AppendEntriesRequest<TypeConfig>> for Outline {
    fn from(request: &AppendEntriesRequest<TypeConfig>) -> Self {
        Self {
            vote: request.vote,
            previous: request.prev_log_id,
            last: request.entries.last().map(|entry| entry.log_id),
        }
    }
}

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    Answer(StreamAppendResult<TypeConfig>),
    /// The request is answered in part. The stream ends, and the engine sends the rest again.
    AnswerAndEnd(LogId),
    /// The answer to entries in flight will answer the request.
    Wait,
    /// The request is sent to the follower.
    Wire {
        /// True if the request begins exactly at the matching point. Then the rest of the log is worth sending too.
        at_the_end: bool,
    },
}

/// A real exchange with the follower that was begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) vote: Vote,
    pub(super) sent: Instant,
    epoch: u64,
}

/// A leader's knowledge of one follower's log, by the rules in the module documentation.
///
/// ```text
///   own log   ├───────────────┼──────────────┼───────────┤
///                        acknowledged     matched      pushed
///       recorded by the engine ◄┘             │           └► sent ahead, not answered yet
///                                       matching point, at least
/// ```
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    vote: Option<Vote>,
    /// The last entry up to which the logs are known to be equal.
    matched: Option<LogId>,
    /// When the last exchange that counts was sent.
    fresh_from: Option<Instant>,
    /// The last entry that the engine has recorded as equal. The engine's record never gets lower, so this field is kept when other
    /// knowledge is dropped. It ends only if the follower itself reports that it lacks the entry.
    acknowledged: Option<LogId>,
    /// Counts the events that invalidated older exchanges.
    epoch: u64,
    /// The last entry that was sent ahead, while entries are sent ahead or their answers are pending.
    pushed: Option<LogId>,
}

impl Knowledge {
    /// Decides on the first requests of a stream, until one is sent. All later requests are sent. This keeps the order of the answers, and
    /// no answer is older than an earlier one.
    pub(super) fn decide(&mut self, asked: &Outline, now: Instant, window: Duration) -> Way {
        if !self.enter(&asked.vote) {
            return Way::Wire { at_the_end: false };
        }
        let fresh = self
            .fresh_from
            .is_some_and(|sent| now.saturating_duration_since(sent) < window);
        if let Some(matched) = self.matched.filter(|_| fresh)
            && let Some(answer) = answer_from(matched, asked)
        {
            return answer;
        }
        if asked.last.is_some() {
            if self.pushed > self.matched && asked.last <= self.pushed {
                return Way::Wait;
            }
            // From here on the engine itself sends new entries.
            self.pushed = None;
        }
        Way::Wire {
            at_the_end: self.matched.is_some() && self.matched == asked.previous,
        }
    }

    /// Returns true if nothing is known yet about the follower in this leadership.
    pub(super) fn is_blank(&self, vote: &Vote) -> bool {
        !(self.is_of(vote) && (self.matched.is_some() || self.pushed.is_some()))
    }

    /// Begins a request to the follower. Its answer may later count as knowledge of the follower's log.
    pub(super) fn begin(&mut self, vote: &Vote, now: Instant) -> Exchange {
        self.enter(vote);
        Exchange {
            vote: *vote,
            sent: now,
            epoch: self.epoch,
        }
    }

    /// Records a real answer. Must be called before the answer is passed to the engine: otherwise, older knowledge would answer the
    /// engine's next request.
    pub(super) fn learn(
        &mut self,
        exchange: &Exchange,
        result: &StreamAppendResult<TypeConfig>,
        reports: Option<(&LogReport, &LogReport)>,
    ) {
        if !self.is_of(&exchange.vote) {
            return;
        }
        match result {
            Ok(Some(log_id)) => self.raise(exchange, *log_id),
            Ok(None) => {}
            Err(StreamAppendError::Conflict(at)) => self.lacks(*at),
            Err(StreamAppendError::HigherVote(_)) => self.forget(),
        }
        if let Some((own, theirs)) = reports
            && is_under(own, &exchange.vote)
            && is_under(theirs, &exchange.vote)
            && let Some(common) = last_in_common(own, theirs)
        {
            self.raise(exchange, common);
        }
    }

    fn raise(&mut self, exchange: &Exchange, log_id: LogId) {
        if exchange.epoch != self.epoch {
            return;
        }
        self.matched = self.matched.max(Some(log_id)).max(self.acknowledged);
        self.fresh_from = self.fresh_from.max(Some(exchange.sent));
    }

    /// Records that the engine has recorded the logs as equal up to `log_id`.
    pub(super) fn acknowledge(&mut self, vote: &Vote, log_id: Option<LogId>) {
        if self.is_of(vote) {
            self.acknowledged = self.acknowledged.max(log_id);
            if self.matched.is_some() {
                self.matched = self.matched.max(log_id);
            }
        }
    }

    /// Records that the follower reports that it lacks this entry. If the follower is known to have had the entry, it has lost the end of
    /// its log and has not reported its current log yet. (An old answer may look the same; that costs one exchange.)
    pub(super) fn lacks(&mut self, log_id: LogId) {
        if Some(log_id) <= self.acknowledged.max(self.matched) {
            self.acknowledged = None;
            self.forget();
        }
    }

    /// Drops earlier knowledge. Called when a call failed, because the follower may have been restarted, or when the follower gets its log
    /// in another way.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
        self.matched = None;
        self.fresh_from = None;
        self.pushed = None;
    }

    /// Records that entries were sent ahead up to `upto`.
    pub(super) fn push(&mut self, exchange: &Exchange, upto: LogId) {
        if self.is_of(&exchange.vote) && exchange.epoch == self.epoch {
            self.pushed = self.pushed.max(Some(upto));
        }
    }

    /// Returns true if more entries may be sent ahead.
    pub(super) fn is_pushing(&self, begun: &Exchange) -> bool {
        self.is_of(&begun.vote) && self.pushed.is_some()
    }

    /// Ends the wait for answers to entries that were sent ahead.
    pub(super) fn end_push(&mut self, exchange: &Exchange) {
        if self.is_of(&exchange.vote) {
            self.pushed = None;
        }
    }

    fn is_of(&self, vote: &Vote) -> bool {
        self.vote.is_some_and(|own| own.leader_id == vote.leader_id)
    }

    /// Enters a later leadership. Returns false for an earlier one, whose requests are not answered from here.
    fn enter(&mut self, vote: &Vote) -> bool {
        match self.vote {
            Some(own) if own.leader_id == vote.leader_id => true,
            Some(own) if own.leader_id.term >= vote.leader_id.term => false,
            _ => {
                *self = Self {
                    vote: Some(*vote),
                    epoch: self.epoch + 1,
                    ..Self::default()
                };
                true
            }
        }
    }
}

/// Returns the answer to a request if the logs are equal up to `matched`.
fn answer_from(matched: LogId, asked: &Outline) -> Option<Way> {
    match asked.last {
        None if asked.previous <= Some(matched) => Some(Way::Answer(Ok(asked.previous))),
        None => None,
        Some(last) if last <= matched => Some(Way::Answer(Ok(Some(last)))),
        Some(_) if asked.previous < Some(matched) => Some(Way::AnswerAndEnd(matched)),
        Some(_) => match asked.previous {
            Some(previous) if previous > matched => {
                Some(Way::Answer(Err(StreamAppendError::Conflict(previous))))
            }
            _ => None,
        },
    }
}

/// Returns true if a log is still in the leadership of this vote (rule 1).
pub(super) fn is_under(report: &LogReport, vote: &Vote) -> bool {
    report
        .vote
        .is_some_and(|stored| stored.leader_id == vote.leader_id)
}

// The matching point of two logs, from their reports.

/// Returns the last entry that two logs have in common, or `None` if the reports do not show it.
///
/// A term has one leader. Every log with entries of the term has the same first ones, without gaps (Log Matching). So the newest term that
/// both logs have decides: the logs are equal up to the last entry of that term that both have. After that, one log ends, or continues with
/// a term that the other log does not have. Entries that are purged, or older than a report's first, can hide that term. The result is then
/// `None`, never an entry that is too low.
pub(super) fn last_in_common(own: &LogReport, theirs: &LogReport) -> Option<LogId> {
    let (own, theirs) = own.runs.iter().rev().find_map(|own| {
        let mut newest_first = theirs.runs.iter().rev();
        Some((own, newest_first.find(|run| run.term == own.term)?))
    })?;
    let last = own.last.min(theirs.last);
    let both_have_it = last >= own.first.max(theirs.first);
    both_have_it.then(|| OpId::new(own.term, last).into())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod common_run_tests {
    use proptest::prelude::*;
    use raft_types::REPORTED_RUNS;
    use raft_types::TermRun;

    use super::*;

    /// The terms of a log's entries, by index.
    type Log = Vec<u64>;

    fn report(log: &[u64], purged: usize, runs: usize) -> LogReport {
        let mut found: Vec<TermRun> = Vec::new();
        for (index, &term) in log.iter().enumerate().skip(purged) {
            let index = index as u64;
            match found.last_mut() {
                Some(run) if run.term == term => run.last = index,
                _ => found.push(TermRun {
                    term,
                    first: index,
                    last: index,
                }),
            }
        }
        LogReport {
            vote: None,
            runs: found.split_off(found.len().saturating_sub(runs)),
        }
    }

    fn common(own: &[u64], theirs: &[u64]) -> Option<(u64, u64)> {
        let last = last_in_common(
            &report(own, 0, REPORTED_RUNS),
            &report(theirs, 0, REPORTED_RUNS),
        );
        last.map(|last| (last.leader_id.term, last.index))
    }

    #[test]
    fn logs_part_where_the_newest_shared_term_ends() {
        type Case<'a> = (&'a [u64], &'a [u64], Option<(u64, u64)>);
        let table: &[Case<'_>] = &[
            (&[1, 1, 1], &[1, 1, 1], Some((1, 2))),
            (&[1, 1, 1, 3], &[1, 1, 1], Some((1, 2))),
            (&[1, 1, 1, 3], &[1, 1], Some((1, 1))),
            (&[1, 1, 3], &[1, 1, 2, 2, 2], Some((1, 1))),
            (&[1, 1, 3], &[1, 1, 1, 1], Some((1, 1))),
            (&[1, 2, 2, 4], &[1, 2, 3], Some((2, 1))),
            (&[1, 1], &[2, 2], None),
            (&[1, 1], &[], None),
        ];
        for (own, theirs, expected) in table {
            assert_eq!(common(own, theirs), *expected, "{own:?} {theirs:?}");
        }
    }

    /// Logs as elections produce them: each leader continues from a copy of another log. It may overwrite any log that is not more
    /// up-to-date than its own by Raft's comparison, up to any entry.
    fn logs() -> impl Strategy<Value = (Log, Log)> {
        let step = (0..4usize, 0..4usize, 0..9usize, 0..40usize);
        proptest::collection::vec(step, 1..40).prop_map(|steps| {
            let mut members: Vec<Log> = vec![Vec::new(); 4];
            for (term, (leader, follower, appended, copied)) in (1..).zip(steps) {
                // Some terms have no entry.
                members[leader].extend(std::iter::repeat_n(term, appended));
                let led = members[leader].clone();
                if follower != leader {
                    // The follower's log becomes equal to the leader's up to this entry. Its later entries stay only while they are equal
                    // to the leader's.
                    let upto = copied.min(led.len());
                    let own = &members[follower];
                    let rest_agrees =
                        own.len() > upto && own.iter().zip(&led).all(|(own, led)| own == led);
                    if !rest_agrees {
                        members[follower] = led[..upto].to_vec();
                    }
                }
            }
            (members[0].clone(), members[1].clone())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_in_common_is_the_longest_common_prefix(
            (own, theirs) in logs(),
            own_purged in 0..60usize,
            their_purged in 0..60usize,
            runs in 1..=REPORTED_RUNS,
        ) {
            let equal = own.iter().zip(&theirs).take_while(|(own, theirs)| own == theirs).count();
            let expected = equal.checked_sub(1).map(|last| OpId::new(own[last], last as u64));
            let whole = last_in_common(
                &report(&own, 0, usize::MAX),
                &report(&theirs, 0, usize::MAX),
            );
            prop_assert_eq!(whole.map(OpId::from), expected);
            // With purged logs and short reports, the result is the same or `None`.
            let part = last_in_common(
                &report(&own, own_purged, runs),
                &report(&theirs, their_purged, runs),
            );
            if let Some(part) = part {
                prop_assert_eq!(Some(OpId::from(part)), expected);
            }
        }
    }
}

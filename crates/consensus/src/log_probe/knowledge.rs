//! What a leader knows of one follower's log, and which requests of the engine can be answered from
//! that. Pure; the time is passed in. The two rules stand here:
//!
//! * **Rule 1, one vote.** A report counts only while the follower's stored vote and the own one are
//!   this leadership's. A follower of a later leader may have taken an old entry of ours back from *that*
//!   leader, whose log loses to a third one; counting it would commit what is then lost (figure 8 of the
//!   Raft paper). A deposed leader's own log may be the new leader's already.
//! * **Rule 2, bounded time.** Answers are given from here only for the window after the last real
//!   exchange was *sent*. The engine takes any answer for a sign of life of the moment at which it made
//!   the request: without a bound a deposed leader would grant itself linearizable reads. Within a window
//!   below the lease the follower, which listened after the sending, has not voted for another.
//!
//! Within a term a follower never drops an entry that it has in common with its leader, so what was in
//! common once stays so, and an answer from here is an acknowledgement that comes late.

use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use raft_types::{LogId, LogReport, TypeConfig, Vote};
use tokio::time::Instant;

use super::common_run::last_in_common;
use crate::member::config::Timers;

/// For how long after a real exchange was sent its outcome answers for the follower (rule 2).
pub(super) fn window(timers: &Timers) -> Duration {
    // Three fifths of the lease leave room for clocks that differ in speed. A heartbeat is longer than
    // the slowest round trip, so the window always outlives the exchange; a longer one would only let a
    // deposed leader believe in its quorum for longer.
    timers.heartbeat.min(timers.lease * 3 / 5)
}

/// What a request of the engine asks, without its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) vote: Vote,
    pub(super) previous: Option<LogId>,
    /// Nothing: the request tells what is committed, and no more.
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

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// Answered from here.
    Answer(StreamAppendResult<TypeConfig>),
    /// Answered from here in part: the stream ends, and the engine comes again with the rest.
    AnswerAndEnd(LogId),
    /// Entries are on their way that will answer it.
    Wait,
    /// It goes out.
    Wire {
        /// It begins exactly where the logs part: worth sending with the rest of the log.
        at_the_end: bool,
    },
}

/// A real exchange that was begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    vote: Vote,
    sent: Instant,
    epoch: u64,
}

/// See the module.
///
/// ```text
///   own log   ├───────────────┼──────────────┼───────────┤
///                        acknowledged     matched      pushed
///             what the engine was told ◄┘      │           └► sent ahead, not answered yet
///                                       where the logs part, at least
/// ```
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    vote: Option<Vote>,
    /// The logs are equal up to here.
    matched: Option<LogId>,
    /// When the last exchange that counts was sent.
    fresh_from: Option<Instant>,
    /// The highest entry that the engine was told to be equal; it is not told less later, so this
    /// outlives forgetting.
    acknowledged: Option<LogId>,
    /// Counts what made older exchanges worthless.
    epoch: u64,
    /// The last entry that was sent ahead, as long as entries are sent ahead or awaited.
    pushed: Option<LogId>,
}

impl Knowledge {
    /// What becomes of the first requests of a stream, until one goes out. (After that all do: the
    /// order of the answers is kept, and none is older than one that was handed on.)
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
            // From here on the engine itself sends what is appended.
            self.pushed = None;
        }
        Way::Wire {
            at_the_end: self.matched.is_some() && self.matched == asked.previous,
        }
    }

    /// Whether nothing is known of this leadership's follower yet.
    pub(super) fn is_blank(&self, vote: &Vote) -> bool {
        let known = self
            .vote
            .is_some_and(|known| known.leader_id == vote.leader_id);
        !(known && (self.matched.is_some() || self.pushed.is_some()))
    }

    /// A real exchange begins.
    pub(super) fn begin(&mut self, vote: &Vote, now: Instant) -> Exchange {
        self.enter(vote);
        Exchange {
            vote: *vote,
            sent: now,
            epoch: self.epoch,
        }
    }

    /// Takes in what a real answer says. Before that answer is handed on: else the engine's next
    /// request would be answered from what was known before.
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
            Ok(None) | Err(StreamAppendError::Conflict(_)) => {}
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

    /// The engine is told that the logs are equal up to here.
    pub(super) fn acknowledge(&mut self, vote: &Vote, log_id: Option<LogId>) {
        if self.is_of(vote) {
            self.acknowledged = self.acknowledged.max(log_id);
            if self.matched.is_some() {
                self.matched = self.matched.max(log_id);
            }
        }
    }

    /// What was learned does not count any more: a call failed, so the follower may have been started
    /// again; or it gets its log another way.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
        self.matched = None;
        self.fresh_from = None;
        self.pushed = None;
    }

    /// Entries were sent ahead up to here.
    pub(super) fn push(&mut self, exchange: &Exchange, upto: LogId) {
        if self.is_of(&exchange.vote) && exchange.epoch == self.epoch {
            self.pushed = self.pushed.max(Some(upto));
        }
    }

    /// Whether entries are still to be sent ahead.
    pub(super) fn is_pushing(&self, begun: &Exchange) -> bool {
        self.is_of(&begun.vote) && self.pushed.is_some()
    }

    /// Nothing that was sent ahead is awaited any more.
    pub(super) fn end_push(&mut self, exchange: &Exchange) {
        if self.is_of(&exchange.vote) {
            self.pushed = None;
        }
    }

    fn is_of(&self, vote: &Vote) -> bool {
        self.vote.is_some_and(|own| own.leader_id == vote.leader_id)
    }

    /// Goes over to a later leadership. False for an earlier one, which gets nothing from here.
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

/// The answer to a request when the logs part behind `matched`.
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

/// Whether a log is still in the leadership of this vote (rule 1).
fn is_under(report: &LogReport, vote: &Vote) -> bool {
    report
        .vote
        .is_some_and(|stored| stored.leader_id == vote.leader_id)
}

#[cfg(test)]
mod tests;

//! Matches positions of the primary with the commits in the ring that they wait for, in stream order. Pure.
//!
//! ```text
//!  front ─► [ticket 7 │ binlog.3:816] [committed 6 │ binlog.3:1091] [rotate] [ticket 8 │ …] ◄─ back
//!           released from the front only: an ACK covers everything before its position
//! ```

use std::collections::VecDeque;

use binlog_format::framing::SourcePosition;
use raft_types::{OpId, Outcome, Ticket};
use thiserror::Error;
use tokio::time::Instant;

/// The condition for the ACK of an entry.
#[derive(Debug)]
pub enum Wait<T> {
    /// The commit of a proposal, by its ticket.
    Proposed(T),
    /// The log's commit up to an op id. The transaction was in the log before this session.
    Committed(OpId),
    /// Nothing: the source requested an ACK where no transaction ends.
    Nothing,
}

/// A transaction, or one of the ring's own entries, that waits for its commit.
#[derive(Debug)]
pub struct LedgerEntry<T> {
    /// The condition for the ACK.
    pub wait: Wait<T>,
    /// The position to acknowledge; `None` for the ring's own entries (a rotation).
    pub end: Option<SourcePosition>,
    /// The entry's share of the in-flight limit.
    pub permits: u32,
    /// When the entry arrived from the primary.
    pub since: Instant,
}

/// The position to acknowledge, and the resources that are freed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release {
    /// The highest position. One ACK for it covers all lower ones.
    pub acknowledge: Option<SourcePosition>,
    /// How many committed transactions this session had proposed.
    pub committed: u64,
    /// How many committed transactions were in the log before this session.
    pub known: u64,
    /// How many of the ring's own entries were committed, such as a rotation.
    pub own: u64,
    /// The released shares of the in-flight limit.
    pub permits: u64,
    /// Arrival times of the transactions that this session proposed.
    pub came: Vec<Instant>,
}

impl Release {
    /// True if no position can be acknowledged and no resource was freed.
    pub fn is_empty(&self) -> bool {
        self.committed + self.known + self.own == 0 && self.acknowledge.is_none()
    }

    fn add<T>(&mut self, entry: LedgerEntry<T>) {
        match (&entry.wait, &entry.end) {
            (Wait::Proposed(_), Some(_)) => {
                self.committed += 1;
                self.came.push(entry.since);
            }
            (Wait::Proposed(_), None) => self.own += 1,
            (Wait::Committed(_), _) => self.known += 1,
            (Wait::Nothing, _) => {}
        }
        self.permits += u64::from(entry.permits);
        self.acknowledge = entry.end.or_else(|| self.acknowledge.take());
    }
}

/// A proposal was not committed: its position and all later ones must not be acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a proposed transaction was not committed: {0}")]
pub struct NotCommitted(
    /// Why the proposal failed, as the ring reports it.
    pub String,
);

/// Entries that wait for their commit, in stream order.
#[derive(Debug)]
pub struct AckLedger<T> {
    pub(super) entries: VecDeque<LedgerEntry<T>>,
}

impl<T> Default for AckLedger<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
        }
    }
}

impl<T: Ticket> AckLedger<T> {
    /// Adds the next entry of the stream.
    pub fn push(&mut self, entry: LedgerEntry<T>) {
        self.entries.push_back(entry);
    }

    /// Removes entries from the front as long as their condition is met. `committed` is the log's commit index.
    ///
    /// # Errors
    /// When a proposal was not committed. Earlier entries were not released either, and the session ends.
    pub fn release(&mut self, committed: Option<OpId>) -> Result<Release, NotCommitted> {
        let mut release = Release::default();
        while let Some(front) = self.entries.front_mut() {
            match &mut front.wait {
                Wait::Proposed(ticket) => match ticket.resolved_now() {
                    Some(Outcome::Committed(_)) => {}
                    Some(Outcome::Refused(why)) => return Err(NotCommitted(why.to_string())),
                    Some(Outcome::Unknown(why)) => return Err(NotCommitted(why.to_string())),
                    None => break,
                },
                Wait::Committed(op_id) if !covers(committed, *op_id) => break,
                Wait::Committed(_) | Wait::Nothing => {}
            }
            if let Some(entry) = self.entries.pop_front() {
                release.add(entry);
            }
        }
        Ok(release)
    }

    /// The tickets of proposals without an outcome.
    pub fn into_tickets(self) -> impl Iterator<Item = T> {
        let entries = self.entries.into_iter();
        entries.filter_map(LedgerEntry::into_ticket)
    }
}

impl<T> LedgerEntry<T> {
    /// The ticket of a proposal without an outcome.
    pub(crate) fn into_ticket(self) -> Option<T> {
        match self.wait {
            Wait::Proposed(ticket) => Some(ticket),
            Wait::Committed(_) | Wait::Nothing => None,
        }
    }
}

/// True if a log that is committed up to `committed` has committed the entry `op_id`. Both belong to one log, so their indexes decide.
pub(crate) fn covers(committed: Option<OpId>, op_id: OpId) -> bool {
    committed.is_some_and(|committed| committed.index >= op_id.index)
}

#[cfg(test)]
mod tests {
    use raft_types::Refusal;

    use super::*;

    #[derive(Debug)]
    struct Known(Option<Outcome>);

    impl Ticket for Known {
        fn resolved_now(&mut self) -> Option<Outcome> {
            self.0
        }

        async fn outcome(&mut self) -> Outcome {
            match self.0 {
                Some(outcome) => outcome,
                None => std::future::pending().await,
            }
        }
    }

    fn committed() -> Wait<Known> {
        Wait::Proposed(Known(Some(Outcome::Committed(OpId::new(1, 1)))))
    }

    fn pending() -> Wait<Known> {
        Wait::Proposed(Known(None))
    }

    fn at(offset: u64) -> Option<SourcePosition> {
        Some(SourcePosition {
            file: "binlog.000001".into(),
            offset,
        })
    }

    fn ledger(entries: Vec<(Wait<Known>, Option<SourcePosition>)>) -> AckLedger<Known> {
        let mut ledger = AckLedger::default();
        for (wait, end) in entries {
            ledger.push(LedgerEntry {
                wait,
                end,
                permits: 1,
                since: Instant::now(),
            });
        }
        ledger
    }

    fn release(ledger: &mut AckLedger<Known>, index: Option<u64>) -> Release {
        let index = index.map(|index| OpId::new(1, index));
        ledger.release(index).unwrap()
    }

    #[test]
    fn one_position_covers_all_that_were_committed() {
        let mut ledger = ledger(vec![
            (committed(), at(1)),
            (committed(), at(2)),
            (pending(), at(3)),
        ]);
        let released = release(&mut ledger, None);
        assert_eq!(released.acknowledge, at(2));
        assert_eq!((released.committed, released.permits), (2, 2));
        assert_eq!(released.came.len(), 2);
        assert!(release(&mut ledger, None).is_empty());
        assert_eq!(ledger.entries.len(), 1);
    }

    #[test]
    fn nothing_is_acknowledged_past_one_that_waits() {
        let mut ledger = ledger(vec![
            (pending(), at(1)),
            (committed(), at(2)),
            (Wait::Nothing, at(3)),
        ]);
        assert!(release(&mut ledger, Some(99)).is_empty());
        assert_eq!(ledger.entries.len(), 3);
    }

    #[test]
    fn what_was_in_the_log_waits_for_the_logs_commit() {
        let known = || Wait::Committed(OpId::new(1, 7));
        let mut ledger = ledger(vec![
            (known(), at(1)),
            (known(), at(2)),
            (committed(), at(3)),
        ]);
        assert!(release(&mut ledger, None).is_empty());
        assert!(release(&mut ledger, Some(6)).is_empty());
        let released = release(&mut ledger, Some(7));
        assert_eq!(
            (released.known, released.committed, released.acknowledge),
            (2, 1, at(3))
        );
        assert_eq!(released.came.len(), 1, "the others came again");
        assert!(ledger.entries.is_empty());
    }

    #[test]
    fn entries_of_our_own_acknowledge_nothing() {
        let mut ledger = ledger(vec![(committed(), at(1)), (committed(), None)]);
        let released = release(&mut ledger, None);
        assert_eq!(
            (released.own, released.committed, released.acknowledge),
            (1, 1, at(1))
        );
        let mut ledger = self::ledger(vec![(committed(), None)]);
        let released = release(&mut ledger, None);
        assert_eq!(released.acknowledge, None);
        assert!(!released.is_empty());
    }

    #[test]
    fn a_wish_for_an_ack_without_a_transaction_is_met_in_its_turn() {
        let mut ledger = ledger(vec![(Wait::Nothing, at(4))]);
        assert_eq!(release(&mut ledger, None).acknowledge, at(4));
    }

    #[test]
    fn a_refused_proposal_ends_it() {
        let refused = Wait::Proposed(Known(Some(Outcome::Refused(Refusal::QuorumSilent))));
        let mut ledger = ledger(vec![
            (committed(), at(1)),
            (refused, at(2)),
            (pending(), at(3)),
        ]);
        assert!(ledger.release(None).is_err());
        assert_eq!(ledger.into_tickets().count(), 2);
    }
}

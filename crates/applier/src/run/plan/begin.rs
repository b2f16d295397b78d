//! Which transaction is begun next, by which worker, and with which others behind it.

use std::time::Duration;

use crate::transaction::{Body, Seq};

use super::batch::{self, Neighbour, Occasion};
use super::hand::{Hand, Held, WorkerId};
use super::tempo::Way;
use super::turns::Turns;
use super::{Plan, State};

/// With fewer batches waiting than this, there is nothing to catch up with.
const BACKLOG_BATCHES: usize = 2;

impl Plan {
    /// Gives the lowest transaction that may begin to a free worker, with those behind it when it is the first of a batch:
    /// how many they are then.
    pub(super) fn begin(&mut self, now: Duration) -> Option<(WorkerId, (Seq, usize))> {
        let seq = *self.ready.first()?;
        let free = self.hands.iter().filter(|hand| hand.is_free()).count();
        let worker = WorkerId(self.hands.iter().position(Hand::is_free)?);
        let allowed = self.pace.allowed(now);
        if allowed == 0 || self.begin_upto.is_some_and(|upto| seq > upto) {
            return None;
        }
        let base = self.scheduler.base();
        let alone = self.way(now) == Way::Alone;
        // The first one is begun whatever the others do: they may wait for it.
        if alone && free < self.hands.len() && seq != base {
            return None;
        }
        let entry = self.entry(seq)?;
        let barrier = matches!(entry.transaction.body, Body::Barrier(_));
        let turn = self.turns.may_commit(seq, base);
        if barrier && !turn {
            return None;
        }
        let count = if !barrier && turn && self.is_whole(seq) {
            let mut limit = self.batch;
            limit.transactions = limit.transactions.min(allowed);
            if self.passing.is_on() && self.ready.len() > 1 {
                // Each of them shares a force of the log with its neighbours, and those in a batch do not.
                limit.transactions = 1;
            }
            let occasion = Occasion {
                at_front: seq == base,
                others_free: if alone { 0 } else { free - 1 },
                ready: self.ready.len(),
            };
            let bytes = entry.transaction.bytes;
            batch::length(limit, bytes, occasion, self.neighbours(seq))
        } else {
            1
        };
        self.pace.begin(count);
        let seqs = (seq.0..seq.0 + count as u64).map(Seq);
        for seq in seqs {
            self.ready.remove(&seq);
            self.last_begun = self.last_begun.max(seq);
            if let Some(entry) = self.entry_mut(seq) {
                entry.state = State::Begun;
            }
            self.begun.push(seq);
        }
        if count == 1 {
            self.hands[worker.0].held = Some(Held::new(seq));
        }
        Some((worker, (seq, count)))
    }

    /// How the workers go on now.
    fn way(&mut self, now: Duration) -> Way {
        match &self.turns {
            Turns::Log if self.hands.len() > 1 && self.batch.transactions > 1 => {
                let backlog = self.entries.len() >= self.batch.transactions * BACKLOG_BATCHES;
                let way = self.tempo.look(now, self.scheduler.base().0, backlog);
                self.passing.set_on(backlog && way == Way::Beside);
                way
            }
            _ => Way::Beside,
        }
    }

    /// The transactions behind `first`, as a batch sees them.
    fn neighbours(&self, first: Seq) -> impl Iterator<Item = Neighbour> {
        let base = self.scheduler.base();
        let place = first.0 - base.0 + 1;
        let behind = self.entries.iter().skip(place as usize);
        behind.zip(first.0 + 1..).map(move |(entry, seq)| {
            let seq = Seq(seq);
            // In the log's order, the turn comes when those before it in the batch are committed.
            let turn = match &self.turns {
                Turns::Log => true,
                Turns::Snapshot(_) => self.turns.may_commit(seq, base),
            };
            let held_back = self.begin_upto.is_some_and(|upto| seq > upto);
            Neighbour {
                ends: entry.state != State::Waiting
                    || matches!(entry.transaction.body, Body::Barrier(_))
                    || !turn
                    || held_back,
                whole: self.is_whole(seq),
                ready: self.ready.contains(&seq),
                bytes: entry.transaction.bytes,
            }
        })
    }

    /// Whether all rows of a transaction are safe.
    fn is_whole(&self, seq: Seq) -> bool {
        self.scheduler.may_begin(seq)
            && self.entry(seq).is_some_and(|entry| {
                matches!(&entry.transaction.body,
                    Body::Rows(changes) if changes.rows.len() == self.scheduler.safe_rows(seq))
            })
    }
}

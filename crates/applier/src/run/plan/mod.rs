//! Which worker does what next. Pure: no clock, no task, no database; moments are time since the run began.
//!
//! Transactions come in in the log's order, workers report, and the answers are orders. The lowest transaction that may
//! begin goes to a free worker, which keeps it until it is committed. The first uncommitted one always has a worker or is
//! the next to get one, and waits for nothing but the database, so that a run never stands still.

mod begin;
mod pacing;
mod reports;
mod stalls;
#[cfg(test)]
mod tests;
mod visibility;
mod worker_slot;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Finished, Refusal, Then};
use crate::run::options::{BatchSize, Options, Pace};
use crate::run::plan::pacing::Pacing;
use crate::run::plan::visibility::{Passing, Turns};
use crate::run::plan::worker_slot::{Call, Running, WorkerSlot};
pub use crate::run::plan::worker_slot::{Failure, Order, Report, WorkerId};
use crate::scheduler::Scheduler;
use crate::transaction::{Body, Seq, Transaction};

/// A transaction that is not committed, or stands behind one.
#[derive(Debug)]
struct Entry {
    transaction: Arc<Transaction>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
    Committed,
}

/// How often transactions did not go through at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// Transactions that began again after a failure.
    pub retries: u64,
    /// Transactions that were taken back since they were in the way of an earlier one.
    pub step_backs: u64,
}

/// Which worker does what, decided purely: what workers report goes in, their orders come out.
#[derive(Debug)]
pub struct Plan {
    scheduler: Scheduler,
    turns: Turns,
    batch: BatchSize,
    stall_after: Duration,
    pace: Pace,
    pacing: Pacing,
    passing: Passing,
    /// From the scheduler's base on.
    entries: VecDeque<Entry>,
    /// Waiting transactions that may begin.
    ready: BTreeSet<Seq>,
    slots: Vec<WorkerSlot>,
    /// The last transaction that was begun.
    last_begun: Seq,
    /// Those that were begun since somebody asked.
    begun: Vec<Seq>,
    /// The last one whose commit was asked for.
    last_commit: Seq,
    /// Nothing behind this one begins.
    begin_upto: Option<Seq>,
    ended: bool,
    stopped: bool,
    refused: Option<(Seq, Box<Refusal>)>,
    mishaps: Mishaps,
}

impl Plan {
    /// The plan of a run whose first transaction has the number `first`.
    pub fn new(options: &Options, finished: Finished, first: Seq) -> Self {
        let before = Seq(first.0.saturating_sub(1));
        Self {
            scheduler: Scheduler::new(options.policy, finished, first),
            turns: Turns::new(options.commit_order, first),
            batch: options.batch,
            stall_after: options.stall_after,
            pace: Pace::new(),
            pacing: Pacing::new(),
            passing: Passing::default(),
            entries: VecDeque::new(),
            ready: BTreeSet::new(),
            slots: (0..options.workers)
                .map(|_| WorkerSlot::default())
                .collect(),
            last_begun: before,
            begun: Vec::new(),
            last_commit: before,
            begin_upto: None,
            ended: false,
            stopped: false,
            refused: None,
            mishaps: Mishaps::default(),
        }
    }

    /// The same, where sessions may be able to pass on the turn to commit.
    #[must_use]
    pub fn with_turns(mut self, passed_on: bool) -> Self {
        self.passing.available = passed_on;
        self
    }

    /// The session that commits this transaction has taken its turn: the next one may be asked.
    pub fn turn_taken(&mut self, seq: Seq) {
        self.passing.taken(seq);
    }

    /// The next transaction of the log; its number is the scheduler's next.
    pub fn admit(&mut self, transaction: Arc<Transaction>) {
        let seq = match &transaction.body {
            Body::Rows(changes) => self
                .scheduler
                .admit((0..changes.rows.len()).map(|row| changes.keys_of(row))),
            Body::Barrier(_) => self.scheduler.admit_barrier(),
        };
        self.entries.push_back(Entry {
            transaction,
            state: State::Waiting,
        });
        self.look_at(seq);
    }

    /// The source has ended: no transaction will be added.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Nothing new begins, but what those need that are begun.
    pub fn hold(&mut self) {
        self.begin_upto = Some(self.last_begun);
    }

    /// Comes to an end: nothing new begins, and what cannot be committed without that is taken back. Where commits are free,
    /// those begin that are before a commit that was asked for, so that the target ends at a prefix of the log.
    pub fn stop(&mut self) {
        self.begin_upto = Some(self.turns.stop(self.last_commit).unwrap_or_default());
        self.pace = Pace::new();
        self.stopped = true;
    }

    /// Transactions may begin again behind the one at which [`Plan`] was held.
    pub fn resume(&mut self) {
        self.begin_upto = None;
    }

    /// So many transactions may begin in a second from now on.
    pub fn set_rate(&mut self, per_second: Option<f64>, now: Duration) {
        self.pace.set(per_second, now);
    }

    /// What is to be done now.
    pub fn orders(&mut self, now: Duration) -> Vec<(WorkerId, Order)> {
        let mut orders = Vec::new();
        let lost_from = self.lost_from();
        for worker in (0..self.slots.len()).map(WorkerId) {
            let order = match lost_from {
                Some(from) if self.holds_from(worker, from) => self.leave_off(worker, now),
                _ => self.go_on(worker, now),
            };
            orders.extend(order.map(|order| (worker, order)));
        }
        if self.refused.is_some() {
            return orders;
        }
        while let Some((worker, begun)) = self.begin(now) {
            let order = match begun {
                (_, 1) => self.go_on(worker, now),
                (first, count) => self.run(worker, Call::Apply { first, count }, now),
            };
            orders.extend(order.map(|order| (worker, order)));
        }
        orders
    }

    /// When [`Self::orders`], [`Self::stalled`] or [`Self::prefix_point`] may have something new without another event.
    pub fn next_moment(&self, now: Duration) -> Option<Duration> {
        let pauses = self.slots.iter().filter_map(|slot| match &slot.running {
            Some(running) => Some(running.ask_at),
            None => slot.held.as_ref().map(|held| held.not_before),
        });
        let point = match &self.turns {
            Turns::Log => None,
            Turns::Snapshot(points) => points.look_again(self.scheduler.base()),
        };
        let pace = self.pace.next().filter(|_| !self.ready.is_empty());
        let moments = pauses.chain(point).chain(pace);
        moments.filter(|moment| *moment > now).min()
    }

    /// Whether the readers' snapshots are to be taken now; [`Self::prefix_point_taken`] is to follow.
    pub fn prefix_point(&mut self, now: Duration) -> bool {
        let base = self.scheduler.base();
        let end = self.ended && self.entries.is_empty();
        match &mut self.turns {
            Turns::Log => false,
            Turns::Snapshot(points) => points.due(now, base, self.last_commit, end),
        }
    }

    /// Readers' snapshots are taken, so that commits behind the point may go on.
    pub fn prefix_point_taken(&mut self, now: Duration) {
        if let Turns::Snapshot(points) = &mut self.turns {
            points.taken(now);
        }
    }

    /// The transactions that were begun since the last call; one that fails within a batch may be begun more than once.
    pub fn take_begun(&mut self) -> Vec<Seq> {
        std::mem::take(&mut self.begun)
    }

    /// All that the source has came in and is committed.
    pub fn caught_up(&mut self) {
        let base = self.scheduler.base();
        if let Turns::Snapshot(points) = &mut self.turns {
            points.caught_up(base);
        }
    }

    /// Whether something is to be committed before a stop, so that the target ends at a prefix of the log.
    pub fn must_go_on(&self) -> bool {
        let upto = self.begin_upto.unwrap_or_default();
        self.refused.is_none() && self.stopped && self.scheduler.base() <= upto
    }

    /// Whether a worker is at something.
    pub fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| slot.running.is_some())
    }

    /// Transactions that came in and are not committed, or stand behind one that is not.
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// The first transaction that is not committed, when there is one.
    pub fn front(&self) -> Option<&Arc<Transaction>> {
        self.entries.front().map(|entry| &entry.transaction)
    }

    /// The first transaction that was not begun, when there is one.
    pub fn first_waiting(&self) -> Option<&Arc<Transaction>> {
        let mut entries = self.entries.iter();
        let waiting = entries.find(|entry| entry.state == State::Waiting)?;
        Some(&waiting.transaction)
    }

    /// The transaction that the database refuses, when all before it are committed.
    pub fn refused(&self) -> Option<(Seq, &Refusal)> {
        self.refused
            .as_ref()
            .map(|(seq, refusal)| (*seq, refusal.as_ref()))
    }

    /// What went on besides, so far.
    pub fn mishaps(&self) -> Mishaps {
        self.mishaps
    }

    /// From here on nothing can be committed any more: a transaction is refused, or the run is stopped and does not begin one.
    fn lost_from(&self) -> Option<Seq> {
        match &self.refused {
            Some((seq, _)) => Some(*seq),
            None if !self.stopped => None,
            None => match self.turns {
                Turns::Log => self.first_waiting().map(|waiting| waiting.seq),
                Turns::Snapshot(_) => self.begin_upto.map(Seq::next),
            },
        }
    }

    fn holds_from(&self, worker: WorkerId, from: Seq) -> bool {
        let held = self.slots.get(worker.0).and_then(|slot| slot.held.as_ref());
        held.is_some_and(|held| held.seq >= from)
    }

    /// Takes back what is open. It may be in the way of a call that is to end.
    fn leave_off(&mut self, worker: WorkerId, now: Duration) -> Option<Order> {
        let slot = self.slots.get(worker.0)?;
        let is_open = slot.held.as_ref().is_some_and(|held| held.written > 0);
        (is_open && slot.running.is_none())
            .then(|| self.run(worker, Call::RollBack, now))
            .flatten()
    }

    /// The next step of a transaction that a worker holds.
    fn go_on(&mut self, worker: WorkerId, now: Duration) -> Option<Order> {
        let base = self.scheduler.base();
        let slot = self.slots.get(worker.0)?;
        let held = slot.held.as_ref().filter(|_| slot.running.is_none())?;
        let seq = held.seq;
        if held.steps_back {
            return self.run(worker, Call::RollBack, now);
        }
        let waits = held.not_before > now
            || held.after.is_some_and(|seq| !self.is_committed(seq))
            || (held.at_front_only && seq != base);
        if waits {
            return None;
        }
        let turn = self.turns.may_commit(seq, base);
        let rows = match &self.entry(seq)?.transaction.body {
            Body::Rows(changes) => changes.rows.len(),
            Body::Barrier(_) => {
                return turn.then(|| self.run(worker, Call::Barrier, now)).flatten();
            }
        };
        let safe = self.scheduler.safe_rows(seq);
        if safe == rows
            && let Turns::Log = self.turns
            && let Some(turn) = self.passing.turn(seq, base)
        {
            return self.run(worker, Call::InTurn { upto: rows, turn }, now);
        }
        let call = if safe == rows && held.written == rows {
            turn.then_some(Call::Commit)?
        } else if safe > held.written {
            let then = match turn && safe == rows {
                true => Then::Commit,
                false => Then::StayOpen,
            };
            Call::Write { upto: safe, then }
        } else {
            return None;
        };
        self.run(worker, call, now)
    }

    /// Writes down that a worker does something, and makes the order of it.
    fn run(&mut self, worker: WorkerId, call: Call, now: Duration) -> Option<Order> {
        let slot = self.slots.get(worker.0)?;
        let transaction = |seq| self.entry(seq).map(|entry| Arc::clone(&entry.transaction));
        let held = slot.held.as_ref();
        let (last, order) = match call {
            Call::Apply { first, count } => {
                let seqs = (first.0..first.0 + count as u64).map(Seq);
                let all = seqs.filter_map(transaction).collect();
                (Seq(first.0 + count as u64 - 1), Order::Apply(all))
            }
            Call::Write { upto, then } => {
                let held = held?;
                let order = Order::Write {
                    transaction: transaction(held.seq)?,
                    rows: held.written..upto,
                    then,
                };
                (held.seq, order)
            }
            Call::InTurn { upto, turn } => {
                let held = held?;
                let order = Order::InTurn {
                    transaction: transaction(held.seq)?,
                    rows: held.written..upto,
                    turn,
                };
                (held.seq, order)
            }
            Call::Commit => (held?.seq, Order::Commit(transaction(held?.seq)?)),
            Call::Barrier => (held?.seq, Order::Barrier(transaction(held?.seq)?)),
            Call::RollBack => (held?.seq, Order::RollBack),
        };
        if call.commits() {
            self.last_commit = self.last_commit.max(last);
        }
        self.slots.get_mut(worker.0)?.running = Some(Running {
            call,
            ask_at: now.saturating_add(self.stall_after),
            ask_again: self.stall_after.saturating_mul(2),
        });
        Some(order)
    }

    fn is_committed(&self, seq: Seq) -> bool {
        seq < self.scheduler.base()
            || self
                .entry(seq)
                .is_some_and(|entry| entry.state == State::Committed)
    }

    /// Puts a waiting transaction among those that are ready, if it is.
    fn look_at(&mut self, seq: Seq) {
        let waits = self
            .entry(seq)
            .is_some_and(|entry| entry.state == State::Waiting);
        if waits && self.scheduler.may_begin(seq) {
            self.ready.insert(seq);
        }
    }

    fn entry(&self, seq: Seq) -> Option<&Entry> {
        let place = seq.0.checked_sub(self.scheduler.base().0)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    fn entry_mut(&mut self, seq: Seq) -> Option<&mut Entry> {
        let place = seq.0.checked_sub(self.scheduler.base().0)?;
        self.entries.get_mut(usize::try_from(place).ok()?)
    }
}

//! Decides which worker does what next. Pure: no clock, no task, no database; times are durations since the run began.
//!
//! Input: transactions in the log's order, which are gathered into batches, and the workers' reports. Output: orders to the workers. A
//! free worker receives the lowest batch that may begin, and keeps it until it is committed. The first uncommitted batch has a worker, or
//! is the next to get one. It waits for nothing but the database, so a run never stalls.

mod gathering;
mod reports;
mod turns;
mod worker_slot;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Refusal, Then};
use crate::batch::{Batch, BatchSeq, Commits};
use crate::run::options::{BatchSize, Options, Pace};
use crate::run::plan::turns::{Pacing, PacingMode, Passing};
pub use crate::run::plan::worker_slot::{Call, Order, Report, WorkerId};
use crate::run::plan::worker_slot::{Held, Running, WorkerSlot};
use crate::scheduler::Scheduler;
use crate::transaction::Transaction;

/// An uncommitted batch, or a committed batch after an uncommitted one.
#[derive(Debug)]
struct Entry {
    batch: Arc<Batch>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
    Committed,
}

/// There is a backlog if the uncommitted transactions fill at least this many batches.
const BACKLOG_BATCHES: usize = 2;

/// Decides which worker does what, from the workers' reports.
#[derive(Debug)]
pub struct Plan {
    scheduler: Scheduler,
    batch: BatchSize,
    stall_after: Duration,
    pace: Pace,
    pacing: Pacing,
    pub(super) passing: Passing,
    /// Transactions that are in no batch yet.
    gathering: Vec<Arc<Transaction>>,
    /// The batches from the scheduler's base on.
    entries: VecDeque<Entry>,
    /// The number of waiting batches.
    waiting: usize,
    /// The number of uncommitted transactions.
    pub depth: usize,
    /// Waiting batches that may begin.
    ready: BTreeSet<BatchSeq>,
    slots: Vec<WorkerSlot>,
    /// The last batch that was begun.
    last_begun: BatchSeq,
    /// Transactions that have begun, and that the progress does not count yet.
    pub(super) begun: Vec<Arc<Transaction>>,
    /// Batches after this one must not begin.
    begin_upto: Option<BatchSeq>,
    stopped: bool,
    refused: Option<(BatchSeq, Arc<Transaction>, Box<Refusal>)>,
    /// How many batches were retried after a failure, and how many were rolled back because they blocked an earlier one.
    pub(super) retries: u64,
    pub(super) step_backs: u64,
}

impl Plan {
    /// Creates the plan of a run; `first` is the number of its first batch. `as_one`: sessions can commit a batch as one, and let the
    /// next batch take its turn early.
    pub fn new(options: &Options, first: BatchSeq, as_one: bool) -> Self {
        Self {
            scheduler: Scheduler::new(options.policy, first),
            batch: options.batch,
            stall_after: options.stall_after,
            pace: Pace::default(),
            pacing: Pacing::default(),
            passing: Passing::new(as_one),
            gathering: Vec::new(),
            entries: VecDeque::new(),
            waiting: 0,
            depth: 0,
            ready: BTreeSet::new(),
            slots: Vec::from_iter((0..options.workers).map(|_| WorkerSlot::default())),
            last_begun: BatchSeq(first.0.saturating_sub(1)),
            begun: Vec::new(),
            begin_upto: None,
            stopped: false,
            refused: None,
            retries: 0,
            step_backs: 0,
        }
    }

    /// Pauses or continues. During a pause a batch begins only if a later one has begun, which may wait for it.
    pub fn set_paused(&mut self, paused: bool) {
        self.begin_upto = paused.then_some(self.last_begun);
    }

    /// Stops the run: no batch begins. Open transactions that could be committed only after such a batch are rolled back.
    pub fn stop(&mut self) {
        self.begin_upto = Some(BatchSeq::default());
        self.pace = Pace::default();
        self.stopped = true;
    }

    /// Sets the maximum number of transactions that begin per second from now on.
    pub fn set_rate(&mut self, per_second: Option<f64>, now: Duration) {
        self.pace.set(per_second, now);
    }

    /// Returns the orders that are due now.
    pub fn orders(&mut self, now: Duration) -> Vec<(WorkerId, Order)> {
        let mut orders = Vec::new();
        for worker in (0..self.slots.len()).map(WorkerId) {
            let order = self.next_order(worker, now);
            orders.extend(order.map(|order| (worker, order)));
        }
        if self.refused.is_some() {
            return orders;
        }
        self.gather_for_free_workers(now);
        while let Some(worker) = self.begin(now) {
            let order = self.next_order(worker, now);
            orders.extend(order.map(|order| (worker, order)));
            self.gather_for_free_workers(now);
        }
        orders
    }

    /// Assigns the lowest batch that may begin to a free worker. Returns the worker.
    fn begin(&mut self, now: Duration) -> Option<WorkerId> {
        let seq = *self.ready.first()?;
        let free = self.slots.iter().filter(|slot| slot.is_free()).count();
        let worker = WorkerId(self.slots.iter().position(WorkerSlot::is_free)?);
        if self.pace.allowed(now) == 0 || self.begin_upto.is_some_and(|upto| seq > upto) {
            return None;
        }
        let base = self.scheduler.base();
        // The first uncommitted batch begins even if other workers are busy, since they may wait for it.
        if self.pacing_mode(now) == PacingMode::Alone && free < self.slots.len() && seq != base {
            return None;
        }
        let batch = Arc::clone(&self.entry(seq)?.batch);
        let several = batch.transactions().len() > 1;
        let one_by_one = several && batch.commits == Commits::OneByOne;
        let needs_turn = one_by_one || batch.barrier().is_some();
        if needs_turn && seq != base {
            return None;
        }
        self.pace.begin(batch.transactions().len());
        self.ready.remove(&seq);
        self.waiting -= 1;
        self.last_begun = self.last_begun.max(seq);
        self.begun.extend_from_slice(batch.transactions());
        self.entry_mut(seq)?.state = State::Begun;
        self.slots.get_mut(worker.0)?.held = Some(Held {
            seq,
            one_by_one,
            ..Held::default()
        });
        Some(worker)
    }

    /// Returns the workers' current mode.
    fn pacing_mode(&mut self, now: Duration) -> PacingMode {
        if self.passing.on || self.slots.len() < 2 || self.batch.transactions < 2 {
            return PacingMode::All;
        }
        let backlog = self.depth >= self.batch.transactions * BACKLOG_BATCHES;
        self.pacing.update(now, self.scheduler.base().0, backlog)
    }

    /// Returns when [`Self::orders`] or [`Self::stalled`] must be called again if no other event occurs.
    pub fn next_moment(&self, now: Duration) -> Option<Duration> {
        let pauses = self.slots.iter().filter_map(|slot| match &slot.running {
            Some(running) => Some(running.ask_at),
            None => slot.held.as_ref().map(|held| held.not_before),
        });
        let some_wait = !self.ready.is_empty() || !self.gathering.is_empty();
        let pace = self.pace.next().filter(|_| some_wait);
        pauses.chain(pace).filter(|moment| *moment > now).min()
    }

    /// True if a worker has an order.
    pub fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| slot.running.is_some())
    }

    /// Returns the first uncommitted transaction, if any.
    pub fn front(&self) -> Option<&Arc<Transaction>> {
        let Some(first) = self.entries.front() else {
            return self.gathering.first();
        };
        let held = self.slots.iter().filter_map(|slot| slot.held.as_ref());
        let mut first_held = held.filter(|held| held.seq == first.batch.seq);
        let committed = first_held.next().map_or(0, |held| held.committed);
        first.batch.transactions().get(committed)
    }

    /// Returns the first transaction that has not begun, if any.
    pub fn first_waiting(&self) -> Option<&Arc<Transaction>> {
        let first = self.first_waiting_batch().map(|batch| batch.transactions());
        first.map_or(self.gathering.first(), |all| all.first())
    }

    fn first_waiting_batch(&self) -> Option<&Arc<Batch>> {
        let mut entries = self.entries.iter();
        let waiting = entries.find(|entry| entry.state == State::Waiting)?;
        Some(&waiting.batch)
    }

    /// Returns the transaction that the database refuses, after all earlier ones are committed, and the reason.
    pub fn refused(&self) -> Option<(&Transaction, &Refusal)> {
        let (_, transaction, refusal) = self.refused.as_ref()?;
        Some((transaction, refusal))
    }

    /// Returns the first batch that can no longer be committed, because a transaction is refused, or because the stopped run does not
    /// begin a batch.
    fn lost_from(&self) -> Option<BatchSeq> {
        match &self.refused {
            Some((seq, ..)) => Some(*seq),
            None if self.stopped => Some(self.first_waiting_batch()?.seq),
            None => None,
        }
    }

    /// Returns the next order for a worker's batch, if any.
    fn next_order(&mut self, worker: WorkerId, now: Duration) -> Option<Order> {
        let base = self.scheduler.base();
        let slot = self.slots.get(worker.0)?;
        let held = slot.held.as_ref().filter(|_| slot.running.is_none())?;
        let seq = held.seq;
        let is_lost = self.lost_from().is_some_and(|from| seq >= from);
        if is_lost && held.written == 0 {
            return None;
        }
        // Roll back, because the open transaction may block a call of another worker that should end.
        if is_lost || held.rolls_back {
            return self.run(worker, Call::RollBack, now);
        }
        let batch = &self.entry(seq)?.batch;
        let alone = held.one_by_one || batch.barrier().is_some();
        let waits = held.not_before > now
            || held.after.is_some_and(|seq| !self.is_committed(seq))
            || (held.at_front_only || alone) && seq != base;
        if waits {
            return None;
        }
        if alone {
            let call = match held.one_by_one {
                true => Call::Apply(held.committed),
                false => Call::Barrier,
            };
            return self.run(worker, call, now);
        }
        let written = held.written;
        let rows = batch.rows();
        let safe = self.scheduler.safe_rows(seq);
        let then = match batch.commits {
            _ if safe < rows => None,
            Commits::AsOne => self.passing.turn(seq, base).map(Then::InTurn),
            Commits::OneByOne => (seq == base).then_some(Then::Commit),
        };
        let then = then.unwrap_or(Then::StayOpen);
        if safe <= written && then == Then::StayOpen {
            return None;
        }
        let rows = written..safe;
        self.run(worker, Call::Write { rows, then }, now)
    }

    /// Records a worker's call for its batch, and returns the order.
    fn run(&mut self, worker: WorkerId, call: Call, now: Duration) -> Option<Order> {
        let slot = self.slots.get(worker.0)?;
        let held = slot.held.as_ref()?;
        let batch = Arc::clone(&self.entry(held.seq)?.batch);
        self.slots.get_mut(worker.0)?.running = Some(Running {
            call: call.clone(),
            ask_at: now.saturating_add(self.stall_after),
            ask_again: self.stall_after.saturating_mul(2),
        });
        Some(Order { batch, call })
    }

    fn is_committed(&self, seq: BatchSeq) -> bool {
        let entry = self.entry(seq);
        let is_committed = entry.is_some_and(|entry| entry.state == State::Committed);
        is_committed || seq < self.scheduler.base()
    }

    /// Adds a waiting batch to `ready`, if it may begin.
    fn mark_ready(&mut self, seq: BatchSeq) {
        let entry = self.entry(seq);
        let waits = entry.is_some_and(|entry| entry.state == State::Waiting);
        if waits && self.scheduler.may_begin(seq) {
            self.ready.insert(seq);
        }
    }

    fn entry(&self, seq: BatchSeq) -> Option<&Entry> {
        let place = seq.0.checked_sub(self.scheduler.base().0)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    fn entry_mut(&mut self, seq: BatchSeq) -> Option<&mut Entry> {
        let place = seq.0.checked_sub(self.scheduler.base().0)?;
        self.entries.get_mut(usize::try_from(place).ok()?)
    }
}

#[cfg(test)]
mod tests;

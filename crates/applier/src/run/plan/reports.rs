//! Updates the plan after a worker's report.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::WriteError;
use crate::batch::{BatchSeq, Commits};
use crate::run::plan::worker_slot::{Held, pause};
use crate::run::plan::{Call, Plan, Report, State, WorkerId};
use crate::transaction::Transaction;

impl Plan {
    /// Records that a worker's order has ended. Returns the transactions that it committed.
    pub fn report(
        &mut self,
        worker: WorkerId,
        report: Report,
        now: Duration,
    ) -> Vec<Arc<Transaction>> {
        let slot = &mut self.slots[worker.0];
        let (Some(running), Some(mut held)) = (slot.running.take(), slot.held.take()) else {
            return Vec::new();
        };
        let Some(batch) = self.entry(held.seq).map(|entry| Arc::clone(&entry.batch)) else {
            return Vec::new();
        };
        // The transactions that the order should commit.
        let rest = batch.transactions().get(held.committed..);
        let rest = rest.filter(|_| running.call.commits()).unwrap_or_default();
        let committed = match &report.failure {
            None => rest,
            Some(_) => rest.get(..report.committed).unwrap_or(rest),
        };
        held.committed += committed.len();
        self.depth = self.depth.saturating_sub(committed.len());
        if held.committed == batch.transactions().len() {
            self.commit(held.seq);
        } else {
            match report.failure {
                None => match running.call {
                    Call::Write { rows, .. } => held.written = rows.end,
                    Call::RollBack => {
                        held.written = 0;
                        held.rolls_back = false;
                    }
                    Call::Apply(_) | Call::Barrier => {}
                },
                Some(failure) => self.failed(&mut held, failure, now),
            }
            self.slots[worker.0].held = Some(held);
        }
        committed.to_vec()
    }

    fn failed(&mut self, held: &mut Held, failure: WriteError, now: Duration) {
        held.written = 0;
        held.rolls_back = false;
        held.attempts = held.attempts.saturating_add(1);
        self.retries += 1;
        self.passing.failed(held.seq);
        let batch = self.entry(held.seq).map(|entry| &entry.batch);
        match failure {
            WriteError::Again(reason) => {
                held.not_before = now.saturating_add(pause(held.attempts));
                let (seq, attempts) = (held.seq.0, held.attempts);
                match batch.and_then(|batch| batch.barrier()) {
                    // A barrier runs alone, so nothing else is applied in the meantime, and each retry repeats its work.
                    Some(barrier) if attempts > 1 && attempts.is_power_of_two() => {
                        tracing::warn!(gtid = %barrier.gtid, attempts, %reason, "a statement of the log begins again and again");
                    }
                    _ => tracing::debug!(seq, attempts, %reason, "a batch begins again"),
                }
                if held.seq == self.scheduler.base() && held.attempts > 1 {
                    // Roll back all later transactions, in case one of them holds the lock. The database may be unable to report
                    // the blockers.
                    let all: Vec<WorkerId> = (0..self.slots.len()).map(WorkerId).collect();
                    self.blocked_by(held.seq, &all);
                }
            }
            WriteError::Lost(reason) => {
                tracing::debug!(seq = held.seq.0, %reason, "a batch begins again in a new session");
            }
            WriteError::Refused(refusal) => {
                let as_one = batch.is_some_and(|batch| batch.commits == Commits::AsOne);
                let first = batch.and_then(|batch| batch.transactions().get(held.committed));
                if as_one && !held.one_by_one {
                    // One of the transactions is refused, or they cannot be committed together. Applying them one by one finds
                    // the refused one.
                    tracing::debug!(seq = held.seq.0, %refusal, "the transactions of a batch are tried one by one");
                    held.one_by_one = true;
                } else if held.seq == self.scheduler.base()
                    && let Some(first) = first
                {
                    self.refused = Some((held.seq, Arc::clone(first), refusal));
                } else {
                    // A transaction that is not committed yet may be the cause. If it is not, the same error occurs again.
                    tracing::debug!(seq = held.seq.0, %refusal, "a transaction is tried again when all before it is committed");
                    held.at_front_only = true;
                }
            }
        }
    }

    fn commit(&mut self, seq: BatchSeq) {
        if let Some(entry) = self.entry_mut(seq) {
            entry.state = State::Committed;
        }
        let before = self.scheduler.base();
        let further = self.scheduler.committed(seq);
        for _ in before.0..self.scheduler.base().0 {
            self.entries.pop_front();
        }
        for seq in further {
            self.mark_ready(seq);
        }
    }
}

// Writes that wait for locks of later transactions. The later transactions wait for their turn to commit, which the database does
// not see, so it detects no deadlock. They are rolled back, and begin again when the earlier one is committed.

const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Plan {
    /// Returns the earliest transaction with a long-running write that a later transaction may block. The caller should query
    /// the database for the sessions that block this worker's session, and pass them to [`Self::blocked_by`].
    pub fn stalled(&mut self, now: Duration) -> Option<(WorkerId, BatchSeq)> {
        let latest_open = self.open_transactions().map(|(_, held)| held.seq).max()?;
        let slots = self.slots.iter_mut().enumerate();
        let late = slots.filter_map(|(worker, slot)| {
            let running = slot.running.as_mut().filter(|one| one.ask_at <= now)?;
            let seq = slot.held.as_ref()?.seq;
            let is_late = seq < latest_open && running.call != Call::RollBack;
            is_late.then_some((seq, worker, running))
        });
        let (seq, worker, running) = late.min_by_key(|(seq, ..)| *seq)?;
        running.ask_at = now.saturating_add(running.ask_again);
        running.ask_again = running.ask_again.saturating_mul(2).min(LONGEST_WAIT);
        Some((WorkerId(worker), seq))
    }

    /// Records that the sessions of `workers` block the write of batch `seq`. Later transactions among them are rolled back,
    /// unless their commit is already requested.
    pub fn blocked_by(&mut self, seq: BatchSeq, workers: &[WorkerId]) {
        if self.is_committed(seq) {
            return;
        }
        let open = self.open_transactions().filter(|(_, held)| held.seq > seq);
        let open: Vec<WorkerId> = open.map(|(worker, _)| worker).collect();
        for worker in open.iter().filter(|worker| workers.contains(worker)) {
            if let Some(held) = &mut self.slots[worker.0].held {
                tracing::debug!(
                    seq = held.seq.0,
                    earlier = seq.0,
                    "a transaction steps back"
                );
                held.rolls_back = true;
                held.after = Some(seq);
                self.step_backs += 1;
            }
        }
    }

    /// Returns the transactions that hold or request locks, and for which no commit is requested.
    fn open_transactions(&self) -> impl Iterator<Item = (WorkerId, &Held)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(worker, slot)| {
            let held = slot.held.as_ref().filter(|held| !held.rolls_back)?;
            let open = match &slot.running {
                None => held.written > 0,
                Some(running) => !running.call.commits() && running.call != Call::RollBack,
            };
            open.then_some((WorkerId(worker), held))
        })
    }
}

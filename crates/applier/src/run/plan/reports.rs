//! Consequences of workers' reports.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchSeq, Commits};
use crate::run::plan::worker_slot::{Call, Failure, Held, Report, WorkerId, pause};
use crate::run::plan::{Plan, State};
use crate::transaction::Transaction;

impl Plan {
    /// A worker's order has ended. Returns the transactions that it committed.
    pub fn report(
        &mut self,
        worker: WorkerId,
        report: Report,
        now: Duration,
    ) -> Vec<Arc<Transaction>> {
        let Some(slot) = self.slots.get_mut(worker.0) else {
            return Vec::new();
        };
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
                None => went_on(&mut held, running.call),
                Some(failure) => self.failed(&mut held, failure, now),
            }
            self.slots[worker.0].held = Some(held);
        }
        committed.to_vec()
    }

    fn failed(&mut self, held: &mut Held, failure: Failure, now: Duration) {
        held.written = 0;
        held.steps_back = false;
        held.attempts = held.attempts.saturating_add(1);
        self.mishaps.retries += 1;
        self.passing.failed(held.seq);
        match failure {
            Failure::Again(words) => {
                held.not_before = now.saturating_add(pause(held.attempts));
                let batch = self.entry(held.seq).map(|entry| &entry.batch);
                match batch.and_then(|batch| batch.barrier()) {
                    // Nothing else is applied in the meantime, and its work is repeated.
                    Some(barrier) if held.attempts > 1 && held.attempts.is_power_of_two() => {
                        let (gtid, attempts) = (barrier.gtid, held.attempts);
                        tracing::warn!(%gtid, attempts, %words, "a statement of the log begins again and again");
                    }
                    _ => {
                        tracing::debug!(seq = held.seq.0, attempts = held.attempts, %words, "a batch begins again");
                    }
                }
                if held.seq == self.scheduler.base() && held.attempts > 1 {
                    self.make_way(held.seq);
                }
            }
            Failure::Reopened(words) => {
                tracing::debug!(seq = held.seq.0, %words, "a batch begins again in a new session");
            }
            Failure::Refused(refusal) => {
                let batch = self.entry(held.seq).map(|entry| &entry.batch);
                let as_one = batch.is_some_and(|batch| batch.commits == Commits::AsOne);
                let first = batch.and_then(|batch| batch.transactions().get(held.committed));
                if as_one && !held.one_by_one {
                    // One of its transactions cannot be applied, or not together with the others: it must be identified.
                    tracing::debug!(seq = held.seq.0, %refusal, "the transactions of a batch are tried one by one");
                    held.one_by_one = true;
                } else if held.seq == self.scheduler.base()
                    && let Some(first) = first
                {
                    self.refused = Some((held.seq, Arc::clone(first), refusal));
                } else {
                    // A missing predecessor may be the cause; if not, the same error recurs.
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
            self.look_at(seq);
        }
    }
}

/// An order without a commit was done.
fn went_on(held: &mut Held, call: Call) {
    match call {
        Call::Write { upto, .. } => held.written = upto,
        Call::RollBack => {
            held.written = 0;
            held.steps_back = false;
        }
        Call::InTurn { .. } | Call::Commit | Call::OneByOne | Call::Barrier => {}
    }
}

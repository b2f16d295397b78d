//! What follows from what workers say.

use std::time::Duration;

use crate::run::plan::worker_slot::{Call, Failure, Held, Report, WorkerId, pause};
use crate::run::plan::{Plan, State};
use crate::transaction::Seq;

impl Plan {
    /// A worker's order came to its end. Names the transactions that are committed by it.
    pub fn report(&mut self, worker: WorkerId, report: Report, now: Duration) -> Vec<Seq> {
        let Some(slot) = self.slots.get_mut(worker.0) else {
            return Vec::new();
        };
        let Some(running) = slot.running.take() else {
            return Vec::new();
        };
        let mut held = slot.held.take();
        let (first, count) = match (running.call, &held) {
            (Call::Apply { first, count }, _) => (first, count),
            (call, Some(held)) => (held.seq, usize::from(call.commits())),
            (_, None) => return Vec::new(),
        };
        let committed = match &report.failure {
            None => count,
            Some(_) => report.committed.min(count),
        };
        let seqs: Vec<Seq> = (first.0..first.0 + committed as u64).map(Seq).collect();
        for seq in &seqs {
            self.commit(*seq);
        }
        let Some(failure) = report.failure else {
            if let Some(mut held) = held.filter(|_| committed == 0) {
                self.went_on(&mut held, running.call);
                self.slots[worker.0].held = Some(held);
            }
            return seqs;
        };
        // Whatever an order without a commit was about is rolled back; of the others, the first that is not committed.
        if committed < count || count == 0 {
            let failed = Seq(first.0 + committed as u64);
            let held = held
                .take()
                .filter(|held| held.seq == failed)
                .unwrap_or_else(|| Held::new(failed));
            self.failed(worker, held, failure, now);
            for seq in (failed.0 + 1..first.0 + count as u64).map(Seq) {
                if let Some(entry) = self.entry_mut(seq) {
                    entry.state = State::Waiting;
                }
                self.look_at(seq);
            }
        }
        seqs
    }

    /// An order without a commit was done.
    fn went_on(&mut self, held: &mut Held, call: Call) {
        match call {
            Call::Write { upto, .. } => {
                held.written = upto;
                let further = self.scheduler.row_written(held.seq, upto);
                self.look_at_all(further);
            }
            Call::RollBack => {
                held.written = 0;
                held.steps_back = false;
            }
            Call::InTurn { .. } | Call::Commit | Call::Apply { .. } | Call::Barrier => {}
        }
    }

    fn failed(&mut self, worker: WorkerId, mut held: Held, failure: Failure, now: Duration) {
        held.written = 0;
        held.steps_back = false;
        held.attempts = held.attempts.saturating_add(1);
        self.mishaps.retries += 1;
        self.passing.failed(held.seq);
        match failure {
            Failure::Again(words) => {
                held.not_before = now.saturating_add(pause(held.attempts));
                tracing::debug!(seq = held.seq.0, attempts = held.attempts, %words, "a transaction begins again");
            }
            Failure::Reopened(words) => {
                tracing::debug!(seq = held.seq.0, %words, "a transaction begins again in a new session");
            }
            Failure::Refused(refusal) => {
                if held.seq == self.scheduler.base() {
                    self.refused = Some((held.seq, refusal));
                } else {
                    // What is before it may be what is missing; if it is not, the same comes once more.
                    tracing::debug!(seq = held.seq.0, %refusal, "a transaction is tried again when all before it is committed");
                    held.at_front_only = true;
                }
            }
        }
        self.slots[worker.0].held = Some(held);
    }

    fn commit(&mut self, seq: Seq) {
        if let Some(entry) = self.entry_mut(seq) {
            entry.state = State::Committed;
        }
        let before = self.scheduler.base();
        let further = self.scheduler.committed(seq);
        for _ in before.0..self.scheduler.base().0 {
            self.entries.pop_front();
        }
        self.look_at_all(further);
    }

    fn look_at_all(&mut self, seqs: Vec<Seq>) {
        for seq in seqs {
            self.look_at(seq);
        }
    }
}

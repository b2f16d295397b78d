//! Writes that wait for locks of later transactions. Those wait for their turn, which the database does not see, so it detects
//! no deadlock. They are rolled back and begin again when the earlier one is committed.

use std::time::Duration;

use crate::batch::BatchSeq;
use crate::run::plan::Plan;
use crate::run::plan::worker_slot::{Call, Held, WorkerId};

const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Plan {
    /// The earliest transaction with a long write that a later one may block: the caller should
    /// query the database for the blockers of its worker's session, and pass them to [`Self::blocked_by`].
    pub fn stalled(&mut self, now: Duration) -> Option<(WorkerId, BatchSeq)> {
        let latest_open = self.open_transactions().map(|(_, held)| held.seq).max()?;
        let slots = self.slots.iter_mut().enumerate();
        let late = slots.filter_map(|(worker, slot)| {
            let running = slot.running.as_mut().filter(|one| one.ask_at <= now)?;
            let seq = slot
                .held
                .as_ref()
                .filter(|_| running.call != Call::RollBack)?
                .seq;
            (seq < latest_open).then_some((seq, worker, running))
        });
        let (seq, worker, running) = late.min_by_key(|(seq, ..)| *seq)?;
        running.ask_at = now.saturating_add(running.ask_again);
        running.ask_again = running.ask_again.saturating_mul(2).min(LONGEST_WAIT);
        Some((WorkerId(worker), seq))
    }

    /// These workers' sessions block the one that writes transaction `seq`: later transactions among them are rolled back, unless
    /// they are about to be committed.
    pub fn blocked_by(&mut self, seq: BatchSeq, workers: &[WorkerId]) {
        if self.is_committed(seq) {
            return;
        }
        let blockers: Vec<usize> = self
            .open_transactions()
            .filter(|(worker, held)| held.seq > seq && workers.contains(worker))
            .map(|(worker, _)| worker.0)
            .collect();
        for worker in blockers {
            if let Some(held) = self
                .slots
                .get_mut(worker)
                .and_then(|slot| slot.held.as_mut())
            {
                tracing::debug!(
                    seq = held.seq.0,
                    earlier = seq.0,
                    "a transaction steps back"
                );
                held.steps_back = true;
                held.after = Some(seq);
                self.mishaps.step_backs += 1;
            }
        }
    }

    /// The first uncommitted transaction has failed more than once: no later one may hold what it waits for.
    /// The database may not know, or not report, its blockers.
    pub(super) fn make_way(&mut self, seq: BatchSeq) {
        let all: Vec<WorkerId> = (0..self.slots.len()).map(WorkerId).collect();
        self.blocked_by(seq, &all);
    }

    /// Transactions that hold or request locks, and whose commit was not requested.
    fn open_transactions(&self) -> impl Iterator<Item = (WorkerId, &Held)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(worker, slot)| {
            let held = slot.held.as_ref().filter(|held| !held.steps_back)?;
            let open = match &slot.running {
                None => held.written > 0,
                Some(running) => !running.call.commits() && running.call != Call::RollBack,
            };
            open.then_some((WorkerId(worker), held))
        })
    }
}

//! Forms batches of transactions. While a worker is free, a batch is formed immediately. The more the workers lag, the
//! larger the batches become. No timer is needed: a worker that becomes free takes everything that arrived since the
//! last batch.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, Commits};
use crate::run::options::BatchSize;
use crate::run::plan::turns::PacingMode;
use crate::run::plan::worker_slot::WorkerSlot;
use crate::run::plan::{Entry, Plan, State};
use crate::transaction::{Body, Transaction};

impl Plan {
    /// Adds the next transaction of the log.
    pub fn admit(&mut self, transaction: Arc<Transaction>) {
        self.depth += 1;
        let is_barrier = matches!(transaction.body, Body::Barrier(_));
        let limit = self.batch_limit();
        let all = self.gathering.iter().chain([&transaction]);
        let bytes: usize = all.map(|one| one.bytes).sum();
        if is_barrier || self.gathering.len() >= limit.transactions || bytes > limit.bytes {
            self.end_batch();
        }
        self.gathering.push(transaction);
        if is_barrier || self.gathering.len() >= limit.transactions {
            self.end_batch();
        }
    }

    /// Forms a batch of the arrived transactions if a worker is idle.
    pub(super) fn gather_for_free_workers(&mut self, now: Duration) {
        let a_worker_is_free = self.waiting == 0 && self.slots.iter().any(WorkerSlot::is_free);
        let may_begin = self.begin_upto.is_none() && self.pace.allowed(now) > 0;
        if a_worker_is_free && may_begin {
            self.end_batch();
        }
    }

    /// Forms a batch of the arrived transactions, or several batches if the size limit was lowered since they arrived.
    fn end_batch(&mut self) {
        let transactions = std::mem::take(&mut self.gathering);
        for transactions in transactions.chunks(self.batch_limit().transactions.max(1)) {
            let commits = match &transactions[0].body {
                Body::Rows(_) if self.passing.on => Commits::AsOne,
                Body::Rows(_) | Body::Barrier(_) => Commits::OneByOne,
            };
            let batch = Batch::new(self.scheduler.next(), commits, transactions.to_vec());
            let seq = match batch.barrier() {
                Some(_) => self.scheduler.admit_barrier(),
                None => {
                    let pieces = batch.pieces(0..batch.rows());
                    let keys =
                        pieces.flat_map(|(changes, rows)| rows.map(|row| changes.keys_of(row)));
                    self.scheduler.admit(keys)
                }
            };
            self.entries.push_back(Entry {
                batch: Arc::new(batch),
                state: State::Waiting,
            });
            self.waiting += 1;
            self.mark_ready(seq);
        }
    }

    /// Returns the current size limit of a batch. If its transactions are committed one by one, a batch of several is
    /// allowed only for a session that runs alone, because other sessions would wait for its end.
    fn batch_limit(&self) -> BatchSize {
        let alone =
            self.passing.on || self.slots.len() == 1 || self.pacing.mode == PacingMode::Alone;
        let most = if alone { self.pace.at_once() } else { 1 };
        BatchSize {
            transactions: self.batch.transactions.min(most),
            ..self.batch
        }
    }
}

//! Forms batches of transactions: immediately while a worker is free, and larger ones the more the
//! workers lag. No timer is needed: a worker that becomes free takes everything that arrived since the last batch.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, Commits};
use crate::run::options::BatchSize;
use crate::run::plan::turns::PacingMode;
use crate::run::plan::worker_slot::WorkerSlot;
use crate::run::plan::{Entry, Plan, State};
use crate::transaction::{Body, Transaction};

/// Transactions that are in no batch yet.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    transactions: Vec<Arc<Transaction>>,
    bytes: usize,
}

impl Gathering {
    pub(super) fn first(&self) -> Option<&Arc<Transaction>> {
        self.transactions.first()
    }

    fn takes(&self, transaction: &Transaction, limit: BatchSize) -> bool {
        self.transactions.len() < limit.transactions
            && self.bytes.saturating_add(transaction.bytes) <= limit.bytes
    }

    fn add(&mut self, transaction: Arc<Transaction>) {
        self.bytes = self.bytes.saturating_add(transaction.bytes);
        self.transactions.push(transaction);
    }
}

impl Plan {
    /// The next transaction of the log.
    pub fn admit(&mut self, transaction: Arc<Transaction>) {
        self.depth += 1;
        let is_barrier = matches!(transaction.body, Body::Barrier(_));
        let limit = self.batch_limit();
        if is_barrier || !self.gathering.takes(&transaction, limit) {
            self.end_batch();
        }
        self.gathering.add(transaction);
        if is_barrier || self.gathering.transactions.len() >= limit.transactions {
            self.end_batch();
        }
    }

    /// Arrived transactions become a batch when a worker is idle.
    pub(super) fn gather_for_free_workers(&mut self, now: Duration) {
        let a_worker_is_free = self.waiting == 0 && self.slots.iter().any(WorkerSlot::is_free);
        let may_begin = self.begin_upto.is_none() && self.pace.allowed(now) > 0;
        if a_worker_is_free && may_begin {
            self.end_batch();
        }
    }

    /// Arrived transactions become a batch, or several if the limit has been lowered in the meantime.
    fn end_batch(&mut self) {
        let Gathering { transactions, .. } = std::mem::take(&mut self.gathering);
        for transactions in transactions.chunks(self.batch_limit().transactions.max(1)) {
            self.add_batch(transactions.to_vec());
        }
    }

    fn add_batch(&mut self, transactions: Vec<Arc<Transaction>>) {
        let Some(first) = transactions.first() else {
            return;
        };
        let commits = match &first.body {
            Body::Rows(_) if self.passing.on => Commits::AsOne,
            Body::Rows(_) | Body::Barrier(_) => Commits::OneByOne,
        };
        let batch = Batch::new(self.scheduler.next(), commits, transactions);
        let seq = match batch.barrier() {
            Some(_) => self.scheduler.admit_barrier(),
            None => self.scheduler.admit(
                batch
                    .pieces(0..batch.rows())
                    .flat_map(|(changes, rows)| rows.map(|row| changes.keys_of(row))),
            ),
        };
        self.entries.push_back(Entry {
            batch: Arc::new(batch),
            state: State::Waiting,
        });
        self.waiting += 1;
        self.mark_ready(seq);
    }

    /// The current size limit of a batch. A batch with separate commits is for a session that runs alone: others would
    /// wait for its end.
    fn batch_limit(&self) -> BatchSize {
        let alone =
            self.passing.on || self.slots.len() == 1 || self.pacing.mode() == PacingMode::Alone;
        let transactions = match alone {
            true => self.batch.transactions.min(self.pace.at_once()),
            false => 1,
        };
        BatchSize {
            transactions,
            bytes: self.batch.bytes,
        }
    }
}

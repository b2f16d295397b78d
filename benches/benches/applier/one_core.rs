//! Measures the applier's own cost on one core with one thread and one worker, from a log in memory. The target is either a database that
//! discards everything, or the in-memory database, which takes most of the time.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use applier::backend::{Backend, BackendError, Session, SessionId, Then, WriteError};
use applier::batch::Batch;
use applier::schema::{TableName, TableShape};
use applier::transaction::Transaction;
use binlog_format::gtid::GtidSet;
use testkit::statistics::Spread;

use crate::in_memory::{Log, memory_database, shape};
use crate::report::OneCore;

/// Measures both targets in turn.
pub(crate) fn one_core(rounds: usize, transactions: usize) -> Result<Vec<OneCore>> {
    let log = Log::make(transactions)?;
    let thread = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut nothing, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let taker = Arc::new(TakesEverything::default());
        nothing.push(thread.block_on(log.transactions_per_second(taker))?);
        memory.push(thread.block_on(log.transactions_per_second(memory_database()))?);
    }
    let of = |into, samples: &[f64]| -> Result<OneCore> {
        Ok(OneCore {
            into,
            transactions_per_second: Spread::of(samples).context("nothing was measured")?,
        })
    };
    Ok(vec![
        of("a database that takes everything", &nothing)?,
        of("the in-memory database", &memory)?,
    ])
}

/// A database without rows, which only records the committed transactions.
#[derive(Debug, Default)]
struct TakesEverything {
    executed: Arc<Mutex<GtidSet>>,
}

#[derive(Debug)]
struct TakerSession(Arc<Mutex<GtidSet>>);

impl TakerSession {
    fn commit_now(&self, transactions: &[Arc<Transaction>]) {
        let mut executed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for transaction in transactions {
            executed.add(transaction.gtid);
        }
    }
}

impl Backend for TakesEverything {
    type Session = TakerSession;

    async fn open(&self) -> Result<TakerSession, BackendError> {
        Ok(TakerSession(Arc::clone(&self.executed)))
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        let executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(executed.clone())
    }

    async fn tables(&self, names: &[TableName]) -> Result<Vec<Option<TableShape>>, BackendError> {
        let known = shape();
        let answer = names
            .iter()
            .map(|name| (*name == known.name).then(|| known.clone()));
        Ok(answer.collect())
    }

    async fn blockers(&self, _: SessionId) -> Result<Option<Vec<SessionId>>, BackendError> {
        Ok(Some(Vec::new()))
    }
}

impl Session for TakerSession {
    fn id(&self) -> SessionId {
        SessionId(1)
    }

    async fn write(
        &mut self,
        batch: &Arc<Batch>,
        _: Range<usize>,
        then: Then,
        _: impl FnMut() + Send,
    ) -> Result<(), WriteError> {
        if then == Then::Commit {
            self.commit_now(batch.transactions());
        }
        Ok(())
    }

    async fn apply(&mut self, batch: &Arc<Batch>, from: usize) -> (usize, Result<(), WriteError>) {
        let rest = batch.transactions().get(from..).unwrap_or_default();
        self.commit_now(rest);
        (rest.len(), Ok(()))
    }

    async fn run_barrier(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        self.commit_now(std::slice::from_ref(transaction));
        Ok(())
    }

    async fn roll_back(&mut self) -> Result<(), WriteError> {
        Ok(())
    }
}

//! A database with sessions that wait for permission at every call. The gate grants permissions one by one, and only when nothing else
//! can run. The seed chooses the next one, so it alone determines the order of the calls.
//!
//! The gate also simulates deadlocks, connections that break before or after a commit, and locks on more than one row, with which
//! a later transaction can block an earlier one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applier::backend::{Backend, BackendError, Session, SessionId, Then, Turn, WriteError};
use applier::batch::{Batch, BatchSeq, Commits};
use applier::schema::{TableName, TableShape};
use applier::transaction::Transaction;
use binlog_format::gtid::GtidSet;
use fastrand::Rng;
use testkit::memory_database::{MemoryBackend, MemorySession};
use tokio::sync::{Notify, oneshot};

/// The number of failures of each kind per thousand calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) again: u32,
    pub(crate) lost: u32,
    /// The number of wide locks, which several transactions have in common; 0 for none. Every third transaction takes one at its
    /// first row.
    pub(crate) wide_locks: u64,
}

#[derive(Debug)]
struct Waiting {
    session: SessionId,
    pass: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    random: Rng,
    waiting: Vec<Waiting>,
    /// The permitted calls, for comparing two runs.
    trace: Vec<u64>,
    /// The highest number of calls that waited at the same time.
    most: usize,
    wide: HashMap<u64, SessionId>,
    /// Sessions that wait for a wide lock.
    blocked: HashMap<SessionId, u64>,
    /// The last batch committed as one. It represents the number in the checkpoint row, which its writer locks until it commits.
    last: BatchSeq,
}

/// A database with sessions that wait for permission at every call.
#[derive(Debug)]
pub(crate) struct Gate {
    inner: Mutex<Inner>,
    freed: Notify,
    faults: Faults,
}

#[derive(Debug, Clone)]
pub(crate) struct GatedBackend {
    pub(crate) memory: MemoryBackend,
    pub(crate) gate: Arc<Gate>,
    pub(crate) commits_as_one: bool,
}

#[derive(Debug)]
pub(crate) struct GatedSession {
    memory: Option<MemorySession>,
    id: SessionId,
    gate: Arc<Gate>,
}

/// What happens to a call.
enum Luck {
    Good,
    Again,
    LostBefore,
    LostAfter,
}

impl Gate {
    pub(crate) fn new(seed: u64, faults: Faults) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                random: Rng::with_seed(seed),
                waiting: Vec::new(),
                trace: Vec::new(),
                most: 0,
                wide: HashMap::new(),
                blocked: HashMap::new(),
                last: BatchSeq(0),
            }),
            freed: Notify::new(),
            faults,
        })
    }

    /// Permits one call after another. In paused time, a sleep ends only when all other tasks wait.
    pub(crate) async fn choose(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let chosen = {
                let mut inner = self.inner.lock().unwrap();
                inner.waiting.retain(|one| !one.pass.is_closed());
                let count = inner.waiting.len();
                inner.most = inner.most.max(count);
                if count == 0 {
                    continue;
                }
                let place = inner.random.usize(0..count);
                let chosen = inner.waiting.remove(place);
                inner.trace.push(chosen.session.0);
                chosen
            };
            let _ = chosen.pass.send(());
        }
    }

    pub(crate) fn trace(&self) -> Vec<u64> {
        self.inner.lock().unwrap().trace.clone()
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.inner.lock().unwrap().most
    }

    async fn pass(&self, session: SessionId) -> Luck {
        let (pass, passed) = oneshot::channel();
        self.inner
            .lock()
            .unwrap()
            .waiting
            .push(Waiting { session, pass });
        passed.await.expect("the chooser continues");
        let mut inner = self.inner.lock().unwrap();
        let throw = inner.random.u32(0..1000);
        let after = inner.random.bool();
        match throw {
            throw if throw < self.faults.again => Luck::Again,
            throw if throw < self.faults.again + self.faults.lost => match after {
                true => Luck::LostAfter,
                false => Luck::LostBefore,
            },
            _ => Luck::Good,
        }
    }

    /// Waits until no other session has the transaction's wide lock, then takes the lock.
    async fn lock(&self, session: SessionId, transaction: &Transaction) {
        let number = transaction.gtid.gno.get();
        if self.faults.wide_locks == 0 || !is_wide(transaction) {
            return;
        }
        let lock = number / 3 % self.faults.wide_locks;
        self.take(session, lock).await;
    }

    /// Waits until no other session has a lock, then takes the lock.
    async fn take(&self, session: SessionId, lock: u64) {
        loop {
            let freed = self.freed.notified();
            {
                let mut inner = self.inner.lock().unwrap();
                let owner = *inner.wide.entry(lock).or_insert(session);
                if owner == session {
                    inner.blocked.remove(&session);
                    return;
                }
                inner.blocked.insert(session, lock);
            }
            freed.await;
        }
    }

    fn unlock(&self, session: SessionId) {
        let mut inner = self.inner.lock().unwrap();
        inner.blocked.remove(&session);
        inner.wide.retain(|_, owner| *owner != session);
        drop(inner);
        self.freed.notify_waiters();
    }
}

/// Whether a transaction takes a wide lock.
fn is_wide(transaction: &Transaction) -> bool {
    transaction.gtid.gno.get().is_multiple_of(3)
}

/// The lock of the checkpoint row.
const ROW: u64 = u64::MAX;

fn lost() -> WriteError {
    WriteError::Lost("the connection broke".to_owned())
}

impl GatedSession {
    fn memory(&mut self) -> Result<&mut MemorySession, WriteError> {
        self.memory.as_mut().ok_or_else(lost)
    }

    /// Waits for permission. If a transaction begins, also waits for its wide lock.
    async fn enter(&mut self, begins: Option<&Transaction>) -> Result<Luck, WriteError> {
        self.memory()?;
        let luck = self.gate.pass(self.id).await;
        if let Some(transaction) = begins {
            self.gate.lock(self.id, transaction).await;
        }
        if let Luck::Again = luck {
            self.memory()?.roll_back().await?;
            self.gate.unlock(self.id);
            return Err(WriteError::Again("deadlock".to_owned()));
        }
        if let Luck::LostBefore = luck {
            self.lose();
            return Err(lost());
        }
        Ok(luck)
    }

    fn lose(&mut self) {
        self.memory = None;
        self.gate.unlock(self.id);
    }

    /// Ends a call. `open`: the transaction stays open after a success. A refusal fails the test, because a retry would hide its
    /// cause.
    fn leave(
        &mut self,
        luck: &Luck,
        result: Result<(), WriteError>,
        open: bool,
    ) -> Result<(), WriteError> {
        if let Err(WriteError::Refused(refusal)) = &result {
            panic!("{refusal}");
        }
        if let Luck::LostAfter = luck {
            self.lose();
            return Err(lost());
        }
        if !open || result.is_err() {
            self.gate.unlock(self.id);
        }
        result
    }

    async fn write_rows(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
    ) -> Result<(), WriteError> {
        let mut all = batch.transactions().iter().filter(|_| rows.start == 0);
        let begins = all.find(|one| is_wide(one));
        let luck = self.enter(begins.map(Arc::as_ref)).await?;
        let result = self.memory()?.write(batch, rows, then, || ()).await;
        self.leave(&luck, result, then == Then::StayOpen)
    }
}

impl Drop for GatedSession {
    fn drop(&mut self) {
        self.gate.unlock(self.id);
    }
}

impl Session for GatedSession {
    fn id(&self) -> SessionId {
        self.id
    }

    async fn write(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
        mut passed: impl FnMut() + Send,
    ) -> Result<(), WriteError> {
        let Then::InTurn(turn) = then else {
            return self.write_rows(batch, rows, then).await;
        };
        self.write_rows(batch, rows, Then::StayOpen).await?;
        self.gate.take(self.id, ROW).await;
        let last = self.gate.inner.lock().unwrap().last;
        if turn == Turn::Next && last.next() != batch.seq {
            self.roll_back().await?;
            return Err(WriteError::Again("not after its predecessor".to_owned()));
        }
        passed();
        let luck = self.enter(None).await?;
        let memory = self.memory()?;
        let result = memory.write(batch, 0..0, Then::Commit, || ()).await;
        if result.is_ok() {
            self.gate.inner.lock().unwrap().last = batch.seq;
        }
        self.leave(&luck, result, false)
    }

    async fn apply(&mut self, batch: &Arc<Batch>, from: usize) -> (usize, Result<(), WriteError>) {
        let mut committed = 0;
        for transaction in &batch.transactions()[from..] {
            let result = async {
                let luck = self.enter(Some(transaction)).await?;
                let alone = vec![Arc::clone(transaction)];
                let alone = Arc::new(Batch::new(batch.seq, Commits::OneByOne, alone));
                let (_, result) = self.memory()?.apply(&alone, 0).await;
                self.leave(&luck, result, false)
            };
            if let Err(error) = result.await {
                return (committed, Err(error));
            }
            committed += 1;
        }
        (committed, Ok(()))
    }

    async fn run_barrier(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        let luck = self.enter(None).await?;
        let result = self.memory()?.run_barrier(transaction).await;
        self.leave(&luck, result, false)
    }

    async fn roll_back(&mut self) -> Result<(), WriteError> {
        self.memory()?.roll_back().await?;
        self.gate.unlock(self.id);
        Ok(())
    }
}

impl Backend for GatedBackend {
    type Session = GatedSession;

    fn commits_as_one(&self) -> bool {
        self.commits_as_one
    }

    async fn open(&self) -> Result<GatedSession, BackendError> {
        let memory = self.memory.open().await?;
        Ok(GatedSession {
            id: memory.id(),
            memory: Some(memory),
            gate: Arc::clone(&self.gate),
        })
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        self.memory.executed().await
    }

    async fn tables(&self, names: &[TableName]) -> Result<Vec<Option<TableShape>>, BackendError> {
        self.memory.tables(names).await
    }

    async fn blockers(&self, waiting: SessionId) -> Result<Option<Vec<SessionId>>, BackendError> {
        let inner = self.gate.inner.lock().unwrap();
        let owner = inner
            .blocked
            .get(&waiting)
            .and_then(|lock| inner.wide.get(lock));
        Ok(Some(owner.copied().into_iter().collect()))
    }
}

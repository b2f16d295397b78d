//! A worker: executes orders on its session, and opens a new session after a loss.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::backend::{Backend, BackendError, Session, SessionId, WriteError};
use crate::batch::BatchSeq;
use crate::run::plan::{Call, Order, Report, WorkerId};
use crate::run::{ApplyError, reach};

#[derive(Debug)]
pub(super) enum Event {
    /// A worker has opened this session.
    Opened(WorkerId, SessionId),
    /// The session with this batch has taken its turn to commit.
    TurnTaken(BatchSeq),
    /// A worker has finished its order.
    Reported(WorkerId, Report),
    /// A worker cannot continue.
    Failed(ApplyError),
    /// The sessions that block a batch, as far as the database reports them.
    Blockers(BatchSeq, Result<Option<Vec<SessionId>>, BackendError>),
}

pub(super) struct Worker<B> {
    pub(super) id: WorkerId,
    pub(super) backend: Arc<B>,
    pub(super) reopen_for: Duration,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) events: mpsc::Sender<Event>,
}

impl<B: Backend> Worker<B> {
    /// Executes orders until the driver ends, then rolls back an open transaction.
    pub(super) async fn work(mut self) {
        if let Err(error) = self.work_on().await {
            let _ = self.events.send(Event::Failed(error)).await;
        }
    }

    async fn work_on(&mut self) -> Result<(), ApplyError> {
        let Some(mut session) = self.open().await? else {
            return Ok(());
        };
        let mut is_open = false;
        while let Some(order) = self.orders.recv().await {
            let (mut committed, outcome) = perform(&mut session, &order, &self.events).await;
            let stays = matches!(order.call, Call::Write { .. }) && !order.call.commits();
            is_open = stays && outcome.is_ok();
            if let Err(WriteError::Lost(reason)) = &outcome {
                tracing::warn!(worker = self.id.0, %reason, "a session is lost; opening another one");
                drop(session);
                let Some(opened) = self.open().await? else {
                    return Ok(());
                };
                session = opened;
                committed = self.committed_of(&order).await?;
            }
            let report = Report {
                committed,
                failure: outcome.err(),
            };
            let reported = Event::Reported(self.id, report);
            if self.events.send(reported).await.is_err() {
                break;
            }
        }
        if is_open && let Err(error) = session.roll_back().await {
            tracing::debug!(worker = self.id.0, %error, "an open transaction ends with its session");
        }
        Ok(())
    }

    /// Opens a session; `None` if the driver has ended.
    async fn open(&self) -> Result<Option<B::Session>, ApplyError> {
        let session = reach(self.reopen_for, || self.backend.open()).await?;
        let opened = Event::Opened(self.id, session.id());
        let sent = self.events.send(opened).await;
        Ok(sent.is_ok().then_some(session))
    }

    /// Returns how many transactions of an order are committed, after the session was lost: the requested commit may have
    /// succeeded.
    async fn committed_of(&self, order: &Order) -> Result<usize, ApplyError> {
        let executed = reach(self.reopen_for, || self.backend.executed()).await?;
        let from = match order.call {
            Call::RollBack => return Ok(0),
            Call::Apply(from) => from,
            Call::Write { .. } | Call::Barrier => 0,
        };
        let transactions = order.batch.transactions().iter().skip(from);
        let done = transactions.take_while(|transaction| executed.contains(&transaction.gtid));
        Ok(done.count())
    }
}

/// Executes an order. After a failure, also returns the number of committed transactions.
async fn perform<S: Session>(
    session: &mut S,
    Order { batch, call }: &Order,
    events: &mpsc::Sender<Event>,
) -> (usize, Result<(), WriteError>) {
    // If this event cannot be sent, the next batch waits until this commit is answered, as without turns.
    let passed = || drop(events.try_send(Event::TurnTaken(batch.seq)));
    let written = match call {
        Call::Write { rows, then } => session.write(batch, rows.clone(), *then, passed).await,
        Call::Apply(from) => return session.apply(batch, *from).await,
        Call::Barrier => match batch.transactions() {
            [barrier, ..] => session.run_barrier(barrier).await,
            [] => Ok(()),
        },
        Call::RollBack => session.roll_back().await,
    };
    (0, written)
}

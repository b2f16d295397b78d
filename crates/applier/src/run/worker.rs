//! A worker: executes its orders on its session, and opens a new session when it loses one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::backend::{Backend, BackendError, Session, SessionId, Then, WriteError};
use crate::batch::BatchSeq;
use crate::run::error::{ApplyError, reach};
use crate::run::plan::{Failure, Order, Report, WorkerId};
use crate::transaction::Transaction;

#[derive(Debug)]
pub(super) enum Event {
    /// A worker has this session now.
    Opened(WorkerId, SessionId),
    /// The session that commits this batch has taken its turn.
    TurnTaken(BatchSeq),
    /// A worker's order has ended.
    Reported(WorkerId, Report),
    /// A worker cannot continue.
    Failed(ApplyError),
    /// Sessions that block a batch.
    Blockers(BatchSeq, Result<Vec<SessionId>, BackendError>),
}

pub(super) struct Worker<B> {
    pub(super) id: WorkerId,
    pub(super) backend: Arc<B>,
    pub(super) reopen_for: Duration,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) events: mpsc::Sender<Event>,
}

struct Gone;

impl<B: Backend> Worker<B> {
    /// Works until the driver ends; then rolls back an open transaction.
    pub(super) async fn work(mut self) {
        if let Err(error) = self.work_on().await {
            let _ = self.events.send(Event::Failed(error)).await;
        }
    }

    async fn work_on(&mut self) -> Result<(), ApplyError> {
        let Ok(mut session) = self.open().await? else {
            return Ok(());
        };
        let mut is_open = false;
        while let Some(order) = self.orders.recv().await {
            let (committed, outcome) = perform(&mut session, &order, &self.events).await;
            is_open = leaves_open(&order) && outcome.is_ok();
            let report = match outcome {
                Ok(()) => Report::DONE,
                Err(WriteError::Again(words)) => Report {
                    committed,
                    failure: Some(Failure::Again(words)),
                },
                Err(WriteError::Refused(refusal)) => Report {
                    committed,
                    failure: Some(Failure::Refused(refusal)),
                },
                Err(WriteError::Lost(words)) => {
                    tracing::warn!(worker = self.id.0, %words, "a session is lost; opening another one");
                    drop(session);
                    match self.open().await? {
                        Ok(opened) => session = opened,
                        Err(Gone) => return Ok(()),
                    }
                    Report {
                        committed: self.committed_of(&order).await?,
                        failure: Some(Failure::Reopened(words)),
                    }
                }
            };
            if self
                .events
                .send(Event::Reported(self.id, report))
                .await
                .is_err()
            {
                break;
            }
        }
        if is_open && let Err(error) = session.roll_back().await {
            tracing::debug!(worker = self.id.0, %error, "an open transaction ends with its session");
        }
        Ok(())
    }

    async fn open(&self) -> Result<Result<B::Session, Gone>, ApplyError> {
        let session = reach(self.reopen_for, || self.backend.open()).await?;
        let opened = Event::Opened(self.id, session.id());
        Ok(match self.events.send(opened).await {
            Ok(()) => Ok(session),
            Err(_) => Err(Gone),
        })
    }

    /// The number of an order's committed transactions, after a session was lost: the requested commit may have succeeded.
    async fn committed_of(&self, order: &Order) -> Result<usize, ApplyError> {
        let executed = reach(self.reopen_for, || self.backend.executed()).await?;
        let transactions = transactions_of(order).iter();
        Ok(transactions
            .take_while(|transaction| executed.contains(&transaction.gtid))
            .count())
    }
}

/// Executes it. Returns the number of committed transactions if it was not completed.
async fn perform<S: Session>(
    session: &mut S,
    order: &Order,
    events: &mpsc::Sender<Event>,
) -> (usize, Result<(), WriteError>) {
    match order {
        Order::Write { batch, rows, then } => (0, session.write(batch, rows.clone(), *then).await),
        Order::InTurn { batch, rows, turn } => {
            let seq = batch.seq;
            // Without this event the next one waits for the answer, as without turns.
            let passed = || drop(events.try_send(Event::TurnTaken(seq)));
            let written = session.write_in_turn(batch, rows.clone(), *turn, passed);
            (0, written.await)
        }
        Order::Commit(batch) => (0, session.commit(batch).await),
        Order::Apply(batch, from) => session.apply(batch, *from).await,
        Order::Barrier(transaction) => (0, session.run_barrier(transaction).await),
        Order::RollBack => (0, session.roll_back().await),
    }
}

fn leaves_open(order: &Order) -> bool {
    matches!(
        order,
        Order::Write {
            then: Then::StayOpen,
            ..
        }
    )
}

fn transactions_of(order: &Order) -> &[Arc<Transaction>] {
    match order {
        Order::Write { batch, .. } | Order::InTurn { batch, .. } | Order::Commit(batch) => {
            batch.transactions()
        }
        Order::Barrier(transaction) => std::slice::from_ref(transaction),
        Order::Apply(batch, from) => batch.transactions().get(*from..).unwrap_or_default(),
        Order::RollBack => &[],
    }
}

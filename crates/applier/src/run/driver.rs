//! The driver, a run's central task: it reports events to the plan and sends the plan's orders to the workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backend::{Backend, SessionId};
use crate::batch::BatchSeq;
use crate::run::options::{Ended, Options, RunHandle};
use crate::run::plan::{Order, Plan, WorkerId};
use crate::run::progress::StageName;
use crate::run::reader::{InFlight, Item, Reader};
use crate::run::worker::{Event, Worker};
use crate::run::{ApplyError, reach};
use crate::source::Source;
use crate::transaction::Seq;

/// The most transactions between reader and driver. They count as part of the window.
const ITEMS: usize = 64;
/// How long the end of a run waits for workers that are still in a call.
const LAST_CALLS: Duration = Duration::from_secs(10);

struct Driver<B> {
    backend: Arc<B>,
    plan: Plan,
    began: Instant,
    in_flight: HashMap<Seq, InFlight>,
    orders: Vec<mpsc::Sender<Order>>,
    sessions: HashMap<SessionId, WorkerId>,
    events: mpsc::Receiver<Event>,
    to_self: mpsc::Sender<Event>,
    items: mpsc::Receiver<Item>,
    handle: RunHandle,
    /// The tasks of the workers, and of other calls to the backend.
    tasks: JoinSet<()>,
    reader: JoinSet<()>,
    /// The result of the log, once it has ended.
    log_end: Option<Result<(), ApplyError>>,
    cancelled: bool,
    asks_blockers: bool,
}

/// Applies a source's log to a database. Transactions that the database already has are skipped, in whatever order it
/// received them.
///
/// # Errors
/// [`ApplyError`]; another run with the same target continues where this one ended.
pub async fn apply<S, B>(
    source: S,
    backend: Arc<B>,
    options: &Options,
    handle: RunHandle,
) -> Result<Ended, ApplyError>
where
    S: Source + 'static,
    B: Backend,
{
    options.validate()?;
    let executed = reach(options.reopen_for, || backend.begin()).await?;
    handle.progress.set_drained(false);
    let first = Seq(u64::try_from(executed.count()).unwrap_or(u64::MAX / 2)).next();
    // At any time, a worker has at most three events to send: a new session, a turn and a report.
    let (to_self, events) = mpsc::channel(options.workers * 3 + 4);
    let (to_driver, items) = mpsc::channel(ITEMS);
    let (target, progress) = (Arc::clone(&backend), Arc::clone(&handle.progress));
    let reading = Reader::new(source, target, options, executed, progress, to_driver);
    let mut tasks = JoinSet::new();
    let mut orders = Vec::new();
    for id in (0..options.workers).map(WorkerId) {
        let (order, to_do) = mpsc::channel(1);
        let worker = Worker {
            id,
            backend: Arc::clone(&backend),
            reopen_for: options.reopen_for,
            orders: to_do,
            events: to_self.clone(),
        };
        tasks.spawn(worker.work());
        orders.push(order);
    }
    let mut driver = Driver {
        plan: Plan::new(options, BatchSeq(first.0), backend.commits_as_one()),
        backend: Arc::clone(&backend),
        began: Instant::now(),
        in_flight: HashMap::new(),
        orders,
        sessions: HashMap::new(),
        events,
        to_self,
        items,
        handle,
        tasks,
        reader: JoinSet::from_iter([reading.read(first)]),
        log_end: None,
        cancelled: false,
        asks_blockers: false,
    };
    let ended = driver.run().await;
    driver.shut_down().await;
    if timeout(LAST_CALLS, backend.settle()).await.is_err() {
        tracing::warn!(
            "the last transactions may be missing in the target's gtid_executed; the next run adds them"
        );
    }
    ended
}

impl<B: Backend> Driver<B> {
    async fn run(&mut self) -> Result<Ended, ApplyError> {
        let mut control_is_open = true;
        self.apply_control();
        loop {
            // One timestamp for orders and timers: with two, no timer would cover the time between them.
            let now = self.began.elapsed();
            self.act(now);
            if let Some(ended) = self.end()? {
                return Ok(ended);
            }
            let wake = self.plan.next_moment(now).map(|moment| self.began + moment);
            let may_wake = wake.is_some();
            let wake = wake.unwrap_or(self.began);
            tokio::select! {
                biased;
                () = self.handle.cancel.cancelled(), if !self.cancelled => {
                    self.cancelled = true;
                    self.plan.stop();
                    self.reader.abort_all();
                }
                Some(event) = self.events.recv() => self.take_event(event)?,
                changed = self.handle.control.changed(), if control_is_open => match changed {
                    Ok(()) => self.apply_control(),
                    Err(_) => control_is_open = false,
                },
                item = self.items.recv(), if self.log_end.is_none() && !self.cancelled => self.take(item),
                ended = self.tasks.join_next() => if let Some(Err(error)) = ended {
                    return Err(ApplyError::Broken(error.to_string()));
                },
                () = sleep_until(wake), if may_wake => {}
            }
            // Process all pending events before the plan is evaluated again.
            while let Ok(event) = self.events.try_recv() {
                self.take_event(event)?;
            }
            for _ in 0..ITEMS {
                if self.log_end.is_some() || self.cancelled {
                    break;
                }
                let Ok(item) = self.items.try_recv() else {
                    break;
                };
                self.take(Some(item));
            }
        }
    }

    /// Sends the plan's orders to the workers, and updates the progress.
    fn act(&mut self, now: Duration) {
        for (worker, order) in self.plan.orders(now) {
            let sent = self.orders.get(worker.0).map(|to| to.try_send(order));
            if !matches!(sent, Some(Ok(()))) {
                // The worker has ended, and has reported the reason.
                tracing::debug!(worker = worker.0, "a worker takes no order");
            }
        }
        for transaction in std::mem::take(&mut self.plan.begun) {
            self.handle
                .progress
                .pass(StageName::Scheduled, &transaction);
        }
        if !self.asks_blockers
            && let Some((worker, seq)) = self.plan.stalled(now)
        {
            self.ask_blockers(worker, seq);
        }
        let (plan, progress) = (&self.plan, &self.handle.progress);
        progress.waits(StageName::Scheduled, plan.first_waiting().map(Arc::as_ref));
        progress.waits(StageName::Committed, plan.front().map(Arc::as_ref));
        progress.count(|counts| {
            counts.window_transactions = plan.depth as u64;
            counts.retries = plan.retries;
            counts.step_backs = plan.step_backs;
        });
    }

    /// Returns the result if the run is over.
    fn end(&mut self) -> Result<Option<Ended>, ApplyError> {
        if self.plan.is_busy() {
            return Ok(None);
        }
        if let Some((transaction, refusal)) = self.plan.refused() {
            return Err(ApplyError::Refused {
                gtid: transaction.gtid,
                refusal: Box::new(refusal.clone()),
            });
        }
        if self.cancelled {
            return Ok(Some(Ended::Cancelled));
        }
        if self.plan.depth > 0 {
            return Ok(None);
        }
        let end = self.log_end.take();
        end.map(|end| end.map(|()| Ended::WithTheLog)).transpose()
    }

    fn take_event(&mut self, event: Event) -> Result<(), ApplyError> {
        match event {
            Event::Opened(worker, session) => {
                self.sessions.retain(|_, of| *of != worker);
                self.sessions.insert(session, worker);
            }
            Event::Reported(worker, report) => {
                for transaction in self.plan.report(worker, report, self.began.elapsed()) {
                    self.handle
                        .progress
                        .pass(StageName::Committed, &transaction);
                    let in_flight = self.in_flight.remove(&transaction.seq);
                    if let Some(done) = in_flight.and_then(|in_flight| in_flight.done) {
                        // The reader may have ended.
                        let _ = done.send(());
                    }
                }
            }
            Event::TurnTaken(seq) => self.plan.passing.taken(seq),
            Event::Failed(error) => return Err(error),
            Event::Blockers(seq, Ok(sessions)) => {
                self.asks_blockers = false;
                let known = sessions.as_ref();
                let workers = self.sessions.iter();
                let workers = workers.filter(|(id, _)| known.is_none_or(|ids| ids.contains(id)));
                let workers: Vec<WorkerId> = workers.map(|(_, worker)| *worker).collect();
                self.plan.blocked_by(seq, &workers);
            }
            Event::Blockers(_, Err(error)) => {
                self.asks_blockers = false;
                tracing::warn!(%error, "the sessions that block each other are unknown");
            }
        }
        Ok(())
    }

    /// Processes an item of the reader; `None` when the reader has ended.
    fn take(&mut self, item: Option<Item>) {
        match item {
            Some(Item::Transaction(transaction, in_flight)) => {
                self.in_flight.insert(transaction.seq, in_flight);
                self.plan.admit(transaction);
            }
            Some(Item::End(end)) => self.log_end = Some(end),
            None => self.log_end = Some(Err(ApplyError::Broken("the reader".to_owned()))),
        }
    }

    /// Applies the operator's control settings.
    fn apply_control(&mut self) {
        let control = *self.handle.control.borrow_and_update();
        if self.cancelled {
            return;
        }
        self.plan.set_paused(control.paused);
        let now = self.began.elapsed();
        self.plan.set_rate(control.max_transactions_per_second, now);
    }

    fn ask_blockers(&mut self, worker: WorkerId, seq: BatchSeq) {
        let session = self.sessions.iter().find(|(_, of)| **of == worker);
        let Some(session) = session.map(|(session, _)| *session) else {
            return;
        };
        self.asks_blockers = true;
        let (backend, answer) = (Arc::clone(&self.backend), self.to_self.clone());
        self.tasks.spawn(async move {
            let blockers = backend.blockers(session).await;
            let _ = answer.send(Event::Blockers(seq, blockers)).await;
        });
    }

    /// Waits for the workers, at most `LAST_CALLS`: they end their calls and roll back open transactions.
    async fn shut_down(mut self) {
        self.reader.abort_all();
        self.orders.clear();
        self.events.close();
        let ends = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(LAST_CALLS, ends).await.is_err() {
            tracing::warn!("a worker's last call does not end; its session is dropped");
            self.tasks.abort_all();
        }
    }
}

//! The task that opens and closes: on every change of what the decision depends on, and again after
//! a failure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_link::ConnectOptions;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::events::{EventScheduler, enable_replicated};
use crate::gate::decision::{
    CloseReason, GateAction, GateInputs, GateMemory, GateView, StayReason, decide,
    is_attached_and_looked_at,
};
use crate::ingest::IngestStatus;
use crate::leading::{RingObserver, Woken, due};
use crate::long_statements;
use crate::read_only;
use crate::ring::{LeaderTerm, Ring, RingChanges};
use crate::role_status::Readiness;
use crate::tail_trim::ProtectionStart;
use crate::watch::{ReadOnly, WatchReport};

/// How to open and close.
#[derive(Debug, Clone)]
pub struct GateOptions {
    /// The primary and our account.
    pub connect: ConnectOptions,
    /// How long the primary stays open while this member does not serve; see [`GateInputs`].
    pub patience: Duration,
    /// How long closing may wait behind running statements. Whole seconds; new writes wait meanwhile.
    pub lock_wait: Duration,
    /// How long statements may hold up the closing for a planned switchover before their sessions are killed; `None`: such a
    /// switchover does not take place.
    pub statement_patience: Option<Duration>,
    /// From a failure to the next attempt.
    pub retry: Duration,
    /// Who knows whether the primary is to run events; `None` leaves its scheduler as it is.
    pub events: Option<EventScheduler>,
    /// Begins a binlog file that can be trimmed, on a server that ran before its member.
    pub protection_start: Option<ProtectionStart>,
}

impl GateOptions {
    /// The defaults: ten seconds without a serving leadership are borne, which an election and a
    /// handover take together; one second is waited for a lock.
    pub fn new(mut connect: ConnectOptions) -> Self {
        let limit = Duration::from_secs(2);
        connect.timeouts.connect = connect.timeouts.connect.min(limit);
        connect.timeouts.statement = connect.timeouts.statement.min(limit);
        connect.program_name = "witness-gate".to_owned();
        Self {
            connect,
            patience: Duration::from_secs(10),
            lock_wait: Duration::from_secs(1),
            statement_patience: None,
            retry: Duration::from_secs(3),
            events: None,
            protection_start: None,
        }
    }

    /// How long a planned switchover waits at most for statements with such a patience.
    pub fn longest_wait_for_statements(patience: Option<Duration>) -> Duration {
        patience.map_or(Duration::ZERO, long_statements::longest)
    }
}

/// Whether clients may write, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum GateState {
    /// They may.
    Open,
    /// They may not.
    Closed {
        /// Why.
        why: String,
    },
    /// They may, but should not: closing has not worked yet.
    NotClosed {
        /// Why it should be closed.
        why: String,
        /// Why that has not worked, and what to do.
        cause: String,
        /// In which start of mysqld closing waited behind commits; `None` where it failed for another reason.
        stuck_in: Option<u64>,
    },
    /// They are about to. Whether they already may is not known.
    Opening,
    /// They may not, but should: opening has not worked yet.
    NotOpened {
        /// Why not, and what to do.
        cause: String,
    },
    /// The server cannot be looked at.
    Unknown,
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateStatus {
    /// Whether clients may write.
    pub state: GateState,
    /// Since when it has been so.
    pub since: Instant,
}

/// Opens and closes the primary.
#[derive(Debug)]
pub struct Gate<R: Ring> {
    observer: Arc<RingObserver<R>>,
    changes: RingChanges,
    options: GateOptions,
    reports: watch::Receiver<WatchReport>,
    ingest: watch::Receiver<IngestStatus>,
    readiness: watch::Receiver<Readiness>,
    handing_over: watch::Receiver<bool>,
    status: watch::Sender<GateStatus>,
    memory: GateMemory,
    /// When we last moved it or failed to, and what is so since then: a report of an earlier look does
    /// not tell.
    moved: Option<(Instant, ReadOnly)>,
    retry_at: Option<Instant>,
    /// The start of mysqld whose binlog was made one that can be trimmed.
    trimmable_in: Option<u64>,
    /// Enables the events that came by replication, while the primary is open.
    enabling: JoinSet<()>,
}

impl<R: Ring> Gate<R> {
    /// A gate that is not running yet, and its status.
    pub fn new(
        observer: Arc<RingObserver<R>>,
        options: GateOptions,
        reports: watch::Receiver<WatchReport>,
        ingest: watch::Receiver<IngestStatus>,
        readiness: watch::Receiver<Readiness>,
        handing_over: watch::Receiver<bool>,
    ) -> (Self, watch::Receiver<GateStatus>) {
        let (status, receiver) = watch::channel(GateStatus {
            state: GateState::Unknown,
            since: Instant::now(),
        });
        let gate = Self {
            changes: observer.ring().changes(),
            observer,
            options,
            reports,
            ingest,
            readiness,
            handing_over,
            status,
            memory: GateMemory::default(),
            moved: None,
            retry_at: None,
            trimmable_in: None,
            enabling: JoinSet::new(),
        };
        (gate, receiver)
    }

    /// Acts until it is told to stop. Then it closes once more, as far as that works at once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut woken = Woken::Told;
        loop {
            let next = self.act(woken).await;
            tokio::select! {
                () = stop.cancelled() => break,
                now = self.something_changes(next) => woken = now,
            }
        }
        if self
            .view()
            .is_some_and(|view| view.read_only != ReadOnly::Everybody)
        {
            self.close(CloseReason::NotLeader).await;
        }
    }

    async fn something_changes(&mut self, next: Option<Instant>) -> Woken {
        tokio::select! {
            () = self.changes.changed() => {}
            _ = self.reports.changed() => {}
            _ = self.ingest.changed() => {}
            _ = self.readiness.changed() => {}
            _ = self.handing_over.changed() => {}
            woken = due(next) => return woken,
        }
        Woken::Told
    }

    /// Says when to look again although nothing has changed: silence and retries are a matter of time alone.
    async fn act(&mut self, woken: Woken) -> Option<Instant> {
        let (protection, looked_at) = {
            let report = self.reports.borrow_and_update();
            (report.protection.clone(), report.looked_at)
        };
        let readiness = *self.readiness.borrow_and_update();
        let handing_over = *self.handing_over.borrow_and_update();
        let leading = self.observer.look();
        let attached =
            is_attached_and_looked_at(&self.ingest.borrow_and_update(), leading, looked_at);
        let patience_ends = leading.patience_left(self.options.patience);
        let patience_ends = patience_ends.map(|left| Instant::now() + left);
        let inputs = GateInputs {
            leading,
            attached,
            readiness,
            handing_over,
            protection: &protection,
            server: self.view(),
            patience: self.options.patience,
        };
        let action = decide(&inputs, &self.memory);
        let waits = self.retry_at.is_some_and(|at| Instant::now() < at);
        if woken == Woken::Unasked && !waits && !matches!(action, GateAction::Stay(_)) {
            debug!(?action, "nothing told the gate to do this");
        }
        match action {
            GateAction::Open(term) if !waits => self.open(term).await,
            GateAction::Close(reason) if !waits => self.close(reason).await,
            GateAction::Open(_) | GateAction::Close(_) => {}
            GateAction::Stay(reason) => {
                self.retry_at = None;
                self.settle(reason);
            }
        }
        [patience_ends, self.retry_at].into_iter().flatten().min()
    }

    /// What the watcher saw, unless we know better: `super_read_only` reads ON from the moment in which
    /// it is being set, also while that waits behind commits and comes to nothing.
    fn view(&self) -> Option<GateView> {
        let report = self.reports.borrow();
        let server = report.server.as_ref()?;
        let read_only = match self.moved {
            Some((at, read_only)) if at >= report.looked_at => read_only,
            _ => server.read_only,
        };
        Some(GateView {
            read_only,
            incarnation: server.incarnation,
        })
    }

    async fn open(&mut self, term: LeaderTerm) {
        let incarnation = self.view().map_or(0, |view| view.incarnation);
        // Until it is decided nobody takes the server for closed, and has it follow somebody.
        self.go(GateState::Opening);
        if let Some(start) = &self.options.protection_start
            && self.trimmable_in != Some(incarnation)
        {
            match start.ensure(&self.options.connect).await {
                Ok(()) => self.trimmable_in = Some(incarnation),
                Err(cause) => {
                    warn!("a crash of mysqld may not be trimmed until its next start: {cause}");
                }
            }
        }
        let events = match &self.options.events {
            Some(scheduler) => scheduler.wanted().await,
            None => false,
        };
        // What was asked until here may have taken long.
        if !self.may_still_open(term) {
            self.go(GateState::Unknown);
            return;
        }
        match read_only::open(&self.options.connect, events).await {
            Ok(()) => {
                info!(term = term.0, "the primary is open for writes");
                self.memory = GateMemory {
                    opened: Some((term, incarnation)),
                    closed_by_us: false,
                };
                self.moved = Some((Instant::now(), ReadOnly::Off));
                self.retry_at = None;
                self.go(GateState::Open);
                self.enable_events();
            }
            Err(error) => {
                self.retry_at = Some(Instant::now() + self.options.retry);
                self.go(GateState::NotOpened {
                    cause: error.to_string(),
                });
            }
        }
    }

    /// Whether what was decided is still so.
    fn may_still_open(&self, term: LeaderTerm) -> bool {
        self.observer.ring().serving_term() == Some(term)
            && self.readiness.borrow().allows(term)
            && !*self.handing_over.borrow()
    }

    /// Behind the opening, since it waits for the ring: what clients wait for comes first.
    fn enable_events(&mut self) {
        self.enabling.abort_all();
        if self.options.events.is_none() {
            return;
        }
        let (connect, retry) = (self.options.connect.clone(), self.options.retry);
        self.enabling.spawn(async move {
            while let Err(error) = enable_replicated(&connect).await {
                warn!("events that came by replication are not enabled yet: {error}");
                tokio::time::sleep(retry).await;
            }
        });
    }

    async fn close(&mut self, reason: CloseReason) {
        self.enabling.abort_all();
        // The attempt makes a connection of its own, and so meets this start of mysqld or a later one.
        let before = self.view();
        let (connect, lock_wait) = (&self.options.connect, self.options.lock_wait);
        let closed = match reason {
            CloseReason::HandingOver => {
                let patience = self.options.statement_patience;
                let ring = self.observer.ring();
                let wanted = || *self.handing_over.borrow() && ring.primary_elsewhere().is_none();
                long_statements::close(connect, lock_wait, patience, wanted).await
            }
            _ => read_only::close(connect, lock_wait).await,
        };
        match closed {
            Ok(()) => {
                info!(%reason, "the primary is closed for writes");
                self.memory.closed_by_us = true;
                self.moved = Some((Instant::now(), ReadOnly::Everybody));
                self.retry_at = None;
                self.go(GateState::Closed {
                    why: reason.to_string(),
                });
            }
            Err(error) => {
                warn!(%reason, "the primary could not be closed for writes: {error}");
                let now = Instant::now();
                self.moved = before.map(|view| (now, view.read_only));
                self.retry_at = Some(now + self.options.retry);
                self.go(GateState::NotClosed {
                    why: reason.to_string(),
                    cause: error.to_string(),
                    stuck_in: before
                        .filter(|_| error.is_behind_commits())
                        .map(|view| view.incarnation),
                });
            }
        }
    }

    fn settle(&self, reason: StayReason) {
        let closed = |why: &str| GateState::Closed {
            why: why.to_owned(),
        };
        self.go(match reason {
            StayReason::Open => GateState::Open,
            StayReason::Closed(reason) => closed(&reason.to_string()),
            StayReason::ClosedUntilAttached => closed("the primary's transactions are not taken in yet"),
            StayReason::ClosedByOthers => closed(
                "read_only or super_read_only was set by another session; SET GLOBAL read_only = OFF opens the primary again",
            ),
            StayReason::Unknown => GateState::Unknown,
        });
    }

    fn go(&self, state: GateState) {
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            if changed {
                *status = GateStatus {
                    state,
                    since: Instant::now(),
                };
            }
            changed
        });
    }
}

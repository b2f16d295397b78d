//! The task that keeps ordinary accounts off and lets them in again. It waits for nothing that commits hold up, so it is not the
//! gate's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_link::ConnectOptions;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::fence::decision::{Fence, FenceAction, FenceReason, FenceView};
use crate::fence::offline_mode::{SetOffline, lower, raise};
use crate::leading::{RingObserver, Woken, due};
use crate::ring::{Ring, RingChanges};
use crate::role_status::{Readiness, RoleState, RoleStatus};
use crate::watch::WatchReport;

/// Between two signs of life for the guard.
const TICK: Duration = Duration::from_millis(100);
/// From a failure to the next attempt, and from finding that it is somebody else's to the next question.
const RETRY: Duration = Duration::from_secs(1);

/// What the fence is decided from.
#[derive(Debug)]
pub struct FenceInputs {
    /// What the watch saw.
    pub reports: watch::Receiver<WatchReport>,
    /// Whether the server may be the primary.
    pub readiness: watch::Receiver<Readiness>,
    /// What it is to the ring; none where nothing is applied to it.
    pub role: Option<watch::Receiver<RoleStatus>>,
}

/// What the fence is at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FenceStatus {
    /// Whether clients take the server for the primary, so that they would have to be kept off if this member were gone.
    pub guards: bool,
    /// Why ordinary accounts are kept off by this member, if they are.
    pub because: Option<FenceReason>,
}

/// See the module.
pub struct FenceTask<R> {
    observer: Arc<RingObserver<R>>,
    changes: RingChanges,
    connect: ConnectOptions,
    grace: Duration,
    inputs: FenceInputs,
    status: watch::Sender<FenceStatus>,
    fence: Fence,
    /// When it was changed last, and to what: an earlier look does not tell.
    changed: Option<(Instant, bool)>,
    retry_at: Option<Instant>,
    /// Told at each turn whether the server would have to be kept from readers if this member were gone.
    guard: Option<ToGuard>,
}

/// Tells the guard that the member goes on, and whether clients take the server for a primary that another one could succeed.
pub type ToGuard = Box<dyn Fn(bool) + Send>;

impl<R: Ring> FenceTask<R> {
    /// A task that is not running yet, and its status. Ordinary accounts stay for `grace` while this member does not
    /// serve.
    pub fn new(
        observer: Arc<RingObserver<R>>,
        mut connect: ConnectOptions,
        grace: Duration,
        inputs: FenceInputs,
    ) -> (Self, watch::Receiver<FenceStatus>) {
        let limit = Duration::from_secs(2);
        connect.timeouts.connect = connect.timeouts.connect.min(limit);
        connect.timeouts.statement = connect.timeouts.statement.min(limit);
        connect.program_name = "witness-fence".to_owned();
        let (status, receiver) = watch::channel(FenceStatus::default());
        let task = Self {
            changes: observer.ring().changes(),
            observer,
            connect,
            grace,
            inputs,
            status,
            fence: Fence::default(),
            changed: None,
            retry_at: None,
            guard: None,
        };
        (task, receiver)
    }

    /// Has the guard told at each turn, from the first look at mysqld on: before that, an earlier life's guard knows more.
    pub fn guarded_by(mut self, guard: Option<ToGuard>) -> Self {
        self.guard = guard;
        self
    }

    /// Acts until it is told to stop, and leaves the server as it is then.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut woken = Woken::Told;
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return,
                next = self.act(woken) => next,
            };
            woken = tokio::select! {
                () = stop.cancelled() => return,
                woken = self.something_changes(next) => woken,
            };
        }
    }

    async fn something_changes(&mut self, next: Option<Instant>) -> Woken {
        let role = async {
            match &mut self.inputs.role {
                Some(role) => drop(role.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changes.changed() => {}
            _ = self.inputs.reports.changed() => {}
            _ = self.inputs.readiness.changed() => {}
            () = role => {}
            () = tokio::time::sleep(TICK), if self.guard.is_some() => {}
            woken = due(next) => return woken,
        }
        Woken::Told
    }

    /// Says when to look again although nothing has changed: the grace period and the pause before a retry end by time alone.
    async fn act(&mut self, woken: Woken) -> Option<Instant> {
        let now = Instant::now();
        let view = self.view();
        let action = self.fence.decide(&view, now);
        if let Some(guard) = self.guard.as_ref().filter(|_| view.server.is_some()) {
            guard(self.fence.guards() && view.others);
        }
        if action != FenceAction::Stay && self.retry_at.is_some_and(|at| now < at) {
            return self.retry_at;
        }
        if action != FenceAction::Stay && woken == Woken::Unasked {
            debug!(?action, "nothing told the fence to do this");
        }
        match action {
            FenceAction::Stay if !view.offline => self.tell(None),
            FenceAction::Stay => {
                let because = self.status.borrow().because;
                self.tell(because);
            }
            FenceAction::Raise(reason) => self.raise(reason).await,
            FenceAction::Lower => self.lower().await,
        }
        let times = [self.fence.grace_ends(self.grace), self.retry_at];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    fn view(&mut self) -> FenceView {
        let leading = self.observer.look();
        let report = self.inputs.reports.borrow_and_update();
        let server = report.server.as_ref();
        let seen = server.is_some_and(|server| server.offline);
        let follows = self
            .inputs
            .role
            .as_mut()
            .is_some_and(|role| role.borrow_and_update().state == RoleState::Following);
        FenceView {
            leading,
            readiness: *self.inputs.readiness.borrow_and_update(),
            follows,
            server: server.map(|server| server.incarnation),
            read_only: server.map_or(crate::watch::ReadOnly::Everybody, |server| server.read_only),
            offline: match self.changed {
                Some((at, offline)) if at >= report.looked_at => offline,
                _ => seen,
            },
            others: self.observer.ring().others_may_be_primary(),
            grace: self.grace,
        }
    }

    async fn raise(&mut self, reason: FenceReason) {
        match raise(&self.connect).await {
            Ok(done) => {
                self.settle(true);
                if done == SetOffline::Changed {
                    warn!(%reason, "the sessions of ordinary accounts are closed, and new ones are refused (offline_mode)");
                }
                self.tell(Some(reason));
            }
            Err(error) => {
                warn!(%reason, "ordinary accounts can still read from this server: {error}");
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    async fn lower(&mut self) {
        match lower(&self.connect).await {
            Ok(SetOffline::NotOurs) => {
                self.retry_at = Some(Instant::now() + RETRY);
                self.tell(None);
            }
            Ok(done) => {
                self.settle(false);
                if done == SetOffline::Changed {
                    info!("ordinary accounts are let in again (offline_mode)");
                }
                self.tell(None);
            }
            Err(error) => {
                warn!("ordinary accounts could not be let in again: {error}");
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    fn settle(&mut self, offline: bool) {
        self.changed = Some((Instant::now(), offline));
        self.retry_at = None;
    }

    fn tell(&self, because: Option<FenceReason>) {
        let now = FenceStatus {
            guards: self.fence.guards(),
            because,
        };
        self.status.send_if_modified(|status| {
            let changed = *status != now;
            *status = now;
            changed
        });
    }
}

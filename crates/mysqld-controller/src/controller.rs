//! The controller of one mysqld: collects all facts at one moment, passes them to [`crate::plan`], and sends the plan's actions to
//! executors that run independently. Repeats this after each change and each deadline.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use futures::future::BoxFuture;
use mysql_link::ConnectOptions;
use mysqld_server::standing::StandingFile;
use mysqld_server::supervisor::{SupervisorHandle, SupervisorState};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::apply::{Apply, ApplyOrder, FollowOptions};
use crate::ingest::{IngestFigures, IngestStatus};
use crate::plan::facts::{Applier, ApplyAction, Facts, Kill, LockoutPatience, ServerView};
use crate::plan::read_fence::{ReadFenceAction, ReadFenceMemory};
use crate::plan::role_words::role_state;
use crate::plan::same_uuid::{OtherMysqlds, Own, Verdict, judge, uuid_of};
use crate::plan::write_fence::{CloseReason, WriteAction, is_attached_and_looked_at};
use crate::plan::{Plan, decide};
use crate::read_fence::ReadFence;
use crate::ring::{CommittedLog, Ring, RingChanges, RingMemory, changed, due};
use crate::status::{
    Hold, ReadFenceStatus, Readiness, RoleStatus, WriteFenceState, WriteFenceStatus,
};
use crate::watch::{ReadOnly, WatchReport};
use crate::write_fence::{WriteFence, WriteFenceOptions};

/// Interval of heartbeats to the guard.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// How long a kill may take. Until then, mysqld's last observation is ignored.
const KILLING: Duration = Duration::from_secs(5);

/// Options of the controller of one mysqld.
#[derive(Debug)]
pub struct ControllerOptions {
    /// The server and the member's account.
    pub connect: ConnectOptions,
    /// How mysqld is opened and closed for writes.
    pub write_fence: WriteFenceOptions,
    /// How mysqld follows the ring; `None`: nothing is applied to it.
    pub apply: Option<FollowOptions>,
    /// The transactions before the start of the ring's log.
    pub origin: GtidSet,
    /// How long clients may write and read while this member does not serve as the leader.
    pub fence_after: Duration,
    /// How long a mysqld that refuses all logins is left running.
    pub lockout: LockoutPatience,
    /// Whether another program starts mysqld.
    pub attached: bool,
    /// The file that records whether mysqld was the primary.
    pub standing: StandingFile,
}

/// Inputs from observers and operators.
#[derive(Debug)]
pub struct ControllerInputs {
    /// The watcher's last report on mysqld.
    pub reports: watch::Receiver<WatchReport>,
    /// True if the server's transactions are received.
    pub ingest: watch::Receiver<IngestStatus>,
    /// Counters of ingest, including the unacknowledged transactions.
    pub figures: Arc<IngestFigures>,
    /// The supervisor that can restart mysqld, if there is one.
    pub supervisor: Option<Arc<SupervisorHandle>>,
    /// Set while the server's data are being replaced.
    pub hold: watch::Receiver<Option<Hold>>,
    /// The other members' reports about their mysqlds.
    pub others: watch::Receiver<OtherMysqlds>,
    /// True if a leadership transfer is imminent.
    pub transferring: watch::Receiver<bool>,
}

/// Published state of the fences and the role.
#[derive(Debug, Clone)]
pub struct ControllerStatus {
    /// Whether clients may write, and why not.
    pub write_fence: watch::Receiver<WriteFenceStatus>,
    /// Whether ordinary accounts may read.
    pub read_fence: watch::Receiver<ReadFenceStatus>,
    /// The server's role in the ring; `None` where nothing is applied to it.
    pub role: Option<watch::Receiver<RoleStatus>>,
    /// Result of comparing the server's UUID with those of the other members' servers.
    pub same_uuid: watch::Receiver<Verdict>,
}

/// Sends a heartbeat to the guard. The argument is true if clients use the server as the primary and another server could become it.
pub type ToGuard = Box<dyn Fn(bool) + Send + Sync>;

/// Controls one mysqld: turns facts into a plan, and sends actions to its executors.
pub struct Controller<R> {
    ring: Arc<R>,
    ring_memory: RingMemory,
    changes: RingChanges,
    inputs: ControllerInputs,
    options: ControllerOptions,
    /// The last UUID that mysqld reported. It is kept while mysqld is down.
    uuid: Option<String>,
    same_uuid: watch::Sender<Verdict>,
    /// Why the member must not act on the server; `None` if it may.
    hold: Option<Hold>,
    /// True if the member must not touch the server at all, because it may be another member's.
    hands_off: bool,
    readiness: watch::Receiver<Readiness>,
    status: ControllerStatus,
    write: Executor<WriteFence>,
    read: Executor<ReadFence>,
    apply: Option<Executor<Apply<R>>>,
    /// The apply action in progress, and its cancellation.
    applying: Option<(ApplyAction, CancellationToken)>,
    /// The applier's state before that action.
    applier: Applier,
    /// Whether mysqld had followed before that action.
    followed: bool,
    memory: ReadFenceMemory,
    /// True if mysqld was killed for locks of prepared transactions since it was last the primary. Only clients of a primary take such
    /// locks, so a second kill would not help.
    killed_for_prepared: bool,
    /// Time of the last kill. Observations from before that time are outdated.
    killed_at: Option<Instant>,
    /// Receives heartbeats from the first observation of mysqld on. Before that, the guard of an earlier run has newer facts.
    pub guard: Option<ToGuard>,
    stopping: bool,
}

impl<R: Ring + CommittedLog> Controller<R> {
    /// Creates a controller that does not run yet, and its status. The controller reports through `readiness`, which ingest follows,
    /// whether the server may become the primary. If nothing is applied, `readiness` does not change.
    pub fn new(
        ring: Arc<R>,
        options: ControllerOptions,
        inputs: ControllerInputs,
        readiness: &watch::Sender<Readiness>,
    ) -> (Self, ControllerStatus) {
        let (write, write_fence) = WriteFence::new(options.write_fence.clone());
        let (read, read_fence) = ReadFence::new(options.connect.clone());
        let applied = options.apply.clone().map(|apply| {
            let (ring, origin) = (Arc::clone(&ring), options.origin.clone());
            let reports = inputs.reports.clone();
            Apply::new(ring, apply, origin, readiness.clone(), reports)
        });
        let (apply, role) = applied.unzip();
        let (verdicts, same_uuid) = watch::channel(Verdict::default());
        let status = ControllerStatus {
            write_fence,
            read_fence,
            role,
            same_uuid,
        };
        let controller = Self {
            changes: ring.changes(),
            ring,
            ring_memory: RingMemory::default(),
            inputs,
            options,
            uuid: None,
            same_uuid: verdicts,
            hold: None,
            hands_off: false,
            readiness: readiness.subscribe(),
            status: status.clone(),
            write: Executor::Idle(write),
            read: Executor::Idle(read),
            apply: apply.map(Executor::Idle),
            applying: None,
            applier: Applier::Off,
            followed: false,
            memory: ReadFenceMemory::default(),
            killed_for_prepared: false,
            killed_at: None,
            guard: None,
            stopping: false,
        };
        (controller, status)
    }

    /// Runs until `stop` is cancelled. Then ends the applier, and tries once to close the server for writes. Read access stays unchanged.
    pub async fn run(mut self, stop: CancellationToken) {
        let guard = self.guard.take();
        loop {
            let now = Instant::now();
            let facts = self.facts(now);
            let plan = decide(&facts, &mut self.memory, now);
            let guards = self.memory.guards() && facts.others;
            let to_guard = guard.as_ref().filter(|_| facts.server.is_some());
            if let Some(tell) = to_guard {
                tell(guards);
            }
            self.carry_out(&plan, &facts);
            if self.has_stopped() {
                break;
            }
            tokio::select! {
                () = stop.cancelled(), if !self.stopping => self.stopping = true,
                () = self.something_changes(plan.next) => {}
                never = heartbeats(to_guard, guards) => match never {},
            }
        }
        let report = self.inputs.reports.borrow().clone();
        if !self.hands_off
            && let Executor::Idle(write) = self.write
            && let Some(read_only) = write.read_only(&report)
            && read_only != ReadOnly::Everybody
        {
            let before = report.server.map(|server| (read_only, server.incarnation));
            write.close(CloseReason::NotLeader, before, || true).await;
        }
    }

    fn has_stopped(&mut self) -> bool {
        let applies = match &mut self.apply {
            None => false,
            Some(Executor::Idle(apply)) => apply.applier().on().is_some(),
            Some(Executor::Busy(_) | Executor::Away) => true,
        };
        self.stopping && !applies && self.write.idle().is_some() && self.read.idle().is_some()
    }

    async fn something_changes(&mut self, next: Option<Instant>) {
        let applying = async {
            match &mut self.apply {
                Some(Executor::Idle(apply)) => apply.changes().await,
                Some(busy) => {
                    busy.finished().await;
                    self.applying = None;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = applying => {}
            () = self.write.finished() => {}
            () = self.read.finished() => {}
            () = self.changes.changed() => {}
            () = changed(&mut self.inputs.reports) => {}
            () = changed(&mut self.inputs.ingest) => {}
            () = changed(&mut self.inputs.hold) => {}
            () = changed(&mut self.inputs.others) => {}
            () = changed(&mut self.inputs.transferring) => {}
            () = due(next) => {}
        }
    }

    /// Compares the server's UUID with those of the other members' servers. A copy in progress is handled first: it waits for its own hold,
    /// and its command was given for this server.
    fn judge_uuid(&mut self) {
        self.uuid = uuid_of(&self.inputs.reports.borrow()).or(self.uuid.take());
        let others = self.inputs.others.borrow_and_update();
        let own = Own {
            uuid: self.uuid.as_deref(),
            primary_elsewhere: self.ring.primary_elsewhere().is_some(),
            was_primary: others.have(self.uuid.as_ref())
                && self.options.standing.is_of_the_primary(),
            attached: self.options.attached,
        };
        let verdict = judge(own, &others);
        let copied = self.inputs.hold.borrow_and_update().clone();
        self.hands_off = verdict.hands_off && copied.is_none();
        self.hold = copied.or_else(|| verdict.hold.clone());
        self.same_uuid.send_if_modified(|before| {
            let changed = *before != verdict;
            if let Some(warning) = verdict.warning.as_ref().filter(|_| changed) {
                warn!("{warning}");
            }
            if let (true, Some(Hold::Interrupted { cause })) = (changed, &verdict.hold) {
                warn!("mysqld is not used: {cause}");
            }
            *before = verdict;
            changed
        });
    }

    fn facts(&mut self, now: Instant) -> Facts {
        self.judge_uuid();
        let leading = self.ring_memory.look(&*self.ring, Instant::now());
        let report = self.inputs.reports.borrow_and_update();
        let ingest = self.inputs.ingest.borrow_and_update();
        let age = |since: Instant| now.saturating_duration_since(since);
        let write = self.write.idle();
        let read = self.read.idle();
        let server = report.server.as_ref().map(|server| ServerView {
            incarnation: server.incarnation,
            read_only: write
                .as_ref()
                .and_then(|write| write.read_only(&report))
                .unwrap_or(server.read_only),
            offline: read
                .as_ref()
                .map_or(server.offline, |read| read.is_offline(&report)),
        });
        let apply = self.apply.as_mut().and_then(Executor::idle);
        let (found_in, compare_not_before) = match apply {
            Some(apply) => {
                self.applier = apply.applier();
                self.followed = apply.followed;
                (apply.found_in, apply.again)
            }
            None => (None, None),
        };
        let supervisor = self.inputs.supervisor.as_ref();
        let state = supervisor.map(|supervisor| supervisor.status().borrow().state.clone());
        let runs = matches!(state, Some(SupervisorState::Running { .. }));
        let waiting_sessions = report.server.as_ref().map(|server| server.waiting_sessions);
        let figures = self.inputs.figures.view(now);
        let killed_at = self.killed_at;
        let readiness = *self.readiness.borrow();
        self.killed_for_prepared &= !matches!(readiness, Readiness::In(_));
        let role = self.status.role.as_ref();
        let held_up_by_prepared = role.is_some_and(|role| role.borrow().held_up.by_prepared);
        let facts = Facts {
            leading,
            others: self.ring.others_may_be_primary(),
            transferring: *self.inputs.transferring.borrow_and_update(),
            held: self.hold.is_some(),
            stopping: self.stopping,
            server,
            protection: report.protection.clone(),
            attached: is_attached_and_looked_at(&ingest, leading, report.looked_at),
            takes_in: ingest.takes_in(),
            locked_out: report
                .locked_out
                .map(|since| age(killed_at.map_or(since, |at| at.max(since)))),
            ending: report.ending.map(age),
            waits: figures.oldest_unacknowledged.is_some(),
            sessions_wait: waiting_sessions.is_some_and(|sessions| sessions > 0),
            held_up_by_prepared: held_up_by_prepared && !self.killed_for_prepared,
            can_restart: supervisor.is_some(),
            runs,
            just_killed: killed_at.is_some_and(|at| report.looked_at <= at && age(at) < KILLING),
            readiness,
            found_in,
            followed: self.followed,
            applier: self.applier,
            applying: self.applying.as_ref().map(|(action, _)| *action),
            compare_not_before,
            write_fence: self.status.write_fence.borrow().state.clone(),
            write_memory: write.map(|write| write.memory),
            read_not_before: read.as_ref().and_then(|read| read.not_before),
            read_fence_moves: read.is_none(),
            fence_after: self.options.fence_after,
            lockout: self.options.lockout,
        };
        match self.hands_off {
            true => facts.untouched(),
            false => facts,
        }
    }

    fn carry_out(&mut self, plan: &Plan, facts: &Facts) {
        if let Some(why) = plan.kill {
            self.kill(why, facts);
        }
        self.write_fence(plan.write, facts);
        self.read_fence(plan.read, facts);
        self.apply(plan.apply, facts);
    }

    fn write_fence(&mut self, action: WriteAction, facts: &Facts) {
        let Some(server) = facts.server else {
            return self.settle(action);
        };
        let incarnation = server.incarnation;
        match action {
            WriteAction::Prepare(term) => {
                if let Some(write) = self.write.idle() {
                    // From now until the result is known, no executor may treat the server as closed and start following.
                    write.go(WriteFenceState::Opening);
                }
                self.write.begin(|write| write.prepare(term, incarnation));
            }
            WriteAction::Open(term) => self.write.begin(|write| write.open(term, incarnation)),
            WriteAction::TakeOverOpen(term) => {
                self.write
                    .begin(|write| write.take_over_open(term, incarnation));
            }
            WriteAction::Close(reason) => {
                let before = Some((server.read_only, incarnation));
                let ring = Arc::clone(&self.ring);
                let transferring = self.inputs.transferring.clone();
                let wanted = move || *transferring.borrow() && ring.primary_elsewhere().is_none();
                self.write
                    .begin(|write| write.close(reason, before, wanted));
            }
            WriteAction::Stay(_) | WriteAction::Wait => self.settle(action),
        }
    }

    fn settle(&mut self, action: WriteAction) {
        if let (WriteAction::Stay(reason), Some(write)) = (action, self.write.idle()) {
            write.settle(reason);
        }
    }

    fn read_fence(&mut self, action: ReadFenceAction, facts: &Facts) {
        if let Some(read) = self.read.idle() {
            read.guards(self.memory.guards());
        }
        match action {
            ReadFenceAction::Raise(reason) => self.read.begin(|read| read.raise(reason)),
            ReadFenceAction::Lower => self.read.begin(ReadFence::lower),
            ReadFenceAction::Stay => {
                let offline = facts.server.is_some_and(|server| server.offline);
                if let Some(read) = self.read.idle() {
                    read.stay(offline);
                }
            }
        }
    }

    fn apply(&mut self, action: ApplyAction, facts: &Facts) {
        let Some(executor) = &mut self.apply else {
            return;
        };
        match action {
            ApplyAction::Stay | ApplyAction::Kill(_) => {
                if let Some(apply) = executor.idle().filter(|_| !facts.just_killed) {
                    let state = role_state(facts, self.hold.clone(), &apply.state());
                    apply.show(state);
                }
            }
            ApplyAction::BreakOff => {
                if let Some((_, cancel)) = &self.applying {
                    cancel.cancel();
                }
            }
            action => {
                let cancel = CancellationToken::new();
                self.applying = Some((action, cancel.clone()));
                let order = ApplyOrder {
                    action,
                    server: facts.seen(),
                    leading: facts.leading,
                    cancel,
                };
                executor.begin(|apply| apply.carry_out(order));
            }
        }
    }

    fn kill(&mut self, why: Kill, facts: &Facts) {
        let Some(supervisor) = &self.inputs.supervisor else {
            return;
        };
        self.killed_for_prepared |= why == Kill::HeldUpByPrepared;
        let why = why.in_words(facts.leading);
        warn!("mysqld is killed and started again: {why}");
        supervisor.kill_and_restart();
        self.killed_at = Some(Instant::now());
        if let Some(apply) = self.apply.as_mut().and_then(Executor::idle) {
            apply.restarting(why);
        }
    }
}

/// Repeats the last message to the guard while nothing changes, to show that this task runs.
async fn heartbeats(to_guard: Option<&ToGuard>, guards: bool) -> Infallible {
    loop {
        match to_guard {
            Some(tell) => {
                tokio::time::sleep(HEARTBEAT).await;
                tell(guards);
            }
            None => std::future::pending().await,
        }
    }
}

// Executors carry out one action at a time, concurrently and without waiting for each other.

/// An executor and its state.
pub(crate) enum Executor<T> {
    /// Ready for the next action.
    Idle(T),
    /// Carries out an action, and is idle afterwards.
    Busy(BoxFuture<'static, T>),
    /// Placeholder while the state changes.
    Away,
}

impl<T: Send + 'static> Executor<T> {
    /// Returns the state if the executor is idle.
    pub(crate) fn idle(&mut self) -> Option<&mut T> {
        match self {
            Self::Idle(executor) => Some(executor),
            Self::Busy(_) | Self::Away => None,
        }
    }

    /// Starts an action if the executor is idle. A busy executor continues with its present action.
    pub(crate) fn begin<F>(&mut self, order: impl FnOnce(T) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        *self = match std::mem::replace(self, Self::Away) {
            Self::Idle(executor) => Self::Busy(Box::pin(order(executor))),
            other => other,
        };
    }

    /// Waits until the present action is complete; indefinitely if there is none. Cancel safe.
    pub(crate) async fn finished(&mut self) {
        match self {
            Self::Busy(order) => *self = Self::Idle(order.await),
            Self::Idle(_) | Self::Away => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_order_goes_on_although_nobody_waits_for_it() {
        let mut executor = Executor::Idle(1);
        assert_eq!(executor.finished().now_or_never(), None);
        let (go, gone) = oneshot::channel();
        executor.begin(|count| async move {
            gone.await.unwrap();
            count + 1
        });
        assert_eq!(executor.finished().now_or_never(), None);
        assert_eq!(executor.idle(), None);
        // A busy executor ignores a second action.
        executor.begin(|count| async move { count + 10 });
        go.send(()).unwrap();
        executor.finished().await;
        assert_eq!(executor.idle(), Some(&mut 2));
    }
}

//! The task that does what the plan says, one thing after the other, and starts anew whenever the leadership, the gate or the
//! server changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use applier::run::StageName;
use binlog_format::gtid::GtidSet;
use mysql_link::Connection;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::gate::GateStatus;
use crate::ingest::IngestStatus;
use crate::leading::{Leading, RingObserver, Woken, due};
use crate::ring::{CommittedLog, LeaderTerm, Ring, RingChanges};
use crate::role::catching_up::{Fitness, compare, lacks_of, open};
use crate::role::errant::advice;
use crate::role::follower::{FollowError, FollowOptions, Follower, Started, Step};
use crate::role::handover::{close_to_all, end_replication, leave_following};
use crate::role::plan::{Action, Applier, Door, Incarnation, LockoutPatience, Situation, decide};
use crate::role::standing::Standing;
use crate::role::told::{log_change, role_state};
use crate::role_status::{Hold, Readiness, RoleState, RoleStatus};
use crate::supervisor::SupervisorHandle;
use crate::watch::{Protection, WatchReport};

/// From a question to mysqld that came to nothing to the next one, and between two figures while the applier catches up.
const AGAIN: Duration = Duration::from_millis(250);

/// What a role is decided from.
#[derive(Debug)]
pub struct RoleInputs {
    /// What the watch saw.
    pub reports: watch::Receiver<WatchReport>,
    /// What the gate did.
    pub gate: watch::Receiver<GateStatus>,
    /// Whether its transactions come in.
    pub ingest: watch::Receiver<IngestStatus>,
    /// Who can start mysqld anew, if anybody can.
    pub supervisor: Option<Arc<SupervisorHandle>>,
    /// Whether the server is to be left alone. Its sender has to outlive the role.
    pub hold: watch::Receiver<Option<Hold>>,
    /// The transactions that the ring's log begins behind.
    pub origin: GtidSet,
    /// How long a mysqld that lets nobody log in is borne with.
    pub patience: LockoutPatience,
}

/// Makes the server what it is to be.
pub struct Role<R> {
    observer: Arc<RingObserver<R>>,
    changes: RingChanges,
    options: FollowOptions,
    inputs: RoleInputs,
    readiness: watch::Sender<Readiness>,
    status: watch::Sender<RoleStatus>,
    follower: Option<Follower>,
    retry_at: Option<Instant>,
    /// When to go on with what came to nothing, though nothing may have changed.
    again_at: Option<Instant>,
    /// In which start of mysqld and which leadership a comparison found the readiness.
    found_in: Option<(Incarnation, LeaderTerm)>,
    /// What the server was last, as it is written down.
    standing: Option<Standing>,
    /// Whether the applier was at work on it since it was the primary, in this life of the member or an earlier one.
    followed: bool,
    /// Transactions of appliers that have ended.
    applied_before: u64,
    /// What mysqld has beyond the ring, as the last comparison found it.
    not_the_rings: GtidSet,
    /// When mysqld was killed last: what was seen before says nothing of the one that is there now.
    killed_at: Option<Instant>,
}

impl<R: Ring + CommittedLog> Role<R> {
    /// A task that is not running yet; where it says whether the server may become the primary is `readiness`.
    pub fn new(
        observer: Arc<RingObserver<R>>,
        options: FollowOptions,
        inputs: RoleInputs,
        readiness: watch::Sender<Readiness>,
    ) -> (Self, watch::Receiver<RoleStatus>) {
        let (status, receiver) = watch::channel(RoleStatus::new(Instant::now()));
        let standing = options.standing.load();
        readiness.send_replace(Readiness::Unknown);
        let role = Self {
            changes: observer.ring().changes(),
            observer,
            options,
            inputs,
            readiness,
            status,
            follower: None,
            retry_at: None,
            again_at: None,
            found_in: None,
            standing,
            followed: standing == Some(Standing::Following),
            applied_before: 0,
            not_the_rings: GtidSet::default(),
            killed_at: None,
        };
        (role, receiver)
    }

    /// Acts until it is told to stop; then the applier ends, and the server stays as it is.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut woken = Woken::Told;
        loop {
            let now = Instant::now();
            let situation = self.situation(now);
            let action = decide(&situation, now);
            if woken == Woken::Unasked && action != Action::Stay {
                debug!(?action, "nothing told the role to do this");
            }
            self.again_at = None;
            let acted = tokio::select! {
                () = stop.cancelled() => break,
                acted = self.act(action, &situation) => acted,
            };
            woken = Woken::Told;
            if acted {
                continue;
            }
            self.show(&situation);
            let next = self.next_look(&situation, now);
            woken = tokio::select! {
                () = stop.cancelled() => break,
                woken = self.something_changes(next) => woken,
            };
        }
        self.end_applier().await;
    }

    fn situation(&mut self, now: Instant) -> Situation {
        // The ring before the door: a gate that still finds this member leading, right before it opens, has said so before that.
        let leading = self.observer.look();
        let report = self.inputs.reports.borrow_and_update();
        let seen = !matches!(report.protection, Protection::Unknown { .. });
        let server = report.server.as_ref().filter(|_| seen);
        let server = server.map(|server| server.incarnation);
        let applier = match (&mut self.follower, self.retry_at) {
            (Some(follower), _) => follower.applier(),
            (None, Some(at)) => Applier::Failed(at),
            (None, None) => Applier::Off,
        };
        let locked_out = report
            .locked_out
            .filter(|_| !matches!(applier, Applier::Applying(_)))
            .map(|since| {
                now.saturating_duration_since(self.killed_at.map_or(since, |at| at.max(since)))
            });
        drop(report);
        let door = Door::of(&self.inputs.gate.borrow_and_update().state, server);
        Situation {
            leading,
            door,
            server,
            applier,
            readiness: *self.readiness.borrow(),
            found_in: self.found_in,
            can_restart: self.inputs.supervisor.is_some(),
            held: self.inputs.hold.borrow_and_update().is_some(),
            locked_out,
            takes_in: self.inputs.ingest.borrow_and_update().takes_in(),
            patience: self.inputs.patience,
        }
    }

    /// Whether something was done, after which everything is looked at anew.
    async fn act(&mut self, action: Action, situation: &Situation) -> bool {
        match action {
            Action::Stay => return false,
            Action::Compare(term) => return self.compare(term, situation.server).await,
            Action::Follow => return self.follow(situation.server, situation.leading).await,
            Action::Finish(term) => return self.finish(term, situation.server).await,
            Action::EndApplier => self.end_applier().await,
            Action::Hold => self.keep_off(),
            Action::Restart => self.restart(situation).await,
        }
        true
    }

    /// When to look again although nothing has changed: what failed is tried again, and nobody is borne with for ever.
    fn next_look(&self, situation: &Situation, now: Instant) -> Option<Instant> {
        let locked_out = situation.locked_out.and_then(|so_far| {
            let patience = situation.borne_with()?;
            Some(now + patience.checked_sub(so_far)?)
        });
        let times = [locked_out, self.again_at, self.retry_at];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    async fn something_changes(&mut self, next: Option<Instant>) -> Woken {
        let told = async {
            match &mut self.follower {
                Some(follower) => follower.changes().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = told => ended,
            () = self.changes.changed() => None,
            _ = self.inputs.gate.changed() => None,
            _ = self.inputs.hold.changed() => None,
            _ = self.inputs.reports.changed() => None,
            _ = self.inputs.ingest.changed() => None,
            woken = due(next) => return woken,
        };
        if let Some(failure) = ended {
            self.applier_failed(failure);
        }
        Woken::Told
    }

    /// Whoever comes afterwards has to compare what there is then, as behind an applier.
    fn keep_off(&mut self) {
        self.retry_at = None;
        self.followed = true;
        self.set(Readiness::Applying, None);
    }

    /// Whether the server has all that the log has at the begin of a leadership.
    async fn compare(&mut self, term: LeaderTerm, server: Option<Incarnation>) -> bool {
        let ring = Arc::clone(self.observer.ring());
        tokio::select! {
            () = ring.leadership_over(term) => true,
            found = self.fit_to_lead(term, server, None) => found,
        }
    }

    /// Makes the server fit to be the primary; by this session, if there is one. Whether something was found.
    async fn fit_to_lead(
        &mut self,
        term: LeaderTerm,
        server: Option<Incarnation>,
        session: Option<Connection>,
    ) -> bool {
        let found = server.map(|server| (server, term));
        let standing = Standing::primary(term);
        let fitness = match self.compare_and_leave_following(session).await {
            // Before anybody can write to it.
            Ok(Fitness::Fit) if self.standing != Some(standing) => {
                self.stand(standing).await.map(|()| Fitness::Fit)
            }
            fitness => fitness,
        };
        match fitness {
            Ok(Fitness::Fit) => {
                info!(
                    term = term.0,
                    "mysqld has all of the ring's log and may be the primary"
                );
                self.followed = false;
                self.not_the_rings = GtidSet::default();
                self.set(Readiness::In(term), found);
                true
            }
            Ok(Fitness::Lacks) => {
                self.set(Readiness::Lacks, found);
                true
            }
            Ok(Fitness::Errant(beyond)) => {
                let cause = advice(&beyond);
                self.not_the_rings = beyond;
                warn!("this member leads, and its mysqld stays closed: {cause}");
                self.set(Readiness::Lacks, found);
                self.retry_at = Some(Instant::now() + self.options.retry);
                self.go(RoleState::Stopped { cause });
                false
            }
            Err(cause) => {
                warn!("mysqld could not be made the primary yet: {cause}");
                self.again_at = Some(Instant::now() + AGAIN);
                self.go(RoleState::Waiting { what: cause });
                false
            }
        }
    }

    /// Compares, and undoes what following has set. All by one session: clients wait for it.
    async fn compare_and_leave_following(
        &self,
        session: Option<Connection>,
    ) -> Result<Fitness, String> {
        let connect = &self.options.connect;
        let mut session = match session {
            Some(session) => session,
            None => open(connect).await?,
        };
        if self.followed {
            close_to_all(&mut session, connect).await?;
        }
        let compared = compare(&**self.observer.ring(), &mut session).await?;
        let fitness = compared.judge(self.followed, self.standing, &self.inputs.origin);
        if fitness == Fitness::Fit {
            match self.followed {
                true => leave_following(&mut session).await?,
                false => end_replication(&mut session).await?,
            }
            session.close().await;
        }
        Ok(fitness)
    }

    async fn stand(&mut self, standing: Standing) -> Result<(), String> {
        self.options.standing.store(standing).await?;
        self.standing = Some(standing);
        Ok(())
    }

    /// Whether something was done.
    async fn follow(&mut self, server: Option<Incarnation>, leading: Leading) -> bool {
        let Some(server) = server else { return false };
        // Whatever it has beyond the log from here on was not written at the ring's primary, also what is found in a moment.
        if matches!(leading, Leading::Elsewhere(_))
            && self.standing != Some(Standing::Following)
            && let Err(cause) = self.stand(Standing::Following).await
        {
            self.retry_at = Some(Instant::now() + self.options.retry);
            self.go(RoleState::Waiting { what: cause });
            return false;
        }
        self.followed |= self.standing == Some(Standing::Following);
        self.retry_at = None;
        let was_primary = matches!(*self.readiness.borrow(), Readiness::In(_));
        self.set(Readiness::Applying, None);
        let started = Started {
            on: server,
            for_term: match leading {
                Leading::Serving(term) => Some(term),
                _ => None,
            },
            was_primary,
        };
        let (ring, options) = (Arc::clone(self.observer.ring()), self.options.clone());
        self.follower = Some(Follower::start(ring, options, started));
        true
    }

    /// Waits until everything is applied that the log had when the leadership began, then makes the server fit to be opened.
    async fn finish(&mut self, term: LeaderTerm, server: Option<Incarnation>) -> bool {
        let ring = Arc::clone(self.observer.ring());
        let begun = tokio::select! {
            () = ring.leadership_over(term) => return true,
            begun = self.applier_begins() => begun,
        };
        if !begun {
            return true;
        }
        let applied = tokio::select! {
            () = ring.leadership_over(term) => return true,
            applied = self.everything_applied() => applied,
        };
        let session = match applied {
            Ok(Some(session)) => session,
            Ok(None) => return true,
            Err(cause) => {
                self.again_at = Some(Instant::now() + AGAIN);
                self.go(RoleState::Waiting { what: cause });
                return false;
            }
        };
        self.end_applier().await;
        self.fit_to_lead(term, server, Some(session)).await
    }

    /// False when the applier ended by itself instead.
    async fn applier_begins(&mut self) -> bool {
        let Some(follower) = &mut self.follower else {
            return false;
        };
        let mut step = follower.step.clone();
        let failure = tokio::select! {
            Ok(_) = step.wait_for(|step| *step == Step::Applying) => return true,
            failure = follower.ended() => failure,
        };
        self.applier_failed(failure);
        false
    }

    /// The session that has seen it; `None` when the applier ended by itself.
    async fn everything_applied(&mut self) -> Result<Option<Connection>, String> {
        let log = self
            .observer
            .ring()
            .log()
            .await
            .map_err(|error| error.to_string())?;
        let mut session = open(&self.options.connect).await?;
        loop {
            let Some(follower) = &mut self.follower else {
                return Ok(None);
            };
            let lacks = lacks_of(&mut session, &log.gtids, AGAIN);
            let lacks = tokio::select! {
                lacks = lacks => lacks?,
                failure = follower.ended() => {
                    self.applier_failed(failure);
                    return Ok(None);
                }
            };
            if lacks.is_empty() {
                return Ok(Some(session));
            }
            let behind = u64::try_from(lacks.count()).unwrap_or(u64::MAX);
            self.go(RoleState::CatchingUp { behind });
        }
    }

    fn applier_failed(&mut self, failure: FollowError) {
        let shown = self.status.borrow().state.clone();
        let cause = failure.to_string();
        if let FollowError::Errant(gtids) = failure {
            self.not_the_rings = gtids;
        }
        if !matches!(&shown, RoleState::Stopped { cause: before } if *before == cause) {
            warn!("mysqld does not follow the ring: {cause}");
        }
        self.forget_follower();
        self.set(Readiness::Lacks, None);
        self.retry_at = Some(Instant::now() + self.options.retry);
        self.go(RoleState::Stopped { cause });
    }

    async fn end_applier(&mut self) {
        if let Some(follower) = self.follower.take() {
            let step = follower.step.clone();
            self.applied_before += applied(&follower);
            follower.end().await;
            self.has_followed(&step);
            self.set(Readiness::Lacks, None);
        }
    }

    /// What it was before it ended; that it applies was written down before.
    fn has_followed(&mut self, step: &watch::Receiver<Step>) {
        if *step.borrow() == Step::Applying {
            self.followed = true;
            self.standing = Some(Standing::Following);
        }
    }

    fn forget_follower(&mut self) {
        if let Some(follower) = self.follower.take() {
            self.applied_before += applied(&follower);
            self.has_followed(&follower.step);
        }
    }

    async fn restart(&mut self, situation: &Situation) {
        let why = match situation.leading {
            _ if situation.locked_out.is_some() => {
                "no login succeeds: probably an account statement waits for an ACK that cannot come any more"
            }
            Leading::Serving(_) => {
                "commits wait here for an ACK, and it is to catch up with the ring first"
            }
            _ => "commits wait here for an ACK, and the primary is beside another member",
        };
        warn!("mysqld is killed and started again: {why}");
        self.go(RoleState::Restarting {
            why: why.to_owned(),
        });
        if let Some(supervisor) = &self.inputs.supervisor {
            supervisor.kill_and_restart();
        }
        self.killed_at = Some(Instant::now());
        // The next look has to see the new start.
        let before = self.inputs.reports.borrow().looked_at;
        let seen = self
            .inputs
            .reports
            .wait_for(|report| report.looked_at > before);
        let _ = tokio::time::timeout(self.options.retry, seen).await;
    }

    fn set(&mut self, readiness: Readiness, found_in: Option<(Incarnation, LeaderTerm)>) {
        self.found_in = found_in;
        self.readiness.send_if_modified(|now| {
            let changed = *now != readiness;
            *now = readiness;
            changed
        });
    }

    /// Tells what is so while nothing is to be done.
    fn show(&mut self, situation: &Situation) {
        let hold = self.inputs.hold.borrow().clone();
        let state = role_state(situation, hold, &self.status.borrow().state);
        if state == RoleState::Following {
            // It was compared before it began.
            self.not_the_rings = GtidSet::default();
        }
        self.go(state);
    }

    fn go(&self, state: RoleState) {
        let follower = self.follower.as_ref();
        let lag_ms = follower.and_then(Follower::lag_ms);
        let applied_total = self.applied_before + follower.map_or(0, applied);
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            if changed {
                log_change(&status.state, &state);
                status.since = Instant::now();
                status.state = state;
            }
            let figures = (status.lag_ms, status.applied_total) != (lag_ms, applied_total);
            (status.lag_ms, status.applied_total) = (lag_ms, applied_total);
            let beyond = status.not_the_rings != self.not_the_rings;
            if beyond {
                status.not_the_rings = self.not_the_rings.clone();
            }
            changed || figures || beyond
        });
    }
}

fn applied(follower: &Follower) -> u64 {
    follower.progress.passed(StageName::Committed).transactions
}

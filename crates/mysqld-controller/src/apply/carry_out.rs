//! Executes the plan's actions on the ring's log. Compares mysqld with the log, starts and ends the applier, and prepares a mysqld that has
//! the whole log to be the primary.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use applier::run::{StageName, TableRemarks};
use binlog_format::gtid::GtidSet;
use mysql_link::Connection;
use mysqld_server::channels::drop_channel;
use mysqld_server::follower_binlog::leave_following;
use mysqld_server::read_only;
use mysqld_server::sessions::backup_lock::end_backups;
use mysqld_server::sessions::lock_holders::Holders;
use mysqld_server::standing::Standing;
use raft_types::Term;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::apply::arrivals::Arrivals;
use crate::apply::catching_up::{Fitness, compare, lacks_of};
use crate::apply::errant::Errant;
use crate::apply::error::RoleError;
use crate::apply::follower::{FollowOptions, Follower, Started};

use crate::plan::facts::{Applier, ApplyAction, Incarnation};
use crate::plan::role_words::log_change;
use crate::ring::{CommittedLog, Leading, Ring};
use crate::status::{Readiness, RoleState, RoleStatus, WaitingFor};
use crate::watch::WatchReport;

/// The pause after a failed query, and between two progress figures while the applier catches up.
const AGAIN: Duration = Duration::from_millis(250);
/// Lock wait timeout of a close, which also blocks administrators. No client writes at that time, so nothing is worth a longer wait.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// An action of the plan, with the state that led to it.
#[derive(Debug, Clone)]
pub(crate) struct ApplyOrder {
    pub(crate) action: ApplyAction,
    /// The start of mysqld that was observed last.
    pub(crate) server: Option<Incarnation>,
    pub(crate) leading: Leading,
    /// Cancels long work.
    pub(crate) cancel: CancellationToken,
}

/// Makes one mysqld follow the ring's log.
pub(crate) struct Apply<R> {
    ring: Arc<R>,
    options: FollowOptions,
    /// The transactions before the start of the ring's log.
    origin: GtidSet,
    readiness: watch::Sender<Readiness>,
    status: watch::Sender<RoleStatus>,
    follower: Option<Follower>,
    retry_at: Option<Instant>,
    /// When to retry a failed action in this leadership.
    pub(crate) again: Option<(Term, Instant)>,
    /// The start of mysqld and the leadership of the comparison that found the readiness.
    pub(crate) found_in: Option<(Incarnation, Term)>,
    /// The server's last role, as recorded on disk.
    standing: Option<Standing>,
    /// True if the applier has run since the server was the primary, in this run of the member or an earlier one.
    pub(crate) followed: bool,
    /// How many transactions were applied by appliers that have ended.
    applied_before: u64,
    /// Errant transactions of mysqld, as of the last comparison.
    not_the_rings: GtidSet,
    /// The applier's remarks about tables.
    remarks: Arc<TableRemarks>,
    /// The sessions that block successive appliers.
    holders: Arc<Mutex<Holders>>,
    /// When transactions arrived. Shared by successive appliers.
    arrivals: Arrivals,
    /// The watcher's reports.
    reports: watch::Receiver<WatchReport>,
    /// The task that watches arrivals; it ends when this field is dropped.
    _watching: JoinSet<()>,
}

impl<R: Ring + CommittedLog> Apply<R> {
    /// Creates an executor and its status. `readiness` reports whether the server may become the primary.
    pub(crate) fn new(
        ring: Arc<R>,
        options: FollowOptions,
        origin: GtidSet,
        readiness: watch::Sender<Readiness>,
        reports: watch::Receiver<WatchReport>,
    ) -> (Self, watch::Receiver<RoleStatus>) {
        let (status, receiver) = watch::channel(RoleStatus::new());
        let standing = options.standing.load();
        readiness.send_replace(Readiness::Unknown);
        let arrivals = Arrivals::default();
        let (watched, sees) = (Arc::clone(&ring), arrivals.clone());
        let mut watching = JoinSet::new();
        watching.spawn(async move { sees.watch(&*watched).await });
        let apply = Self {
            ring,
            options,
            origin,
            readiness,
            status,
            follower: None,
            retry_at: None,
            again: None,
            found_in: None,
            standing,
            followed: standing == Some(Standing::Following),
            applied_before: 0,
            not_the_rings: GtidSet::default(),
            remarks: Arc::default(),
            holders: Arc::default(),
            arrivals,
            reports,
            _watching: watching,
        };
        (apply, receiver)
    }

    pub(crate) fn applier(&mut self) -> Applier {
        match (&mut self.follower, self.retry_at) {
            (Some(follower), _) => follower.applier(),
            (None, Some(at)) => Applier::Failed(at),
            (None, None) => Applier::Off,
        }
    }

    /// Waits until the applier differs from the last [`Apply::applier`]. Cancel safe.
    pub(crate) async fn changes(&mut self) {
        let failure = match &mut self.follower {
            Some(follower) => follower.changes().await,
            None => std::future::pending().await,
        };
        if let Some(failure) = failure {
            self.applier_failed(failure);
        }
    }

    pub(crate) async fn carry_out(mut self, order: ApplyOrder) -> Self {
        self.again = None;
        match (order.action, order.server) {
            (ApplyAction::Compare(term), Some(server)) => {
                self.fit_to_lead(term, server, None, None, &order.cancel)
                    .await;
            }
            (ApplyAction::Finish(term), Some(server)) => {
                self.finish(term, server, &order.cancel).await;
            }
            (ApplyAction::Follow, Some(server)) => self.follow(server, order.leading).await,
            (ApplyAction::EndApplier, _) => self.end_applier().await,
            (ApplyAction::Hold, _) => self.keep_off(),
            _ => {}
        }
        self
    }

    /// Reports that the applier's state is unknown, so the next leadership must compare first.
    fn keep_off(&mut self) {
        self.retry_at = None;
        self.followed = true;
        self.set(Readiness::Applying, None);
    }

    /// Makes the server fit to be the primary, over `session` if there is one. Ends an idle applier concurrently; it has ended before
    /// readiness is reported.
    async fn fit_to_lead(
        &mut self,
        term: Term,
        server: Incarnation,
        session: Option<Connection>,
        applier: Option<Follower>,
        cancel: &CancellationToken,
    ) {
        let compare = async {
            tokio::select! {
                () = cancel.cancelled() => None,
                compared = self.compare_and_leave_following(session) => Some(compared),
            }
        };
        let ends = async {
            if let Some(applier) = applier {
                applier.end().await;
            }
        };
        let (compared, ()) = tokio::join!(compare, ends);
        let Some(compared) = compared else {
            return;
        };
        let standing = Standing::primary(term);
        let fitness = match compared {
            // The record must exist before any client can write to the server.
            Ok(Fitness::Fit) if self.standing != Some(standing) => {
                self.stand(standing).await.map(|()| Fitness::Fit)
            }
            fitness => fitness,
        };
        let found = Some((server, term));
        match fitness {
            Ok(Fitness::Fit) => {
                info!(
                    term = term.0,
                    "mysqld has all of the ring's log and may be the primary"
                );
                self.followed = false;
                self.not_the_rings = GtidSet::default();
                self.set(Readiness::In(term), found);
            }
            Ok(Fitness::Lacks) => self.set(Readiness::Lacks, found),
            Ok(Fitness::Errant(beyond)) => {
                let beyond = Errant::look_into(beyond, &self.options.connect).await;
                let cause = beyond.to_string();
                self.not_the_rings = beyond.gtids;
                warn!("this member leads, and its mysqld stays closed: {cause}");
                self.set(Readiness::Lacks, found);
                self.retry_at = Some(Instant::now() + self.options.retry);
                self.go(RoleState::Stopped { cause });
            }
            Err(cause) => {
                warn!("mysqld could not be made the primary yet: {cause}");
                self.wait(term, &cause);
            }
        }
    }

    /// Compares the server with the log, and reverts the settings of a follower. Uses one session for both, because clients wait.
    async fn compare_and_leave_following(
        &self,
        session: Option<Connection>,
    ) -> Result<Fitness, RoleError> {
        let connect = &self.options.connect;
        let mut session = match session {
            Some(session) => session,
            None => Connection::open_with_own_settings(connect).await?,
        };
        if self.followed {
            read_only::close_by(&mut session, connect, LOCK_WAIT).await?;
        }
        let compared = compare(&*self.ring, &mut session, self.followed).await?;
        let fitness = compared.judge(self.followed, self.standing, &self.origin);
        if fitness == Fitness::Fit {
            match self.followed {
                true => {
                    // Checked before a new binlog file is begun, since this step is retried often.
                    let may_kill = self.options.kill_after.is_some();
                    end_backups(&mut session, connect, may_kill).await?;
                    leave_following(&mut session, connect).await?;
                }
                // An earlier run of the member may have left replica threads running.
                false => drop_channel(&mut session).await?,
            }
            session.close().await;
        }
        Ok(fitness)
    }

    async fn stand(&mut self, standing: Standing) -> Result<(), RoleError> {
        self.options.standing.store(standing).await?;
        self.standing = Some(standing);
        Ok(())
    }

    async fn follow(&mut self, server: Incarnation, leading: Leading) {
        // From now on, transactions of the server that the ring lacks were not written by the ring's primary. That includes transactions
        // found by the comparison below.
        if matches!(leading, Leading::Elsewhere(_))
            && self.standing != Some(Standing::Following)
            && let Err(cause) = self.stand(Standing::Following).await
        {
            self.retry_at = Some(Instant::now() + self.options.retry);
            let what = WaitingFor::Step(cause.to_string());
            self.go(RoleState::Waiting { what });
            return;
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
        let (ring, options) = (Arc::clone(&self.ring), self.options.clone());
        self.follower = Some(Follower::start(
            ring,
            options,
            started,
            self.reports.clone(),
            &self.remarks,
            &self.holders,
            &self.arrivals,
        ));
    }

    /// Waits until mysqld has applied everything that the log had when the leadership began, then makes it fit to be opened.
    async fn finish(&mut self, term: Term, server: Incarnation, cancel: &CancellationToken) {
        self.promotes(true);
        let closed = self.applied_and_closed(cancel).await;
        self.promotes(false);
        match closed {
            Ok(None) => {}
            Ok(Some(session)) => {
                let mut applier = self.forget_follower();
                self.set(Readiness::Lacks, None);
                // The next step would also end mysqld's replica threads.
                if self.options.native.is_some()
                    && let Some(applier) = applier.take()
                {
                    applier.end().await;
                }
                self.fit_to_lead(term, server, Some(session), applier, cancel)
                    .await;
            }
            Err(cause) => self.wait(term, &cause),
        }
    }

    /// Schedules a retry in this leadership after a failure.
    fn wait(&mut self, term: Term, cause: &RoleError) {
        self.again = Some((term, Instant::now() + AGAIN));
        let what = WaitingFor::Step(cause.to_string());
        self.go(RoleState::Waiting { what });
    }

    fn promotes(&self, promoting: bool) {
        if let Some(follower) = &self.follower {
            follower.promoting.send_replace(promoting);
        }
    }

    /// Returns the session that closed the server; `None` if the step was cancelled, or the applier ended unexpectedly.
    async fn applied_and_closed(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<Option<Connection>, RoleError> {
        let mut applied = tokio::select! {
            () = cancel.cancelled() => return Ok(None),
            applied = self.everything_applied() => applied?,
        };
        if let Some(session) = &mut applied {
            // The server is closed before the applier ends, which has nothing left to write. On a closed server, the applier needs no write
            // to check that no lost session still writes.
            read_only::close_by(session, &self.options.connect, LOCK_WAIT).await?;
        }
        Ok(applied)
    }

    /// Waits until the whole log is applied. Returns the session that observed this; `None` if the applier ended unexpectedly.
    async fn everything_applied(&mut self) -> Result<Option<Connection>, RoleError> {
        if !self.applier_begins().await {
            return Ok(None);
        }
        let log = self.ring.log().await?;
        let mut session = Connection::open_with_own_settings(&self.options.connect).await?;
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
            let lacks = u64::try_from(lacks.count()).unwrap_or(u64::MAX);
            self.go(RoleState::CatchingUp { lacks });
        }
    }

    /// Waits until the applier applies. Returns false if the applier ended unexpectedly.
    async fn applier_begins(&mut self) -> bool {
        let Some(follower) = &mut self.follower else {
            return false;
        };
        let mut applies = follower.applies.clone();
        let failure = tokio::select! {
            Ok(_) = applies.wait_for(|applies| *applies) => return true,
            failure = follower.ended() => failure,
        };
        self.applier_failed(failure);
        false
    }

    fn applier_failed(&mut self, failure: RoleError) {
        let shown = self.status.borrow().state.clone();
        let cause = failure.to_string();
        if let RoleError::Errant(errant) = failure {
            self.not_the_rings = errant.gtids;
        }
        if !matches!(&shown, RoleState::Stopped { cause: before } if *before == cause) {
            warn!("mysqld does not follow the ring: {cause}");
        }
        drop(self.forget_follower());
        self.set(Readiness::Lacks, None);
        self.retry_at = Some(Instant::now() + self.options.retry);
        self.go(RoleState::Stopped { cause });
    }

    async fn end_applier(&mut self) {
        if let Some(follower) = self.follower.take() {
            let applies = follower.applies.clone();
            self.applied_before += applied(&follower);
            follower.end().await;
            self.has_followed(&applies);
            self.set(Readiness::Lacks, None);
        }
    }

    /// Records that the server has followed, if the applier had begun to apply. The record on disk was written before.
    fn has_followed(&mut self, applies: &watch::Receiver<bool>) {
        if *applies.borrow() {
            self.followed = true;
            self.standing = Some(Standing::Following);
        }
    }

    /// Removes the previous applier, which has no unreported work.
    fn forget_follower(&mut self) -> Option<Follower> {
        let follower = self.follower.take()?;
        self.applied_before += applied(&follower);
        self.has_followed(&follower.applies);
        Some(follower)
    }

    /// Reports that mysqld is killed and restarted, until the next check.
    pub(crate) fn restarting(&self, why: &str) {
        let why = why.to_owned();
        self.go(RoleState::Restarting { why });
    }

    fn set(&mut self, readiness: Readiness, found_in: Option<(Incarnation, Term)>) {
        self.found_in = found_in;
        self.readiness
            .send_if_modified(|now| std::mem::replace(now, readiness) != readiness);
    }

    pub(crate) fn state(&self) -> RoleState {
        self.status.borrow().state.clone()
    }

    /// Reports the state while no action is due.
    pub(crate) fn show(&mut self, state: RoleState) {
        if state == RoleState::Following {
            // The server was compared before following began.
            self.not_the_rings = GtidSet::default();
        }
        self.go(state);
    }

    fn go(&self, state: RoleState) {
        let follower = self.follower.as_ref();
        let lag_ms = follower.and_then(|follower| follower.lag.ms());
        let applied_total = self.applied_before + follower.map_or(0, applied);
        let held_up = follower.map(|follower| follower.held_up.borrow().clone());
        let without_transactions = match state {
            // No applier runs on the primary, so a conversion of these tables would not be noticed.
            RoleState::Primary => Vec::new(),
            _ => self.remarks.without_transactions(),
        };
        let without_transactions = without_transactions.iter().map(ToString::to_string);
        let next = RoleStatus {
            state,
            lag_ms,
            applied_total,
            not_the_rings: self.not_the_rings.clone(),
            held_up: held_up.unwrap_or_default(),
            without_transactions: without_transactions.collect(),
        };
        self.status.send_if_modified(|status| {
            if status.state != next.state {
                log_change(&status.state, &next.state);
            }
            std::mem::replace(status, next.clone()) != next
        });
    }
}

fn applied(follower: &Follower) -> u64 {
    follower.progress.passed(StageName::Committed).transactions
}

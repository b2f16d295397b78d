//! Whether the member manages its mysqld. It does, unless it was ordered not to. This can change while the member runs.
//!
//! ```text
//!            manage: the note is removed, then it acts
//!  unmanaged ───────────────────────────────────────► managed
//!             ◄──────────────────────────────────────
//!             release of the primary: drained, noted, ended, then released
//!             release of a follower: ended, released, then noted
//! ```
//!
//! A primary is taken over in two steps: [`mysqld_controller::plan::takeover`].
//!
//! The note determines how a member continues that was killed in between. For the primary, the note is written before mysqld is opened.
//! Then only this member may open its mysqld, because no other member had all of the ring's transactions. For a follower, the note is
//! written last, as evidence that mysqld is closed. Without the note, the member continues to manage mysqld.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use consensus::{DatabaseState, Term};
use futures::future::BoxFuture;
use mysql_link::LinkError;
use mysqld_controller::plan::takeover::{Next, Progress, next};
use mysqld_controller::primary_health::{HealthObserver, PrimaryHealth, health_changed};
use mysqld_controller::primary_writer::{PauseError, PrimaryWriter};
use mysqld_controller::ring::Ring;
use mysqld_controller::status::{RoleState, WriteFenceState, WriteFenceStatus};
use mysqld_server::conversion::{
    ConversionError, PlainServer, ServerLook, look, look_at_plain, steps,
};
use ring_admin::{Database, NotPaused, Writer};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use super::candidacy::log_hangs;
use super::startup::{Setup, manages_events};
use super::tasks::{Child, MysqldTasks, mode_words};
use crate::data_directory::UnmanagedNote;
use crate::protocol::{Refusal, RefusalKind};
use crate::provisioning::Provisioner;
use crate::status::{MysqlView, MysqldState};

/// How long it may take until waiting commits are acknowledged, after the primary was closed.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long mysqld may take to end and start in a restart.
const RESTART_LIMIT: Duration = Duration::from_secs(15 * 60);
/// How long the ring may take to report its committed set.
const RING_LIMIT: Duration = Duration::from_secs(1);
/// How often an unmanaged mysqld is checked for its clients, and how long the check may take.
const PLAIN_LOOK: Duration = Duration::from_secs(1);
const PLAIN_LIMIT: Duration = Duration::from_secs(3);
/// Interval between two checks of a takeover, if neither the leadership nor mysqld's health changes.
const TAKEOVER_LOOK: Duration = Duration::from_secs(1);
/// Interval between attempts to remove the note.
const NOTE_AGAIN: Duration = Duration::from_secs(1);
/// Interval between two checks for waiting commits.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct MysqldManagement {
    pub(super) setup: Setup,
    note: UnmanagedNote,
    /// Held by the operation that changes the management.
    turn: tokio::sync::Mutex<()>,
    /// The tasks while mysqld is managed.
    tasks: Mutex<Option<MysqldTasks>>,
    /// The state of an unmanaged mysqld, as clients see it.
    plain: watch::Sender<Plain>,
}

/// Why the member has not begun or has not stopped to manage its mysqld.
#[derive(Debug, Error)]
pub(crate) enum ManagementError {
    #[error("this member does not lead")]
    NotLeading,
    #[error("this member leads, so its mysqld is no follower")]
    Leads,
    #[error("the member ends")]
    Ends,
    #[error("the note `hands-off` cannot be {0}: {1}")]
    Note(&'static str, std::io::Error),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    #[error(transparent)]
    Pause(#[from] PauseError),
    #[error("{0} commits still wait for the ring")]
    NotDrained(u64),
    #[error("event_scheduler cannot be set back: {0}")]
    Events(LinkError),
    #[error("its mysqld replicates from another server, so it is not the primary")]
    Replicates,
    /// The server may be a released follower, which lacks transactions that the ring has acknowledged since.
    #[error(
        "its mysqld is closed for writes, and was not the primary when its member released it; run this beside the primary, or \
         SET GLOBAL read_only = OFF if clients are to write to this one"
    )]
    Closed,
    #[error("its mysqld takes writes still, so it is no follower")]
    TakesWrites,
    #[error("{0} commits wait in its mysqld for the ring, so it is no follower")]
    CommitsWait(u64),
}

/// An unmanaged mysqld as clients see it.
#[derive(Debug, Clone)]
struct Plain {
    /// The last answer, or why there is none.
    seen: PlainServer,
    /// True if mysqld was the ring's primary, and has been released or is being released.
    of_the_primary: bool,
}

/// Returns the state if mysqld gives no answer: only the error is known.
fn unseen(why: impl ToString) -> PlainServer {
    PlainServer {
        error: why.to_string(),
        ..PlainServer::default()
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            seen: unseen("it was not asked yet"),
            of_the_primary: false,
        }
    }
}

impl MysqldManagement {
    /// Begins to manage mysqld, unless the note forbids it.
    ///
    /// # Errors
    /// If the note cannot be checked.
    pub(crate) fn begin(setup: Setup) -> std::io::Result<Arc<Self>> {
        let management = Arc::new(Self {
            note: UnmanagedNote::of(&setup.config.data_dir),
            setup,
            turn: tokio::sync::Mutex::new(()),
            tasks: Mutex::new(None),
            plain: watch::Sender::default(),
        });
        if management.note.is_set()? {
            tracing::warn!(
                "mysqld is unmanaged, as `witness enable-raft` or `witness disable-raft` has left it"
            );
        } else {
            management.start();
        }
        Ok(management)
    }

    fn start(&self) {
        self.plain.send_replace(Plain::default());
        let tasks = self.setup.start();
        *self.lock() = Some(tasks);
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns whether mysqld can be the primary, and this member's log has room for its commits. An unmanaged mysqld cannot be the
    /// primary.
    pub(super) fn health(&self) -> PrimaryHealth {
        if self.setup.ring.member.is_full_alone() {
            return PrimaryHealth::full();
        }
        if let Some(why) = log_hangs(&self.setup.ring.log.stats()) {
            return PrimaryHealth::Stalled(why);
        }
        let now = self.lock();
        let observer = now.as_ref().map(|tasks| tasks.parts.health.clone());
        drop(now);
        observer.map_or_else(PrimaryHealth::left_alone, |health| health.of_a_leaders())
    }

    /// Returns an observer of changes of mysqld's health from now on; `None` if mysqld is not managed.
    pub(super) fn health_observer(&self) -> Option<HealthObserver> {
        Some(self.lock().as_ref()?.parts.health.from_now())
    }

    /// Returns the write fence of a managed mysqld.
    pub(crate) fn write_fence(&self) -> Option<watch::Receiver<WriteFenceStatus>> {
        let tasks = self.lock();
        Some(tasks.as_ref()?.parts.controller.write_fence.clone())
    }

    /// Returns the current view of mysqld. While the primary is released, it stays the primary for clients, even while it is closed
    /// briefly. Otherwise a load balancer would close their sessions.
    pub(crate) fn view(&self) -> MysqlView {
        let plain = self.plain.borrow().clone();
        let parts = self.lock().as_ref().map(|tasks| tasks.parts.clone());
        match parts.filter(|_| !plain.of_the_primary) {
            Some(parts) => parts.view(Instant::now()),
            None => self.unmanaged(&plain),
        }
    }

    fn unmanaged(&self, plain: &Plain) -> MysqlView {
        let seen = &plain.seen;
        let offline = seen.offline.then(|| "`offline_mode` is ON".to_owned());
        MysqlView {
            mode: mode_words(self.setup.settings.mode).to_owned(),
            state: MysqldState::Unmanaged,
            unprotected_because: vec![format!("it is {}", RoleState::Unmanaged)],
            write_fence: WriteFenceState::Unmanaged,
            role: RoleState::Unmanaged,
            applies: self.setup.settings.apply_workers.is_some(),
            writable: seen.writable,
            following: seen.replicates,
            lag_ms: seen.lag_seconds.map(|lag| lag.saturating_mul(1_000)),
            offline,
            trouble: Some(seen.error.clone()).filter(|error| !error.is_empty()),
            released: plain.of_the_primary && !self.is_managed(),
            ..MysqlView::default()
        }
    }

    /// Checks an unmanaged mysqld every second from its clients' point of view, while polled.
    pub(crate) async fn watch_unmanaged(self: Arc<Self>) {
        loop {
            if !self.is_managed() {
                let seen =
                    tokio::time::timeout(PLAIN_LIMIT, look_at_plain(&self.setup.connect)).await;
                let seen = match seen {
                    Ok(Ok(seen)) => seen,
                    Ok(Err(error)) => unseen(format!("it does not answer: {error}")),
                    Err(_) => unseen("it does not answer"),
                };
                let was_primary = self.note.is_of_the_primary().unwrap_or(false);
                // If a release or a takeover has begun since, it sets the state itself.
                if let Ok(_turn) = self.turn.try_lock()
                    && !self.is_managed()
                {
                    self.plain.send_replace(Plain {
                        seen,
                        of_the_primary: was_primary,
                    });
                }
            }
            tokio::time::sleep(PLAIN_LOOK).await;
        }
    }

    /// Makes the guard reload the configuration.
    pub(crate) fn renew_guard(&self) {
        let tasks = self.lock();
        if let Some(guard) = tasks.as_ref().and_then(|tasks| tasks.guard.as_ref()) {
            guard.reload();
        }
    }

    /// Returns the provisioner, which replaces mysqld's data on a command; `None` if mysqld is not managed.
    pub(crate) fn provisioner(&self) -> Option<Arc<Provisioner>> {
        Some(Arc::clone(&self.lock().as_ref()?.provisioner))
    }

    /// Restarts mysqld gracefully. If it is the primary, it is first closed for writes and drained. When its process ends, the leadership
    /// is transferred to a member whose mysqld can be the primary.
    ///
    /// # Errors
    /// If the restart is refused, or mysqld does not start.
    pub(crate) async fn restart(&self, force: bool) -> Result<(), Refusal> {
        let managed = self.lock().as_ref().map(|tasks| {
            let supervised = tasks.supervisor.as_ref();
            let supervisor = supervised.map(|supervised| Arc::clone(&supervised.handle));
            (supervisor, tasks.writer.clone())
        });
        let Some(((supervisor, writer), provisioner)) = managed.zip(self.provisioner()) else {
            let advice = "restart it yourself, or let the member manage it (`witness enable-raft`)";
            return Err(Refusal::refused("its mysqld is unmanaged", advice));
        };
        let Some(supervisor) = supervisor else {
            let why = "this member neither starts nor stops its mysqld: `mysql.mode` is \"attach\"";
            let advice =
                "restart it with whatever runs it; where it is the primary, switch over first";
            return Err(Refusal::refused(why, advice));
        };
        if self.note.is_set().unwrap_or(true) {
            let advice = "wait until `witness enable-raft` has ended";
            return Err(Refusal::refused("its takeover is not complete", advice));
        }
        let Ok(_alone) = provisioner.busy.try_lock() else {
            return Err(Refusal::new(
                RefusalKind::Busy,
                "the data of its mysqld are being replaced, or it is being restarted already",
                "check with `witness status` how far it is",
            ));
        };
        let member = &self.setup.ring.member;
        let leads = member.leadership_now().leading_term().is_some();
        if leads && !force {
            let advice = "make another member the primary first (`witness switchover`), or restart it with force: clients cannot write until it is back, or another one has taken over";
            return Err(Refusal::refused("its mysqld is the primary", advice));
        }
        if leads && let Err(cause) = writer.pause().await {
            writer.resume();
            return Err(Refusal::refused(
                cause.to_string(),
                "nothing was restarted; try again",
            ));
        }
        tracing::info!("mysqld is restarted, as it was ordered");
        let restarted = tokio::time::timeout(RESTART_LIMIT, supervisor.restart()).await;
        if leads {
            writer.resume();
        }
        let (kind, what) = match restarted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(cause)) => (RefusalKind::Failed, cause.to_string()),
            Err(_) => (
                RefusalKind::Unknown,
                "mysqld has not been restarted in time".to_owned(),
            ),
        };
        let advice = "see `witness status`, and mysqld's error log; the member keeps trying";
        Err(Refusal::new(kind, what, advice))
    }

    /// Begins to manage mysqld. Idempotent.
    ///
    /// # Errors
    /// If the note cannot be removed.
    pub(crate) async fn manage(&self) -> Result<(), ManagementError> {
        let _turn = self.turn.lock().await;
        if self.is_managed() {
            return Ok(());
        }
        self.note.clear().map_err(note("removed"))?;
        tracing::info!("the member manages its mysqld from now on");
        self.start();
        Ok(())
    }

    /// Begins to manage the primary. Its binlog is not trimmed before the ring has all of its transactions; if the ring does not get them,
    /// the primary is returned. This method returns after the start of the takeover, and the note stays until its end. Idempotent.
    ///
    /// # Errors
    /// If the member does not lead, or its mysqld is not the primary. Nothing was done then.
    pub(crate) async fn take_over(self: &Arc<Self>) -> Result<(), ManagementError> {
        let _turn = self.turn.lock().await;
        if self.is_managed() {
            return Ok(());
        }
        let Some(term) = self.serving_term() else {
            return Err(ManagementError::NotLeading);
        };
        let seen = self.look().await?;
        let drained = self.note.is_of_the_primary().map_err(note("read"))?;
        may_be_opened(&seen, drained)?;
        self.note.set_at_the_primary().map_err(note("written"))?;
        tracing::info!("the member begins to take the primary over");
        self.start();
        if let Some(writer) = self.writer() {
            tokio::spawn(self.clone().watch_takeover(writer, term));
        }
        Ok(())
    }

    /// Runs until the takeover is complete or given up, or has ended for another reason.
    async fn watch_takeover(self: Arc<Self>, of: Arc<PrimaryWriter>, term: Term) {
        let goes_on = || {
            self.writer()
                .is_some_and(|writer| Arc::ptr_eq(&writer, &of))
        };
        let mut leadership = self.setup.ring.member.leadership();
        let mut answered = Instant::now();
        // The ring needs the primary's transactions up to the moment when commits began to wait. Later ones arrive all the time.
        let mut wanted: Option<GtidSet> = None;
        loop {
            let mut health = self.health_observer();
            let ended = tokio::select! {
                changed = leadership.changed() => changed.is_err(),
                () = health_changed(&mut health) => false,
                () = tokio::time::sleep(TAKEOVER_LOOK) => false,
            };
            // Either the member has ended, or another operation has released mysqld.
            if ended || !goes_on() {
                return;
            }
            let mut progress = Progress {
                leads: self.serving_term() == Some(term),
                ..Progress::default()
            };
            if progress.leads {
                match self.look().await {
                    Ok(seen) => {
                        answered = Instant::now();
                        let waits = seen.writable && seen.waits_for_acks && self.is_protected();
                        wanted = wanted.or_else(|| seen.written().ok()).filter(|_| waits);
                        progress.ring_has_all = match &wanted {
                            Some(wanted) => self.ring_has(wanted).await,
                            None => false,
                        };
                    }
                    Err(_) => progress.silent_for = answered.elapsed(),
                }
            }
            let turn = self.turn.lock().await;
            if !goes_on() {
                return;
            }
            match next(progress) {
                Next::Wait => {}
                Next::Taken => match self.note.clear() {
                    Ok(()) => {
                        tracing::info!("the primary is taken over");
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the note `hands-off` cannot be removed; tried again");
                        drop(turn);
                        tokio::time::sleep(NOTE_AGAIN).await;
                    }
                },
                Next::GiveBack(why) => {
                    tracing::warn!(
                        "the takeover is given up, and clients write on without the ring: {why}"
                    );
                    self.stop_acting().await;
                    if let Err(cause) = self.open_without_the_ring().await {
                        tracing::warn!(
                            "mysqld is not opened again: {cause}; `witness enable-raft` and `witness disable-raft` continue"
                        );
                    }
                    return;
                }
            }
        }
    }

    fn is_protected(&self) -> bool {
        let view = self.view();
        view.protected && view.ingesting
    }

    async fn ring_has(&self, wanted: &GtidSet) -> bool {
        let settled = tokio::time::timeout(RING_LIMIT, self.setup.ring.settled()).await;
        settled.is_ok_and(|settled| settled.is_ok_and(|set| set.contains_set(wanted)))
    }

    fn writer(&self) -> Option<Arc<PrimaryWriter>> {
        Some(Arc::clone(&self.lock().as_ref()?.writer))
    }

    /// Releases the primary, which continues without the ring. It is closed until waiting commits are acknowledged. Then commits no longer
    /// wait for the ring, and it is opened. Idempotent.
    ///
    /// # Errors
    /// If the note is not written yet, the primary stays in the ring. Otherwise, repeat the order.
    pub(crate) async fn release_primary(&self) -> Result<(), ManagementError> {
        let _turn = self.turn.lock().await;
        if let Some(writer) = self.writer() {
            if self.serving_term().is_none() {
                return Err(ManagementError::NotLeading);
            }
            self.plain.send_replace(Plain {
                seen: PlainServer {
                    writable: true,
                    ..PlainServer::default()
                },
                of_the_primary: true,
            });
            let drained = self.drain(&writer).await;
            let noted =
                drained.and_then(|()| self.note.set_at_the_primary().map_err(note("written")));
            if let Err(cause) = noted {
                self.plain.send_replace(Plain::default());
                writer.resume();
                return Err(cause);
            }
            self.stop_acting().await;
        }
        self.open_without_the_ring().await
    }

    /// Opens an unmanaged server, and lets its waiting commits succeed.
    async fn open_without_the_ring(&self) -> Result<(), ManagementError> {
        let seen = self.look().await?;
        let drained = self.note.is_of_the_primary().map_err(note("read"))?;
        may_be_opened(&seen, drained)?;
        if seen.writable {
            // Without the ring, these commits wait for replicas that no longer acknowledge.
            steps::stop_waiting(&self.setup.connect, &self.setup.requirements).await?;
        }
        steps::release_primary(&self.setup.connect).await?;
        if !manages_events(&self.setup.settings) {
            return Ok(());
        }
        let given_back = self.setup.events.give_back(&self.setup.connect).await;
        given_back.map_err(ManagementError::Events)
    }

    /// Releases a follower, which stays closed for writes. Idempotent.
    ///
    /// # Errors
    /// If the member managed the follower before, it continues to manage it.
    pub(crate) async fn release_follower(&self) -> Result<(), ManagementError> {
        let _turn = self.turn.lock().await;
        if !self.is_managed() {
            return match self.note.is_set() {
                Ok(true) => Ok(()),
                Ok(false) => Err(ManagementError::Ends),
                Err(error) => Err(note("read")(error)),
            };
        }
        if self.serving_term().is_some() {
            return Err(ManagementError::Leads);
        }
        is_a_follower(&self.look().await?)?;
        self.stop_acting().await;
        let released = steps::release_follower(&self.setup.connect).await;
        let noted = released
            .map_err(ManagementError::from)
            .and_then(|()| self.note.set().map_err(note("written")));
        if noted.is_err() {
            self.start();
        }
        noted
    }

    /// Closes the primary after all running commits, and checks that no commit waits.
    async fn drain(&self, writer: &PrimaryWriter) -> Result<(), ManagementError> {
        writer.pause().await?;
        let until = Instant::now() + DRAIN_LIMIT;
        loop {
            let seen = self.look().await?;
            if seen.waiting_commits == 0 && !seen.writable {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(ManagementError::NotDrained(seen.waiting_commits));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn look(&self) -> Result<ServerLook, LinkError> {
        look(&self.setup.connect, &self.setup.requirements).await
    }

    fn serving_term(&self) -> Option<Term> {
        self.setup.ring.member.leadership_now().serving_term()
    }

    async fn stop_acting(&self) {
        let tasks = self.lock().take();
        if let Some(tasks) = tasks {
            tasks.end(Child::IsReleased).await;
            tracing::info!("the member no longer manages its mysqld");
        }
    }

    /// Stops managing mysqld when the member ends.
    pub(crate) async fn end(&self, child: Child) {
        let _turn = self.turn.lock().await;
        let tasks = self.lock().take();
        if let Some(tasks) = tasks {
            tasks.end(child).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<MysqldTasks>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a function that makes an error from a failed access to the note; `done` is the kind of access.
fn note(done: &'static str) -> impl FnOnce(std::io::Error) -> ManagementError {
    move |error| ManagementError::Note(done, error)
}

/// Checks that an unmanaged server may be opened as the primary.
fn may_be_opened(seen: &ServerLook, drained_as_primary: bool) -> Result<(), ManagementError> {
    if !seen.replicates_from.is_empty() {
        return Err(ManagementError::Replicates);
    }
    match seen.writable || drained_as_primary {
        true => Ok(()),
        false => Err(ManagementError::Closed),
    }
}

/// Checks that a server can be released as a replica. A server that was the primary recently may have transactions that the ring lacks,
/// until its member has closed it and removed them.
fn is_a_follower(seen: &ServerLook) -> Result<(), ManagementError> {
    match seen.waiting_commits {
        _ if seen.writable => Err(ManagementError::TakesWrites),
        0 => Ok(()),
        waiting => Err(ManagementError::CommitsWait(waiting)),
    }
}

/// An unmanaged mysqld cannot become the primary, so it reports that it is unfit.
impl Database for MysqldManagement {
    fn version(&self) -> Option<String> {
        self.lock().as_ref()?.candidacy.version()
    }

    fn state(&self, primary: Option<String>) -> BoxFuture<'_, DatabaseState> {
        let candidacy = (self.lock().as_ref()).map(|tasks| Arc::clone(&tasks.candidacy));
        Box::pin(async move {
            match candidacy {
                Some(candidacy) => candidacy.state(primary).await,
                None => DatabaseState {
                    unfit: PrimaryHealth::left_alone().why(),
                    ..DatabaseState::default()
                },
            }
        })
    }
}

/// Pauses the writes of a managed mysqld. An unmanaged mysqld takes no part in a switchover.
impl Writer for MysqldManagement {
    fn pause(&self) -> BoxFuture<'_, Result<(), NotPaused>> {
        let writer = self.writer();
        Box::pin(async move {
            match writer {
                Some(writer) => writer.pause().await.map_err(Into::into),
                None => Ok(()),
            }
        })
    }

    fn resume(&self) {
        if let Some(writer) = self.writer() {
            writer.resume();
        }
    }
}

#[cfg(test)]
mod tests {
    use mysqld_server::conversion::ReplicatesFrom;

    use super::*;

    fn seen(writable: bool) -> ServerLook {
        ServerLook {
            writable,
            ..ServerLook::default()
        }
    }

    #[test]
    fn a_closed_server_is_opened_where_it_was_drained_as_the_primary() {
        for (writable, drained, opened) in [
            (false, true, true),
            (true, true, true),
            (true, false, true),
            (false, false, false),
        ] {
            let seen = seen(writable);
            assert_eq!(may_be_opened(&seen, drained).is_ok(), opened, "{seen:?}");
        }
        let replica = ServerLook {
            replicates_from: vec![ReplicatesFrom::default()],
            ..seen(true)
        };
        assert!(may_be_opened(&replica, true).is_err());
    }

    #[test]
    fn a_server_that_was_the_primary_a_moment_ago_is_not_released_as_a_follower() {
        assert!(is_a_follower(&seen(false)).is_ok());
        assert!(is_a_follower(&seen(true)).is_err());
        let waits = ServerLook {
            waiting_commits: 1,
            ..seen(false)
        };
        assert!(is_a_follower(&waits).is_err());
    }
}

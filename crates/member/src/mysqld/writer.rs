//! The primary as a writer of the member's log, which is paused before the leadership is given away: the write fence closes, behind
//! everything that commits. One that stands still and cannot be closed is killed, and so is one from which nothing can be received, so
//! that its commits wait for an ACK that does not come.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::Writer;
use futures::future::BoxFuture;
use mysqld_controller::ingest::IngestStatus;
use mysqld_controller::status::{WriteFenceState, WriteFenceStatus};
use mysqld_controller::supervisor::{SupervisorHandle, SupervisorState};
use mysqld_controller::watch::WatchReport;
use tokio::sync::watch;
use tokio::time::Instant;

use super::primary_health::not_received;

/// How long the write fence may take, beside what it waits for long statements. The closing itself waits for a second at most.
const LIMIT: Duration = Duration::from_secs(4);
/// A server that cannot be closed and has stood still for so long is killed, or one from which nothing was received for so long. A planned switchover is no reason to kill one whose disk hiccups.
const STOOD: Duration = Duration::from_secs(5);
/// How long a kill may take to be sent.
const KILLING: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct PrimaryWriter {
    pub(crate) transferring: Arc<watch::Sender<bool>>,
    pub(crate) write_fence: watch::Receiver<WriteFenceStatus>,
    /// How long closing for writes waits at most for long statements.
    pub(crate) statements: Duration,
    pub(crate) reports: watch::Receiver<WatchReport>,
    pub(crate) ingest: watch::Receiver<IngestStatus>,
    pub(crate) supervisor: Option<Arc<SupervisorHandle>>,
    pub(crate) room: LogRoom,
}

/// For how long this member's log alone has had no room, from one attempt to give the leadership away to the next. What commits in
/// its mysqld waits for an ACK then that cannot come before there is room, and nothing can be closed behind it.
pub(crate) struct LogRoom {
    is_full: Box<dyn Fn() -> bool + Send + Sync>,
    since: Mutex<Option<Instant>>,
}

impl LogRoom {
    pub(crate) fn new(is_full: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            is_full: Box::new(is_full),
            since: Mutex::default(),
        }
    }

    /// Why commits do not end, if they have not for a while.
    fn missing(&self, now: Instant) -> Option<String> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if !(self.is_full)() {
            *since = None;
            return None;
        }
        let since = *since.get_or_insert(now);
        let long = now.saturating_duration_since(since) >= STOOD;
        long.then(|| "what it commits has no room in this member's log".to_owned())
    }
}

impl PrimaryWriter {
    /// No process, no writes: the next one begins closed.
    fn is_down(&self) -> bool {
        let down = |state: &SupervisorState| matches!(state, SupervisorState::Failed { .. });
        let supervisor = self.supervisor.as_ref();
        supervisor.is_some_and(|supervisor| down(&supervisor.status().borrow().state))
    }

    async fn close(&self, limit: Duration) -> Result<(), String> {
        let mut write_fence = self.write_fence.clone();
        let open = |state: &WriteFenceState| {
            matches!(state, WriteFenceState::Open | WriteFenceState::Opening)
        };
        let decided = write_fence.wait_for(|status| !open(&status.state));
        match tokio::time::timeout(limit, decided).await {
            Err(_) => Err("mysqld could not be closed for writes in time".to_owned()),
            // Without a controller there is no primary any more.
            Ok(Err(_)) => Ok(()),
            Ok(Ok(status)) => match &status.state {
                WriteFenceState::NotClosed { cause, .. } => Err(cause.clone()),
                _ => Ok(()),
            },
        }
    }

    /// Why the server stands still, if it has for a while.
    fn stalled(&self) -> Option<String> {
        let report = self.reports.borrow();
        let standing = report.commits.as_ref()?;
        (standing.since.elapsed() >= STOOD).then(|| standing.why.clone())
    }

    /// Why no commit is acknowledged, if nothing could be received for a while.
    fn unheard(&self) -> Option<String> {
        let ingest = self.ingest.borrow();
        let failing = ingest.failing(Instant::now())?;
        (failing.since.elapsed() >= STOOD).then(|| not_received(&failing.cause))
    }

    /// Ends a server that cannot be closed and whose commits do not end, without waiting for its end: where its disk stands still, the process
    /// ends when that moves again.
    ///
    /// It is safe to give the leadership away then, as it is when a whole machine dies: what the ring has committed is in its log,
    /// whoever leads; what waits in this server was answered to nobody, and gets no ACK from a member that leads no more; before its
    /// next start the ring's next leader decides what of its binlog is cut off. The kill is for its readers: killed,
    /// threads that do not wait for the disk end at once, and no session is answered any more. Where nobody can kill it, ordinary
    /// accounts are kept off by `offline_mode` as soon as another member leads, provided that it answers.
    async fn fence(&self, why: &str) {
        let Some(supervisor) = &self.supervisor else {
            tracing::warn!(
                "mysqld stands still and cannot be killed by this member, which does not run it; end it: {why}"
            );
            return;
        };
        tracing::warn!("mysqld is killed, because it stands still and cannot be closed: {why}");
        let mut status = supervisor.status();
        supervisor.kill_and_restart();
        let killed =
            status.wait_for(|status| !matches!(status.state, SupervisorState::Running { .. }));
        // Whether it was or not, nobody gets an answer to a commit from here on.
        let _ = tokio::time::timeout(KILLING, killed).await;
    }
}

impl Writer for PrimaryWriter {
    fn pause(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.transferring.send_replace(true);
            if self.is_down() {
                return Ok(());
            }
            let no_room = self.room.missing(Instant::now());
            let unheard = self.unheard();
            let hangs = || no_room.clone().or_else(|| unheard.clone());
            let stalled = || self.stalled().or_else(hangs);
            // One that stands still does not get on with its statements either.
            let limit = match stalled() {
                Some(_) => LIMIT,
                None => LIMIT + self.statements,
            };
            let closed = self.close(limit).await;
            // One that does not answer is not known to be open, and may be all the same.
            let is_closed = matches!(
                self.write_fence.borrow().state,
                WriteFenceState::Closed { .. }
            );
            match stalled() {
                Some(why) if !is_closed => {
                    self.fence(&why).await;
                    Ok(())
                }
                _ => closed,
            }
        })
    }

    fn resume(&self) {
        self.transferring.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_log_without_room_counts_when_it_has_none_from_one_attempt_to_the_next() {
        let full = Arc::new(AtomicBool::new(true));
        let room = LogRoom::new({
            let full = Arc::clone(&full);
            move || full.load(Ordering::Relaxed)
        });
        let begin = Instant::now();
        let missing = |second| room.missing(begin + Duration::from_secs(second)).is_some();
        assert!(!missing(0));
        assert!(!missing(4));
        assert!(missing(6));
        full.store(false, Ordering::Relaxed);
        assert!(!missing(7));
        full.store(true, Ordering::Relaxed);
        assert!(!missing(8));
        assert!(missing(14));
    }
}

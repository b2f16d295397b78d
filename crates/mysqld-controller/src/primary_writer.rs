//! Stops the primary's writes before a leadership transfer: the write fence closes the primary after all running commits. A primary is
//! killed if it has stalled and cannot be closed. A primary is also killed if its transactions are not received, because its commits wait
//! for an ACK that never arrives.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mysqld_server::supervisor::{SupervisorHandle, SupervisorState};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::primary_health::{HealthObserver, not_received};
use crate::status::{WriteFenceState, WriteFenceStatus};

/// Time limit for the write fence, in addition to its wait for long statements. The close itself takes at most a second.
const LIMIT: Duration = Duration::from_secs(4);
/// A server that cannot be closed is killed after it has stalled, or nothing was received from it, for this long. Usual disk stalls are
/// shorter.
const STOOD: Duration = Duration::from_secs(5);
/// How long the kill of mysqld may take to be sent.
const KILLING: Duration = Duration::from_secs(1);

/// Why the primary was not closed for writes.
#[derive(Debug, Error)]
pub enum PauseError {
    /// The write fence has not closed the primary in time.
    #[error("mysqld could not be closed for writes in time")]
    Slow,
    /// The write fence could not close the primary.
    #[error("{0}")]
    NotClosed(String),
}

/// Closes the primary before a leadership transfer.
pub struct PrimaryWriter {
    /// Requests the close from the controller.
    pub transferring: watch::Sender<bool>,
    /// The progress of the close.
    pub write_fence: watch::Receiver<WriteFenceStatus>,
    /// Longest wait of the write fence for long statements.
    pub statements: Duration,
    /// The last observation of mysqld, and whether its transactions are received.
    pub health: HealthObserver,
    /// The supervisor that kills mysqld, if this member runs mysqld.
    pub supervisor: Option<Arc<SupervisorHandle>>,
    /// True if this member's log has room for commits.
    pub room: LogRoom,
}

/// How long only this member's log has been full, across attempts to transfer the leadership. Commits in its mysqld then wait for an ACK
/// that needs room, and the write fence cannot close after them.
pub struct LogRoom {
    is_full: Box<dyn Fn() -> bool + Send + Sync>,
    since: Mutex<Option<Instant>>,
}

impl LogRoom {
    /// Creates the state from a test whether only this member's log is full.
    pub fn new(is_full: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            is_full: Box::new(is_full),
            since: Mutex::default(),
        }
    }

    /// Returns why commits have not completed for at least [`STOOD`]; `None` if they have.
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
    /// True if mysqld does not run. No process writes then, and the next one starts closed.
    fn is_down(&self) -> bool {
        let down = |state: &SupervisorState| matches!(state, SupervisorState::Failed { .. });
        let supervisor = self.supervisor.as_ref();
        supervisor.is_some_and(|supervisor| down(&supervisor.status().borrow().state))
    }

    async fn close(&self, limit: Duration) -> Result<(), PauseError> {
        let mut write_fence = self.write_fence.clone();
        let open = |state: &WriteFenceState| {
            matches!(state, WriteFenceState::Open | WriteFenceState::Opening)
        };
        let decided = write_fence.wait_for(|status| !open(&status.state));
        match tokio::time::timeout(limit, decided).await {
            Err(_) => Err(PauseError::Slow),
            // If the controller has ended, there is no primary any longer.
            Ok(Err(_)) => Ok(()),
            Ok(Ok(status)) => match &status.state {
                WriteFenceState::NotClosed { cause, .. } => {
                    Err(PauseError::NotClosed(cause.clone()))
                }
                _ => Ok(()),
            },
        }
    }

    /// Returns why the server has stalled for at least [`STOOD`]; `None` if it has not.
    fn stalled(&self) -> Option<String> {
        let report = self.health.reports.borrow();
        let standing = report.commits.as_ref()?;
        (standing.since.elapsed() >= STOOD).then(|| standing.why.clone())
    }

    /// Returns why no commit is acknowledged, if nothing was received for at least [`STOOD`].
    fn unheard(&self) -> Option<String> {
        let ingest = self.health.ingest.borrow();
        let failing = ingest.failing(Instant::now())?;
        (failing.since.elapsed() >= STOOD).then(|| not_received(&failing.cause))
    }

    /// Kills a server that cannot be closed and does not complete its commits. Does not wait for the end of the process: with a stalled
    /// disk, the process ends when the disk recovers.
    ///
    /// Transferring the leadership is then safe, as after the failure of a whole machine. The ring's commits are in its log, whichever
    /// member leads. Commits that wait in this server were not confirmed to clients, and a former leader sends no ACK. Before the server's
    /// next start, the next leader decides which part of its binlog is trimmed.
    ///
    /// The kill protects readers: threads that do not wait for the disk end immediately, and no session is answered. If the server cannot
    /// be killed but answers, `offline_mode` excludes ordinary accounts as soon as another member leads.
    async fn fence(&self, why: &str) {
        let Some(supervisor) = &self.supervisor else {
            tracing::warn!(
                "mysqld has stalled and cannot be killed by this member, which does not run it; end it: {why}"
            );
            return;
        };
        tracing::warn!("mysqld is killed, because it has stalled and cannot be closed: {why}");
        let mut status = supervisor.status();
        supervisor.kill_and_restart();
        let killed =
            status.wait_for(|status| !matches!(status.state, SupervisorState::Running { .. }));
        // True if or not the kill succeeds, no client gets an answer to a commit from now on.
        let _ = tokio::time::timeout(KILLING, killed).await;
    }

    /// Closes the primary after its running commits, or kills it if it has stalled.
    ///
    /// # Errors
    /// The primary stays open; then the leadership is kept.
    pub async fn pause(&self) -> Result<(), PauseError> {
        self.transferring.send_replace(true);
        if self.is_down() {
            return Ok(());
        }
        let no_room = self.room.missing(Instant::now());
        let unheard = self.unheard();
        let hangs = || no_room.clone().or_else(|| unheard.clone());
        let stalled = || self.stalled().or_else(hangs);
        // A stalled server does not complete its statements either.
        let limit = match stalled() {
            Some(_) => LIMIT,
            None => LIMIT + self.statements,
        };
        let closed = self.close(limit).await;
        // A server that does not answer may still be open.
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
    }

    /// Lets clients write again, if this member leads.
    pub fn resume(&self) {
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

//! Blocks readers of an isolated primary. After this member has not served for its grace period, it sets `offline_mode` on mysqld. That
//! closes the sessions of ordinary accounts and refuses new ones, until mysqld is the primary or a replica again. Unlike closing for
//! writes, this does not wait for commits.
//!
//! The safety of writes does not depend on this fence, because a primary that is not the leader's gets no ACK. The fence limits how long
//! clients may read stale data there.
//!
//! A member that hangs or has ended cannot do this: its [`guard()`] does it instead.

mod guard;

use std::mem::replace;
use std::time::Duration;

use mysql_link::ConnectOptions;
use mysqld_server::STATEMENT_LIMIT;
use mysqld_server::offline_mode::{SetOffline, lower, raise};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::status::{ReadFenceReason, ReadFenceStatus};
use crate::watch::WatchReport;

pub use crate::read_fence::guard::{
    GuardOptions, GuardStep, KILL_AFTER, MOST_AT_ONCE, Silence, Word, guard,
};

/// The pause after a failure, and after the value turned out to be another account's.
const RETRY: Duration = Duration::from_secs(1);

/// Sets `offline_mode` on one server.
#[derive(Debug)]
pub(crate) struct ReadFence {
    connect: ConnectOptions,
    status: watch::Sender<ReadFenceStatus>,
    /// The last change and its time. An observation from before that time does not show it.
    changed: Option<(Instant, bool)>,
    /// After a failure: earliest time of the next attempt.
    pub(crate) not_before: Option<Instant>,
    /// Why the last attempt failed, if it did. A server that is down fails with the same message each second, which is logged once.
    failed: Option<String>,
}

impl ReadFence {
    /// Creates a fence and its status.
    pub(crate) fn new(connect: ConnectOptions) -> (Self, watch::Receiver<ReadFenceStatus>) {
        let (status, receiver) = watch::channel(ReadFenceStatus::default());
        let fence = Self {
            connect: connect.bounded("witness-read-fence", STATEMENT_LIMIT),
            status,
            changed: None,
            not_before: None,
            failed: None,
        };
        (fence, receiver)
    }

    /// True if ordinary accounts are blocked, by the watcher's report or a later change of this fence.
    pub(crate) fn is_offline(&self, report: &WatchReport) -> bool {
        match self.changed {
            Some((at, offline)) if at >= report.looked_at => offline,
            _ => report.server.as_ref().is_some_and(|server| server.offline),
        }
    }

    /// Sets `offline_mode`, and logs the reason. A failed attempt is repeated after [`RETRY`].
    pub(crate) async fn raise(mut self, reason: ReadFenceReason) -> Self {
        match raise(&self.connect).await {
            Ok(done) => {
                self.settle(true);
                if done == SetOffline::Changed {
                    warn!(%reason, "the sessions of ordinary accounts are closed, and new ones are refused (offline_mode)");
                }
                self.tell(Some(reason));
            }
            Err(error) => {
                let why = format!("ordinary accounts can still read from this server: {error}");
                if self.fail(&why) {
                    warn!(%reason, "{why}");
                }
            }
        }
        self
    }

    /// Admits ordinary accounts again, unless another account blocks them.
    pub(crate) async fn lower(mut self) -> Self {
        match lower(&self.connect).await {
            Ok(SetOffline::NotOurs) => {
                self.not_before = Some(Instant::now() + RETRY);
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
                let why = format!("ordinary accounts could not be let in again: {error}");
                if self.fail(&why) {
                    warn!("{why}");
                }
            }
        }
        self
    }

    fn settle(&mut self, offline: bool) {
        self.changed = Some((Instant::now(), offline));
        self.not_before = None;
        self.failed = None;
    }

    /// Records a failure. Returns true if its message is new.
    fn fail(&mut self, why: &str) -> bool {
        self.not_before = Some(Instant::now() + RETRY);
        let before = self.failed.replace(why.to_owned());
        before.as_deref() != Some(why)
    }

    /// Reports the state while no action is due: blocked accounts stay blocked.
    pub(crate) fn stay(&self, offline: bool) {
        let because = self.status.borrow().because;
        self.tell(because.filter(|_| offline));
    }

    /// Reports whether clients use the server as the primary.
    pub(crate) fn guards(&self, guards: bool) {
        self.status
            .send_if_modified(|status| replace(&mut status.guards, guards) != guards);
    }

    fn tell(&self, because: Option<ReadFenceReason>) {
        self.status
            .send_if_modified(|status| replace(&mut status.because, because) != because);
    }
}

#[cfg(test)]
mod tests {
    use mysql_link::Endpoint;

    use super::*;

    #[test]
    fn what_fails_again_and_again_is_told_once_in_the_same_words() {
        let connect = ConnectOptions::new(Endpoint::unix("/nowhere.sock"), "root", "");
        let (mut fence, _status) = ReadFence::new(connect);
        assert!(fence.fail("it is down"));
        assert!(!fence.fail("it is down"));
        assert!(fence.fail("it refuses"));
        assert!(fence.fail("it is down"));
        fence.settle(true);
        assert!(fence.fail("it is down"));
        assert!(fence.not_before.is_some());
    }
}

//! Blocks readers of an isolated primary. Once this member has not served for longer than its grace period, it puts mysqld into
//! `offline_mode`. That closes the sessions of ordinary accounts and refuses new ones, until mysqld is the primary or a replica again.
//! Unlike closing for writes it does not wait for commits.
//!
//! The safety of writes does not need it: a primary that is not the leader's gets no ACK. It bounds how long
//! clients may read stale data there.
//!
//! A member that hangs, or is dead and stays so, cannot do that: its [`guard()`] does it instead.

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

/// After a failure, and after finding another owner.
const RETRY: Duration = Duration::from_secs(1);

/// Sets `offline_mode` of one server.
#[derive(Debug)]
pub(crate) struct ReadFence {
    connect: ConnectOptions,
    status: watch::Sender<ReadFenceStatus>,
    /// The last change and its time: an earlier observation does not show it.
    changed: Option<(Instant, bool)>,
    /// After a failure: earliest time of the next attempt.
    pub(crate) not_before: Option<Instant>,
    /// Why the last attempt failed, if it did: a server that is down fails with the same message each second.
    failed: Option<String>,
}

impl ReadFence {
    /// A new fence, and its status.
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

    /// True if ordinary accounts are blocked: the watch's report, unless this fence has newer knowledge.
    pub(crate) fn is_offline(&self, report: &WatchReport) -> bool {
        match self.changed {
            Some((at, offline)) if at >= report.looked_at => offline,
            _ => report.server.as_ref().is_some_and(|server| server.offline),
        }
    }

    /// Sets `offline_mode`, and logs the reason; a failure is retried after a while.
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

    /// Admits ordinary accounts again, unless another owner blocks them.
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

    /// True if that failure is new.
    fn fail(&mut self, why: &str) -> bool {
        self.not_before = Some(Instant::now() + RETRY);
        let before = self.failed.replace(why.to_owned());
        before.as_deref() != Some(why)
    }

    /// Reports that no action is due: blocked accounts stay blocked.
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

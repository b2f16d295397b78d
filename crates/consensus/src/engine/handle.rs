//! One running engine, with the state that all tasks of its member need: its number and timers, its commit mark, and why it stopped.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{FileStarts, MemberId, lock};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::calls::MemberCalls;
use crate::config::Timers;
use crate::engine::{self, Engine, Fault, RoleSnapshot};
use crate::state_machine::CommitMark;

/// Number of leases after which a silent leader is no longer reported.
pub(crate) const SILENT: u32 = 2;

/// The engine of one member.
pub(crate) struct EngineHandle {
    pub(crate) raft: Engine,
    pub(crate) id: MemberId,
    pub(crate) timers: Timers,
    pub(crate) mark: CommitMark,
    /// The calls to other members.
    pub(crate) calls: Arc<dyn MemberCalls>,
    /// The log as a sequence of files.
    pub(crate) starts: Arc<dyn FileStarts>,
    pub(crate) heard: LastHeard,
    /// Why this member stopped its engine itself, if it did.
    pub(crate) failed: OnceLock<Fault>,
    /// Why the engine has stopped.
    pub(crate) fault: FirstFault,
}

impl EngineHandle {
    /// Returns the current role. A leader that has been silent for two leases is not included, because other members may have elected
    /// another leader by then.
    pub(crate) fn role(&self) -> RoleSnapshot {
        let mut role = engine::role(&self.raft);
        let silent = !self.heard.within(self.timers.lease * SILENT);
        role.leader = role.leader.filter(|&leader| leader == self.id || !silent);
        role
    }
}

/// Why a member has stopped. Only the first reason is kept.
#[derive(Debug, Default)]
pub(crate) struct FirstFault(watch::Sender<Option<Fault>>);

impl FirstFault {
    pub(crate) fn publish(&self, fault: Fault) {
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(fault);
            is_first
        });
    }

    pub(crate) fn now(&self) -> Option<Fault> {
        self.0.borrow().clone()
    }

    pub(crate) async fn wait(&self) -> Fault {
        let mut first = self.0.subscribe();
        let stopped = first.wait_for(Option::is_some).await;
        stopped
            .ok()
            .and_then(|fault| fault.clone())
            .unwrap_or(Fault::Stopped)
    }
}

// The last call of the leader. It is recorded here, because the engine still reports a leader that has been silent for long.

/// The time of the last accepted call of a leader, or `None`. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastHeard(Arc<Mutex<Option<Instant>>>);

impl LastHeard {
    /// Records that a call is accepted now.
    pub(crate) fn now(&self) {
        *lock(&self.0) = Some(Instant::now());
    }

    /// Returns how long ago the last call was accepted.
    pub(crate) fn age(&self) -> Option<Duration> {
        lock(&self.0).map(|at| at.elapsed())
    }

    /// Returns true if a call was accepted less than `age` ago.
    pub(crate) fn within(&self, age: Duration) -> bool {
        self.age().is_some_and(|heard| heard < age)
    }
}

// The essential tasks of a member: its engine and its own tasks. The member stops without them.

/// Interval between two checks of the engine, in case its end was not observed.
const QUESTION_INTERVAL: Duration = Duration::from_secs(2);

/// Runs a task, and stops the engine if the task panics. Without the task, this member might still lead or vote. It would then block
/// members that can do all of the work.
pub(crate) async fn essential(
    engine: Arc<EngineHandle>,
    what: &'static str,
    task: BoxFuture<'static, ()>,
) {
    if AssertUnwindSafe(task).catch_unwind().await.is_ok() {
        return;
    }
    tracing::error!("{what} has panicked: the member stops");
    let _ = engine.failed.set(Fault::Panicked);
    engine.fault.publish(Fault::Panicked);
    // The shutdown is not awaited: a full disk may delay it, and the caller that ends the member must proceed.
    tokio::spawn(async move { engine.raft.shutdown().await });
}

/// Waits until the engine has stopped, then publishes the reason. If the engine panics, its metrics may stay unchanged. So the engine is
/// checked periodically, too, not only when the metrics end.
pub(crate) async fn supervise(engine: Arc<EngineHandle>) {
    let raft = &engine.raft;
    let mut metrics = raft.server_metrics();
    let reason = loop {
        let ended = tokio::time::timeout(QUESTION_INTERVAL, async {
            while metrics.changed().await.is_ok() {}
        });
        let _ = ended.await;
        if let Err(fatal) = raft.is_initialized().await {
            break engine.failed.get().cloned().unwrap_or(Fault::from(fatal));
        }
    };
    match &reason {
        Fault::Stopped => tracing::info!("the consensus engine has stopped"),
        fault => tracing::error!(%fault, "the consensus engine has failed"),
    }
    engine.fault.publish(reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_noticed() {
        let heard = LastHeard::default();
        assert!(!heard.within(Duration::from_secs(60)));
        heard.now();
        assert!(heard.within(Duration::from_secs(60)));
        assert!(!heard.within(Duration::ZERO));
    }
}

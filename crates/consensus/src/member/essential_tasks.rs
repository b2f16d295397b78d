//! What a member does not go on without: its engine, and its own tasks.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::watch;

use crate::engine::Fault;
use crate::member::core::MemberCore;

/// How often the engine is asked whether it still runs, in case its end went unseen.
const QUESTION_INTERVAL: Duration = Duration::from_secs(2);

/// Why a member has stopped, once it has; the first reason stays.
#[derive(Debug, Default)]
pub(crate) struct FirstFault(watch::Sender<Option<Fault>>);

impl FirstFault {
    fn publish(&self, fault: Fault) {
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

/// Runs a task. Where it panics, nobody does its work any more, and a member that went on to lead or to vote would be in the way of
/// those that could do all of it: its engine stops.
pub(crate) async fn essential(
    core: Arc<MemberCore>,
    what: &'static str,
    task: BoxFuture<'static, ()>,
) {
    if AssertUnwindSafe(task).catch_unwind().await.is_ok() {
        return;
    }
    tracing::error!("{what} has panicked: the member stops");
    let _ = core.failed.set(Fault::Panicked);
    core.fault.publish(Fault::Panicked);
    // Nobody waits for it here: a full disk may hold it up, and whoever ends the member has to get to that.
    tokio::spawn(async move { core.raft.shutdown().await });
}

/// Waits until the engine has stopped, then publishes why. Its metrics freeze when it panics, so it is asked: when the metrics end,
/// and once in a while.
pub(crate) async fn supervise(core: Arc<MemberCore>) {
    let raft = &core.raft;
    let mut metrics = raft.server_metrics();
    let reason = loop {
        let ended = tokio::time::timeout(QUESTION_INTERVAL, async {
            while metrics.changed().await.is_ok() {}
        });
        let _ = ended.await;
        if let Err(fatal) = raft.is_initialized().await {
            break core.failed.get().cloned().unwrap_or(Fault::from(fatal));
        }
    };
    match &reason {
        Fault::Stopped => tracing::info!("the consensus engine has stopped"),
        fault => tracing::error!(%fault, "the consensus engine has failed"),
    }
    core.fault.publish(reason);
}

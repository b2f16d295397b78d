//! The essential tasks of a member: its engine and its own tasks. The member stops without them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;

use crate::engine::Fault;
use crate::engine::handle::EngineHandle;

/// How often the engine is checked, in case its end was missed.
const QUESTION_INTERVAL: Duration = Duration::from_secs(2);

/// Runs a task and stops the engine if it panics. A member that still led or voted without the task would block the
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
    // Not awaited here: a full disk may delay it, and the caller that ends the member must be able to proceed.
    tokio::spawn(async move { engine.raft.shutdown().await });
}

/// Waits until the engine has stopped, then publishes why. Its metrics freeze when it panics, so it is checked when the metrics end
/// and periodically.
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

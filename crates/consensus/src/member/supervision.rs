//! Finds out that the engine has stopped, and why. Its metrics freeze when it panics, so it is asked: when the metrics end,
//! and once in a while.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::watch;

use crate::fault::Fault;
use crate::member::core::MemberCore;

/// How often the engine is asked whether it still runs, in case its end went unseen.
const QUESTION_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until the engine has stopped, then publishes why.
pub(crate) async fn supervise(core: Arc<MemberCore>, fault: watch::Sender<Option<Fault>>) {
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
    fault.send_replace(Some(reason));
}

//! Why a member's engine stopped. Its metrics freeze when it panics, so this is found out by asking
//! it, and the task here does so when the metrics end and once in a while.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use raft_types::{OpId, TypeConfig};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use crate::seat::Seat;

/// The engine has stopped, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The log storage failed. What it acknowledged is durable, nothing after it is known to be.
    #[error("the log storage failed: {reason}; mend the disk, then start the member again")]
    Storage {
        /// The storage's words.
        reason: String,
    },
    /// A broken invariant in the engine.
    #[error("the consensus engine panicked; keep the member's log output and start it again")]
    Panicked,
    /// The ring holds another entry as committed than this member does.
    #[error(
        "entry {ours} is committed here, and the ring's leader has {theirs} in its place: the quorum was repaired without this member; start it again, and it cuts its log back to where it agrees with the ring"
    )]
    Contradicted {
        /// The entry here.
        ours: OpId,
        /// The ring's.
        theirs: OpId,
    },
    /// The member was shut down.
    #[error("the member was shut down")]
    Stopped,
}

impl From<Fatal<TypeConfig>> for Fault {
    fn from(fatal: Fatal<TypeConfig>) -> Self {
        match fatal {
            Fatal::StorageError(error) => Self::Storage {
                reason: error.to_string(),
            },
            Fatal::Panicked => Self::Panicked,
            Fatal::Stopped => Self::Stopped,
        }
    }
}

/// How often the engine is asked whether it still runs, in case its end went unseen.
const QUESTION_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until the engine has stopped, then publishes why.
pub(crate) async fn supervise(seat: Arc<Seat>, fault: watch::Sender<Option<Fault>>) {
    let raft = &seat.raft;
    let mut metrics = raft.server_metrics();
    let reason = loop {
        let ended = tokio::time::timeout(QUESTION_INTERVAL, async {
            while metrics.changed().await.is_ok() {}
        });
        let _ = ended.await;
        if let Err(fatal) = raft.is_initialized().await {
            break seat.failed.get().cloned().unwrap_or(Fault::from(fatal));
        }
    };
    match &reason {
        Fault::Stopped => tracing::info!("the consensus engine has stopped"),
        fault => tracing::error!(%fault, "the consensus engine has failed"),
    }
    fault.send_replace(Some(reason));
}

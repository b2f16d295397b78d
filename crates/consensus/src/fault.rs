//! Why a member's engine stopped, with what to do about it.

use openraft::errors::Fatal;
use raft_types::{OpId, TypeConfig};
use serde::{Deserialize, Serialize};
use thiserror::Error;

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

//! What the writer is asked for.

use openraft::storage::IOFlushed;
use raft_types::{OpId, TypeConfig, Vote};
use tokio::sync::oneshot;

use crate::cut_tail::CutTail;
use crate::error::StoreError;
use crate::format::{PreparedEntry, ReceivedStart};

/// Told when a command is done and durable.
pub(crate) type Done = oneshot::Sender<Result<(), StoreError>>;

/// Up to where a log is cut back, why, and when.
#[derive(Debug, Clone)]
pub(crate) struct CuttingBack {
    /// The last entry that stays.
    pub(crate) to: Option<OpId>,
    pub(crate) reason: String,
    /// Seconds since the epoch.
    pub(crate) at: u64,
}

pub(crate) enum Command {
    /// Write entries; the callback is told when they are durable.
    Append {
        entries: Vec<PreparedEntry>,
        callback: IOFlushed<TypeConfig>,
    },
    /// Store a vote.
    Vote { vote: Vote, done: Done },
    /// Drop the entries behind `keep`, all of them for `None`.
    Truncate { keep: Option<OpId>, done: Done },
    /// Forget the entries up to `upto`.
    Purge { upto: OpId, done: Done },
    /// Forget the doubt about the tail if the log ends at `from` or behind it.
    SettleTail {
        from: OpId,
        done: oneshot::Sender<Result<bool, StoreError>>,
    },
    /// Cut the log back below what is committed.
    CutBack {
        cut: CuttingBack,
        done: oneshot::Sender<Result<Option<CutTail>, StoreError>>,
    },
    /// Begin with a later file.
    Begin {
        start: Box<ReceivedStart>,
        done: Done,
    },
}

impl Command {
    /// Bytes of memory that the command holds, roughly.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Append { entries, .. } => entries.iter().map(|entry| entry.memory).sum(),
            _ => 0,
        }
    }
}

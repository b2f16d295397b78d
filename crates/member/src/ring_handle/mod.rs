//! The ring as the rest of a leading member uses it: its Raft and its log together. Cheap to clone.

mod log_reading;
mod ring_bridge;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_store::{FileNumber, LogHandle, StoreError};
use consensus::{Member, Outcome, ProposeError};
use raft_types::{AppEntry, OpId, Rotate};
use thiserror::Error;

pub(crate) use crate::ring_handle::log_reading::ReadableLog;

/// What a member's parts need of the ring: its Raft and its log. Clones share both.
#[derive(Clone)]
pub struct RingHandle {
    /// Proposals, leadership and membership.
    pub member: Member,
    /// The member's own copy of the log.
    pub log: LogHandle,
}

/// A rotation that is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotated {
    /// The entry that ends the file before.
    pub entry: OpId,
    /// The file behind it, the same on every member.
    pub file: FileNumber,
}

/// Why a rotation did not happen, or may not have.
#[derive(Debug, Error)]
pub enum RotateError {
    /// This member does not lead with a quorum behind it.
    #[error(
        "this member does not lead with a quorum behind it, so it cannot rotate; ask the leader"
    )]
    NotServing,
    /// The leadership ended in between.
    #[error("the rotation was not committed in this leadership: {0:?}; look at the current file")]
    Ended(Outcome),
    /// The rotation is committed, and this member's own log failed before it had it.
    #[error(
        "the log was rotated by entry {entry}, but this member's own log has failed: {failure}"
    )]
    NotHere {
        /// The entry that ends the file before.
        entry: OpId,
        /// The error of this member's log.
        failure: StoreError,
    },
    /// It could not be proposed.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}

/// Between two looks at the member's own log. A rotation is rare, and its entry is being written when it is looked for.
const LOOK: Duration = Duration::from_millis(2);

impl RingHandle {
    /// Ends the current binlog file everywhere and begins the next; waits for the commit, and until this member's own log
    /// goes on in that file: the others may be earlier.
    ///
    /// # Errors
    /// [`RotateError`].
    pub async fn rotate(&self) -> Result<Rotated, RotateError> {
        let serving = self.member.leadership_now().serving_term();
        let term = serving.ok_or(RotateError::NotServing)?;
        let entry = AppEntry::Rotate(Rotate {
            format_description: self.log.format_description(),
            timestamp: now_in_seconds(),
        });
        let mut ticket = self.member.propose(entry, term).await?;
        match ticket.outcome().await {
            Outcome::Committed(entry) => self.begun_behind(entry).await,
            ended => Err(RotateError::Ended(ended)),
        }
    }

    async fn begun_behind(&self, entry: OpId) -> Result<Rotated, RotateError> {
        loop {
            if let Some(file) = self.log.file_behind(entry) {
                return Ok(Rotated { entry, file });
            }
            if let Some(failure) = self.log.failure() {
                return Err(RotateError::NotHere { entry, failure });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl std::fmt::Debug for RingHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingHandle")
            .field("member", &self.member.id())
            .finish_non_exhaustive()
    }
}

/// Event headers hold seconds in 32 bits.
pub(crate) fn now_in_seconds() -> u32 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

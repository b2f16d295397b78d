//! The ring as the rest of a leading member uses it: its Raft and its log together. Cheap to clone.

use std::time::{SystemTime, UNIX_EPOCH};

use binlog_store::LogHandle;
use consensus::{Member, Outcome, ProposeError};
use raft_types::{AppEntry, OpId, Rotate};
use thiserror::Error;

/// See the module.
#[derive(Clone)]
pub struct RingHandle {
    /// The member's Raft.
    pub member: Member,
    /// The member's log.
    pub log: LogHandle,
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
    /// It could not be proposed.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}

impl RingHandle {
    /// Ends the current binlog file everywhere and begins the next; waits for the commit.
    ///
    /// # Errors
    /// [`RotateError`].
    pub async fn rotate(&self) -> Result<OpId, RotateError> {
        let serving = self.member.leadership_now().serving_term();
        let term = serving.ok_or(RotateError::NotServing)?;
        let entry = AppEntry::Rotate(Rotate {
            format_description: self.log.format_description(),
            timestamp: now_in_seconds(),
        });
        let mut ticket = self.member.propose(entry, term).await?;
        match ticket.outcome().await {
            Outcome::Committed(op_id) => Ok(op_id),
            ended => Err(RotateError::Ended(ended)),
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

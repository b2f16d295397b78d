//! The ring, for the other parts of a member: its Raft and its log together. Cheap to clone.

mod log_reading;
mod ring_bridge;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_store::{FileNumber, LogHandle, StoreError};
use consensus::{Leadership, Outcome, ProposeError};
use raft_types::{AppEntry, MemberId, OpId, Rotate};
use ring_admin::Member;
use thiserror::Error;

/// A member's Raft and log. Clones share both.
#[derive(Clone)]
pub struct RingHandle {
    /// Proposals, leadership and membership.
    pub member: Member,
    /// The member's own copy of the log.
    pub log: LogHandle,
}

/// A committed rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotated {
    /// The entry that ends the previous file.
    pub entry: OpId,
    /// The next file, the same on every member.
    pub file: FileNumber,
}

/// Why a rotation failed, or may have failed.
#[derive(Debug, Error)]
pub enum RotateError {
    /// This member does not lead with a quorum.
    #[error(
        "this member does not lead with a quorum behind it, so it cannot rotate; ask the leader"
    )]
    NotServing,
    /// The leadership ended in the meantime.
    #[error("the rotation was not committed in this leadership: {0:?}; look at the current file")]
    Ended(Outcome),
    /// The rotation is committed, but this member's own log failed before storing it.
    #[error(
        "the log was rotated by entry {entry}, but this member's own log has failed: {failure}"
    )]
    NotHere {
        /// The entry that ends the previous file.
        entry: OpId,
        /// The error of this member's log.
        failure: StoreError,
    },
    /// The rotation could not be proposed.
    #[error(transparent)]
    Propose(#[from] ProposeError),
}

/// Interval between two checks of the member's own log. A rotation is rare, and its entry is being written already.
const LOOK: Duration = Duration::from_millis(2);

impl RingHandle {
    /// Ends the current binlog file on all members, and begins the next one. Waits for the commit, and until this member's own log has the
    /// new file. Other members may have it earlier.
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
        let entry = match ticket.outcome().await {
            Outcome::Committed(entry) => entry,
            ended => return Err(RotateError::Ended(ended)),
        };
        loop {
            if let Some(file) = self.log.file_after(entry) {
                return Ok(Rotated { entry, file });
            }
            if let Some(failure) = self.log.failure() {
                return Err(RotateError::NotHere { entry, failure });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Returns the leader, as far as this member knows.
pub(crate) fn leader(leadership: Leadership, own: MemberId) -> Option<MemberId> {
    match leadership {
        Leadership::Follower { leader } => leader,
        Leadership::Candidate => None,
        Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => Some(own),
    }
}

/// Returns the current time in seconds. Event headers store it in 32 bits.
pub(crate) fn now_in_seconds() -> u32 {
    u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX)
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

//! A membership as the log holds it: the entry's op id, its bytes, and what they say.

use raft_types::{LogId, MembershipPayload, OpId, StoredMembership};

/// A membership entry. Cloning is cheap but for the membership itself, which is small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedMembership {
    pub(crate) op_id: OpId,
    /// The bytes in the file are copied on as they are, so that every member writes the same.
    pub(crate) payload: MembershipPayload,
}

impl LoggedMembership {
    /// As the engine takes it.
    pub(crate) fn stored(&self) -> StoredMembership {
        let membership = self.payload.membership().clone();
        StoredMembership::new(Some(LogId::from(self.op_id)), membership)
    }
}

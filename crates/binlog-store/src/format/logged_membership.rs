//! A membership as the log holds it: the entry's op id, its JSON, and what the JSON says.

use bytes::Bytes;
use raft_types::{LogId, Membership, OpId, StoredMembership};

/// A membership entry. Cloning is cheap but for the membership itself, which is small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedMembership {
    pub(crate) op_id: OpId,
    /// The bytes in the file; copied on as they are, so that every member writes the same.
    pub(crate) json: Bytes,
    pub(crate) membership: Membership,
}

impl LoggedMembership {
    /// The record of a membership that is to be written.
    pub(crate) fn encode(op_id: OpId, membership: Membership) -> serde_json::Result<Self> {
        let json = Bytes::from(serde_json::to_vec(&membership)?);
        Ok(Self {
            op_id,
            json,
            membership,
        })
    }

    /// The record of a membership that was read.
    pub(crate) fn decode(op_id: OpId, json: Bytes) -> serde_json::Result<Self> {
        let membership = serde_json::from_slice(&json)?;
        Ok(Self {
            op_id,
            json,
            membership,
        })
    }

    /// As the engine takes it.
    pub(crate) fn stored(&self) -> StoredMembership {
        StoredMembership::new(Some(LogId::from(self.op_id)), self.membership.clone())
    }
}

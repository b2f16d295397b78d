//! Who reads a member's binlog server.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A replica or another consumer at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerView {
    /// What it registered as, else its server id, else its address.
    pub name: String,
    /// From where it is connected.
    pub address: String,
    /// Its server id; 0 for none.
    pub server_id: u32,
    /// Its server UUID, if it said one.
    pub server_uuid: Option<Uuid>,
    /// `gtids` or `position`.
    pub asked_by: String,
    /// The file up to which the log was read for it.
    pub file: String,
    /// The position in that file.
    pub position: u64,
    /// Committed bytes of the log behind that position.
    pub behind_bytes: u64,
    /// Bytes that wait to be taken by it.
    pub queued_bytes: u64,
    /// For how long it is attached.
    pub attached_seconds: f64,
}

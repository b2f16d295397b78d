//! The exchange of [`Mutation::RewordMemberships`]. The receiver encodes a membership again, like a member of another version that stores
//! only the parsed contents.
//!
//! [`Mutation::RewordMemberships`]: crate::mutation::Mutation::RewordMemberships

use consensus::log_probe::Asked;
use raft_types::{EntryPayload, MembershipPayload};

/// Returns the request with its memberships encoded again, with the names in alphabetical order.
pub(super) fn reworded(mut asked: Asked) -> Asked {
    for entry in &mut asked.request.entries {
        let EntryPayload::Membership(payload) = &mut entry.payload else {
            continue;
        };
        let words = serde_json::from_slice::<serde_json::Value>(payload.json());
        let reworded = words.and_then(|words| MembershipPayload::read(words.to_string().into()));
        if let Ok(reworded) = reworded {
            *payload = reworded;
        }
    }
    asked
}

//! The exchange of [`Mutation::RewordMemberships`]: the receiver of a membership re-encodes it, like a member of another version that keeps
//! only the parsed contents.
//!
//! [`Mutation::RewordMemberships`]: crate::mutation::Mutation::RewordMemberships

use consensus::log_probe::Asked;
use raft_types::{EntryPayload, MembershipPayload};

/// The request, with its memberships encoded with names in alphabetical order.
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

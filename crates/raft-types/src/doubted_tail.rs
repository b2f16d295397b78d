//! A log that had to cut bytes off its end which it may have acknowledged before. Declared here, because the log finds it out
//! and keeps it, and the consensus engine acts on it.

use serde::{Deserialize, Serialize};

use crate::op_id::OpId;

/// What a log remembers of such a cut until it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtedTail {
    /// The term of the vote that was stored when the bytes were cut off. A vote is stored before the entries that follow
    /// it, so whatever was acknowledged and cut is of this term or an earlier one.
    pub term: u64,
}

impl DoubtedTail {
    /// From this end on a log has everything that it may have acknowledged, whatever the others say: an entry of a later
    /// term is there. The leader of that term was elected without this member's vote, or by a vote that was safe, so it
    /// had all that was committed in earlier terms; and who has one of its entries has all before it, too.
    pub fn settled_from(&self) -> OpId {
        OpId::new(self.term + 1, 0)
    }
}

//! The format of a trace: JSON, one object per line, in the order of the actions.

use std::collections::BTreeSet;

use raft_types::{MemberId, OpId};
use serde::{Deserialize, Serialize};

/// One action of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Time in milliseconds since the beginning of the run.
    pub at_ms: u64,
    /// The acting member; `None` for an operator's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The action.
    #[serde(flatten)]
    pub seen: Seen,
}

/// Damage to a member's disk while it was down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// The disk was not damaged.
    None,
    /// Some of the data was damaged.
    Rotten,
    /// All data was lost.
    Wiped,
}

/// A vote, as a member stored it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeenVote {
    /// The term.
    pub term: u64,
    /// True if the member `to` was elected and is followed. False if it is a candidate.
    pub elected: bool,
    /// The member voted for.
    pub to: MemberId,
}

/// An entry's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenContent {
    /// A leader's first entry.
    Blank,
    /// A client's write: the digest of its bytes and of the log's metadata about it.
    Write(u64),
    /// The voter sets of a membership, and the digest of its bytes.
    Voters(Vec<BTreeSet<MemberId>>, u64),
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenEntry {
    /// Its op id.
    pub op_id: OpId,
    /// Its content.
    pub content: SeenContent,
}

/// An action of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Seen {
    /// The member stored a vote.
    Voted {
        /// The vote.
        vote: SeenVote,
    },
    /// The member appended entries to its log.
    Appended {
        /// The entries.
        entries: Vec<SeenEntry>,
    },
    /// The member's log is on disk up to an entry.
    Durable {
        /// The last durable entry.
        upto: OpId,
    },
    /// The member truncated the entries after `keep`.
    Truncated {
        /// The last entry that the member kept.
        keep: Option<OpId>,
    },
    /// The member rejoined after a repair, and truncated its log.
    CutBack {
        /// The last entry that the member kept.
        keep: Option<OpId>,
    },
    /// The member replaced its log by one that starts after a committed entry.
    Began {
        /// The committed entry before the start of the log.
        before: OpId,
    },
    /// The member started, and found this state on its disk.
    Opened {
        /// The last entry before the first entry in the log.
        floor: Option<OpId>,
        /// The entries.
        entries: Vec<SeenEntry>,
        /// The vote.
        vote: Option<SeenVote>,
        /// Damage to the disk before the start.
        damage: Damage,
    },
    /// The member marked its log as committed up to an entry.
    Committed {
        /// The last committed entry.
        upto: OpId,
    },
    /// The member acknowledged a client's transaction as committed.
    Acknowledged {
        /// The transaction's entry.
        op_id: OpId,
    },
    /// The member reported that it serves, and a client read from it.
    Served {
        /// The member's commit index at that time.
        mark: Option<OpId>,
    },
    /// An operator ordered a repair.
    Repaired {
        /// The end of the surviving member's log.
        after: Option<OpId>,
        /// The term of the repair.
        term: u64,
        /// True if the operator accepted a loss.
        loss: bool,
    },
}

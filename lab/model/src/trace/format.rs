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
    /// Nothing.
    None,
    /// Some of it rotted.
    Rotten,
    /// All of it was lost.
    Wiped,
}

/// A vote as a member has stored it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeenVote {
    /// The term.
    pub term: u64,
    /// True if that member was elected, and is followed; otherwise it is a candidate.
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
    /// A client's write, with the log's notes on it: the digest of its bytes.
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
    /// It stored a vote.
    Voted {
        /// The vote.
        vote: SeenVote,
    },
    /// It appended entries to its log.
    Appended {
        /// The entries.
        entries: Vec<SeenEntry>,
    },
    /// Its log is on disk up to here.
    Durable {
        /// The last durable entry.
        upto: OpId,
    },
    /// It truncated the entries after `keep`.
    Truncated {
        /// The last entry that stays.
        keep: Option<OpId>,
    },
    /// It rejoined after a repair, and cut its log.
    CutBack {
        /// The last entry that stays.
        keep: Option<OpId>,
    },
    /// Its log begins again after a committed entry.
    Began {
        /// That entry.
        before: OpId,
    },
    /// It started, and found this on its disk.
    Opened {
        /// The last entry before the first present one.
        floor: Option<OpId>,
        /// The entries.
        entries: Vec<SeenEntry>,
        /// The vote.
        vote: Option<SeenVote>,
        /// Damage to the disk before the start.
        damage: Damage,
    },
    /// It considers its log committed up to here.
    Committed {
        /// The last committed entry.
        upto: OpId,
    },
    /// It acknowledged a client's transaction as committed.
    Acknowledged {
        /// The transaction's entry.
        op_id: OpId,
    },
    /// It reports that it serves, and was read from.
    Served {
        /// Its commit mark.
        mark: Option<OpId>,
    },
    /// An operator ordered a repair.
    Repaired {
        /// The end of the surviving member's log.
        after: Option<OpId>,
        /// The term of the repair.
        term: u64,
        /// True if a loss was accepted.
        loss: bool,
    },
}

//! What a trace says: JSON, an object on each line, in the order in which things were done.

use std::collections::BTreeSet;

use raft_types::{MemberId, OpId};
use serde::{Deserialize, Serialize};

/// One thing that a member did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When, in milliseconds since the beginning of the run.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub seen: Seen,
}

/// What was done to a member's disk while it was down.
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
    /// Whether that member was elected, and is followed; else it is a candidate.
    pub elected: bool,
    /// For whom.
    pub to: MemberId,
}

/// What an entry carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenContent {
    /// A leader's first entry.
    Blank,
    /// What clients wrote, and what a log notes beside it: the digest of its bytes.
    Write(u64),
    /// The voter sets of a membership, and the digest of its bytes.
    Voters(Vec<BTreeSet<MemberId>>, u64),
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenEntry {
    /// Where it stands.
    pub op_id: OpId,
    /// What it carries.
    pub content: SeenContent,
}

/// What a member did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Seen {
    /// It stored a vote.
    Voted {
        /// Who.
        member: MemberId,
        /// Which.
        vote: SeenVote,
    },
    /// It appended entries to its log.
    Appended {
        /// Who.
        member: MemberId,
        /// What.
        entries: Vec<SeenEntry>,
    },
    /// It has its log up to here on disk.
    Durable {
        /// Who.
        member: MemberId,
        /// Up to where.
        upto: OpId,
    },
    /// It took back what lies behind `keep`.
    Truncated {
        /// Who.
        member: MemberId,
        /// The last entry that stays.
        keep: Option<OpId>,
    },
    /// It came back behind a repair, and cut its log back.
    CutBack {
        /// Who.
        member: MemberId,
        /// The last entry that stays.
        keep: Option<OpId>,
    },
    /// Its log begins anew behind an entry that is committed.
    Began {
        /// Who.
        member: MemberId,
        /// That entry.
        before: OpId,
    },
    /// It was started, and found this on its disk.
    Opened {
        /// Who.
        member: MemberId,
        /// The last entry before the first that is there.
        floor: Option<OpId>,
        /// The entries.
        entries: Vec<SeenEntry>,
        /// The vote.
        vote: Option<SeenVote>,
        /// What was done to the disk before.
        damage: Damage,
    },
    /// It takes its log for committed up to here.
    Committed {
        /// Who.
        member: MemberId,
        /// Up to where.
        upto: OpId,
    },
    /// It told a client that its transaction is committed.
    Acknowledged {
        /// Who.
        member: MemberId,
        /// Which.
        op_id: OpId,
    },
    /// It says that it serves, and was read from.
    Served {
        /// Who.
        member: MemberId,
        /// Its commit mark.
        mark: Option<OpId>,
    },
    /// An operator ordered a repair.
    Repaired {
        /// The end of the log of the member that goes on.
        after: Option<OpId>,
        /// In which term it does.
        term: u64,
        /// Whether a loss was accepted.
        loss: bool,
    },
}

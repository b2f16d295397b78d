//! What a member tells while it carries a command out. A JSON document each on the wire; the last one
//! is the end. Fields are only ever added.

use consensus::{MemberEvidence, MockElection, Promoted};
use raft_types::OpId;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CommandEvent {
    /// A phase began.
    Began {
        /// What it is called.
        phase: String,
    },
    /// A phase is done.
    Done {
        /// What it is called.
        phase: String,
        /// How long it took.
        seconds: f64,
    },
    /// The command was carried out.
    Result {
        /// What came of it.
        result: CommandResult,
    },
    /// It was not, or not to its end.
    Refused {
        /// Why.
        refusal: Refusal,
    },
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandResult {
    /// The member leads.
    Promoted(Promoted),
    /// How the voters would decide.
    MockElection(MockElection),
    /// The member was taken in; this entry says so.
    Added(OpId),
    /// The member was let go; this entry says so.
    Removed(OpId),
    /// What the member knows.
    Evidence(Box<MemberEvidence>),
    /// The member goes on alone; this entry says so.
    Repaired(OpId),
}

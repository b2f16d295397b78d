//! What a member tells while it carries a command out. A JSON document each on the wire; the last one
//! is the end. Fields are only ever added.

use consensus::{MemberEvidence, MockElection, Promoted};
use raft_types::OpId;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

/// One thing that happened. (Tagged from outside: an inner tag would not read maps by number back from JSON, and a
/// membership is one.)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    Result(CommandResult),
    /// It was not, or not to its end.
    Refused(Refusal),
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
    /// Which files of its log are gone.
    Purged(PurgeReport),
}

/// What a purge removed, or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeReport {
    /// The files, oldest first.
    pub removed: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
    /// The last entry in them.
    pub upto: Option<OpId>,
    /// The first file that was to go and stays, and why.
    pub kept: Option<KeptFile>,
}

/// A file that a purge leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Its name.
    pub file: String,
    /// Why it stays, in words.
    pub because: String,
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use consensus::Term;
    use raft_types::{MemberId, MemberRecord, Membership, StoredMembership};

    use super::*;
    use crate::terminal::Exit;

    /// Pins a bug: evidence with a membership in it could not be read back.
    #[test]
    fn every_event_comes_back_from_the_wire() {
        let members = BTreeMap::from([(MemberId(1), MemberRecord::default())]);
        let voters = vec![BTreeSet::from([MemberId(1)])];
        let evidence = MemberEvidence {
            member: MemberId(1),
            term: Term(3),
            log_end: Some(OpId::new(3, 9)),
            committed: None,
            membership: StoredMembership::new(None, Membership::new(voters, members).unwrap()),
            leader: None,
        };
        for event in [
            CommandEvent::Began {
                phase: "check".into(),
            },
            CommandEvent::Done {
                phase: "check".into(),
                seconds: 0.25,
            },
            CommandEvent::Result(CommandResult::Evidence(Box::new(evidence))),
            CommandEvent::Refused(Refusal::new(Exit::Refused, "what", "advice")),
        ] {
            let json = serde_json::to_vec(&event).unwrap();
            assert_eq!(
                serde_json::from_slice::<CommandEvent>(&json).unwrap(),
                event
            );
        }
    }
}

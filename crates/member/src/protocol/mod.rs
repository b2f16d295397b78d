//! The protocol of operators' commands: the commands, a member's events while it executes them, and refusals. A refusal has a kind, a
//! sentence, and advice.

mod command;
mod event;

use consensus::{MoveError, TransferRefusal};
use mysqld_server::provision::ProvisionError;
use raft_types::MemberId;
use ring_admin::{PromotionError, PromotionRefusal, ReconfigurationError, RepairRefusal};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use crate::protocol::command::source_tls;
pub use crate::protocol::command::{
    MysqldAnswer, MysqldOrder, OperatorCommand, Order, PurgeRequest, ReplicateFrom,
};
pub use crate::protocol::event::{
    CommandEvent, CommandResult, KeptBinlog, KeptFile, ProvisionPlan, Provisioned, PurgeReport,
    Reloaded, SchemaSize,
};
pub(crate) use crate::protocol::event::{CommandProgress, done_event};

/// Kind of refusal or failure, from which exit codes and HTTP codes are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// No leader with a quorum is reachable: this member does not lead, or has no ring yet.
    NoQuorum,
    /// A precondition is not met; nothing was changed.
    Refused,
    /// Another operation is in progress; nothing was changed, and the same command may be repeated.
    Busy,
    /// The outcome is unknown.
    Unknown,
    /// The caller's certificate does not permit the command. Only the caller creates this kind; no member sends it.
    NotAllowed,
    /// The command failed partway; the message says how far it came. Also used for kinds of later versions.
    #[serde(other)]
    Failed,
}

/// Why a command was not executed, as sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{what}{}{advice}", if advice.is_empty() { "" } else { "\n  " })]
pub struct Refusal {
    /// Determines the exit code and the HTTP code.
    pub kind: RefusalKind,
    /// What happened, in one sentence.
    pub what: String,
    /// What to do; empty if the sentence says that.
    #[serde(default)]
    pub advice: String,
    /// The leader, if this member does not lead and the command is for the leader.
    pub leader: Option<MemberId>,
}

impl Refusal {
    /// Creates a refusal: nothing was done, or only a part, for this reason.
    pub fn new(kind: RefusalKind, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            advice: advice.into(),
            leader: None,
        }
    }

    /// Creates the refusal for a precondition that is not met.
    pub fn refused(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(RefusalKind::Refused, what, advice)
    }

    /// Creates the refusal for a command that failed partway.
    pub fn failed(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(RefusalKind::Failed, what, advice)
    }

    /// Creates the refusal for a command that only the leader executes, because this member does not lead.
    pub fn not_leader(leader: Option<MemberId>) -> Self {
        let (what, advice) = match leader {
            Some(leader) => (
                format!("this member does not lead; member {leader} does"),
                "ask that one",
            ),
            None => (
                "this member does not lead, and knows no leader".to_owned(),
                "check with `witness status` what the ring waits for, and try again when a member leads",
            ),
        };
        Self {
            leader,
            ..Self::new(RefusalKind::NoQuorum, what, advice)
        }
    }
}

const LOOK: &str = "check with `witness status --explain`, and try again";
const BRING_BACK: &str = "bring members back until a quorum answers; `witness status` says which";

impl From<ProvisionError> for Refusal {
    fn from(error: ProvisionError) -> Self {
        Self::failed(error.to_string(), "fix that and try again")
    }
}

impl From<TransferRefusal> for Refusal {
    fn from(refusal: TransferRefusal) -> Self {
        let advice = match &refusal {
            TransferRefusal::NotLeader { leader } => return Self::not_leader(*leader),
            TransferRefusal::LeadsAlready(_) => "there is nothing to do",
            _ => "",
        };
        Self::refused(refusal.to_string(), advice)
    }
}

impl From<PromotionRefusal> for Refusal {
    fn from(refusal: PromotionRefusal) -> Self {
        let (kind, advice) = match refusal {
            PromotionRefusal::Target(target) => return target.into(),
            PromotionRefusal::Busy => (RefusalKind::Busy, ""),
            PromotionRefusal::NotServing(_) => (RefusalKind::NoQuorum, BRING_BACK),
            PromotionRefusal::NoTarget(_) => (RefusalKind::Refused, LOOK),
            PromotionRefusal::MockElectionLost(_) => (
                RefusalKind::Refused,
                "nothing was changed; `witness mock-election` shows every voter's answer",
            ),
            _ => (RefusalKind::Refused, ""),
        };
        Self::new(kind, refusal.to_string(), advice)
    }
}

impl From<PromotionError> for Refusal {
    fn from(error: PromotionError) -> Self {
        let (kind, advice) = match error {
            PromotionError::Refused(refusal) => return refusal.into(),
            PromotionError::Move { .. }
            | PromotionError::TargetLags { .. }
            | PromotionError::NotNeeded(_)
            | PromotionError::Drain { .. } => (RefusalKind::Failed, LOOK),
            PromotionError::AnotherLeads { .. } => (RefusalKind::Failed, ""),
            PromotionError::Unknown(_) => (RefusalKind::Unknown, ""),
        };
        Self::new(kind, error.to_string(), advice)
    }
}

impl From<MoveError> for Refusal {
    fn from(error: MoveError) -> Self {
        let (kind, advice) = match error {
            MoveError::NotLeader { leader } => return Self::not_leader(leader),
            MoveError::Transferring | MoveError::Overtaken => (RefusalKind::Refused, ""),
            MoveError::NotBegun { .. } => (RefusalKind::NoQuorum, ""),
            MoveError::Uncommitted(_) => (RefusalKind::Unknown, ""),
            MoveError::Refused(_) => (RefusalKind::Refused, LOOK),
            MoveError::Stopped(_) => (RefusalKind::Failed, STOPPED),
        };
        Self::new(kind, error.to_string(), advice)
    }
}

const STOPPED: &str = "check that member's log, and start it again";

impl From<ReconfigurationError> for Refusal {
    fn from(error: ReconfigurationError) -> Self {
        let (kind, advice) = match error {
            ReconfigurationError::NotLeader { leader } => return Self::not_leader(leader),
            ReconfigurationError::Move(error) => return error.into(),
            ReconfigurationError::Busy => (RefusalKind::Busy, ""),
            ReconfigurationError::NotServing(_) => (RefusalKind::NoQuorum, BRING_BACK),
            ReconfigurationError::NotPaused => (RefusalKind::Refused, "there is nothing to do"),
            _ => (RefusalKind::Refused, ""),
        };
        Self::new(kind, error.to_string(), advice)
    }
}

impl From<RepairRefusal> for Refusal {
    fn from(refusal: RepairRefusal) -> Self {
        let (kind, advice) = match refusal {
            RepairRefusal::NoEvidence => (RefusalKind::NoQuorum, ""),
            RepairRefusal::Led { .. } => (
                RefusalKind::Refused,
                "if commits wait although it leads, restore the network between the two members, or stop the leader",
            ),
            RepairRefusal::OtherSurvivor(_)
            | RepairRefusal::Changed(_)
            | RepairRefusal::Back(_)
            | RepairRefusal::Late(_) => (
                RefusalKind::Refused,
                "nothing was changed; read the plan again with `witness quorum fix`",
            ),
            RepairRefusal::Stopped(_) => (RefusalKind::Failed, STOPPED),
            _ => (RefusalKind::Refused, ""),
        };
        Self::new(kind, refusal.to_string(), advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_later_version_is_a_failure() {
        let json = r#"{"kind":"asleep","what":"w"}"#;
        let refusal: Refusal = serde_json::from_str(json).unwrap();
        assert_eq!(refusal, Refusal::failed("w", ""));
    }
}

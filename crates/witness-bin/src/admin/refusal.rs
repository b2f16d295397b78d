//! Why a command was not carried out, or not to its end, as a member says it: an exit code, a
//! sentence, and what to do.

use consensus::{
    MoveError, PauseError, PromotionError, PromotionRefusal, RepairRefusal, RosterError,
    TransferRefusal,
};
use raft_types::MemberId;
use serde::{Deserialize, Serialize};

use crate::terminal::Exit;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// How the command line ends.
    pub exit: Exit,
    /// What happened, in one sentence.
    pub what: String,
    /// What to do; empty when the sentence says it.
    #[serde(default)]
    pub advice: String,
    /// Who leads, when the member that was asked does not and the command is for the leader.
    #[serde(default)]
    pub leader: Option<MemberId>,
    /// Something else is under way, behind which the same command may be given again.
    #[serde(default)]
    pub busy: bool,
}

impl Refusal {
    /// Nothing was done, because of this.
    pub fn new(exit: Exit, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            advice: advice.into(),
            leader: None,
            busy: false,
        }
    }

    /// Something else is under way.
    fn busy(error: &impl ToString) -> Self {
        Self {
            busy: true,
            ..Self::new(Exit::Refused, error.to_string(), "")
        }
    }

    /// The command is for the leader, which this member is not.
    pub fn not_leader(leader: Option<MemberId>) -> Self {
        let (what, advice) = match leader {
            Some(leader) => (
                format!("this member does not lead; member {leader} does"),
                "ask that one",
            ),
            None => (
                "this member does not lead, and knows nobody who does".to_owned(),
                "look with `witness status` what the ring waits for, and try again when a member leads",
            ),
        };
        Self {
            leader,
            ..Self::new(Exit::NoQuorum, what, advice)
        }
    }
}

const LOOK: &str = "look with `witness status --explain`, and try again";
const BRING_BACK: &str = "bring members back until a quorum answers; `witness status` says which";

impl From<TransferRefusal> for Refusal {
    fn from(refusal: TransferRefusal) -> Self {
        let advice = match &refusal {
            TransferRefusal::NotLeader { leader } => return Self::not_leader(*leader),
            TransferRefusal::LeadsAlready(_) => "there is nothing to do",
            _ => "",
        };
        Self::new(Exit::Refused, refusal.to_string(), advice)
    }
}

impl From<PromotionRefusal> for Refusal {
    fn from(refusal: PromotionRefusal) -> Self {
        let (exit, advice) = match refusal {
            PromotionRefusal::Target(target) => return target.into(),
            PromotionRefusal::Busy => return Self::busy(&refusal),
            PromotionRefusal::NotServing(_) => (Exit::NoQuorum, BRING_BACK),
            PromotionRefusal::NoTarget(_) => (Exit::Refused, LOOK),
            PromotionRefusal::MockElectionLost(_) => (
                Exit::Refused,
                "nothing was changed; `witness mock-election` shows every voter's answer",
            ),
            _ => (Exit::Refused, ""),
        };
        Self::new(exit, refusal.to_string(), advice)
    }
}

impl From<PromotionError> for Refusal {
    fn from(error: PromotionError) -> Self {
        let (exit, advice) = match error {
            PromotionError::Refused(refusal) => return refusal.into(),
            PromotionError::Move { .. }
            | PromotionError::FellBehind { .. }
            | PromotionError::Drain { .. } => (Exit::Error, LOOK),
            PromotionError::AnotherLeads { .. } => (Exit::Error, ""),
            PromotionError::Unknown(_) => (Exit::Unknown, ""),
        };
        Self::new(exit, error.to_string(), advice)
    }
}

impl From<MoveError> for Refusal {
    fn from(error: MoveError) -> Self {
        let (exit, advice) = match error {
            MoveError::NotLeader { leader } => return Self::not_leader(leader),
            MoveError::Transferring | MoveError::Overtaken => (Exit::Refused, ""),
            MoveError::NotBegun { .. } => (Exit::NoQuorum, ""),
            MoveError::Uncommitted { .. } => (Exit::Unknown, ""),
            MoveError::Refused { .. } => (Exit::Refused, LOOK),
            MoveError::Stopped(_) => (Exit::Error, STOPPED),
        };
        Self::new(exit, error.to_string(), advice)
    }
}

const STOPPED: &str = "look at that member's log, and start it again";

impl From<RosterError> for Refusal {
    fn from(error: RosterError) -> Self {
        let (exit, advice) = match error {
            RosterError::NotLeader { leader } => return Self::not_leader(leader),
            RosterError::Move(error) => return error.into(),
            RosterError::Busy => return Self::busy(&error),
            RosterError::NotServing(_) => (Exit::NoQuorum, BRING_BACK),
            _ => (Exit::Refused, ""),
        };
        Self::new(exit, error.to_string(), advice)
    }
}

impl From<PauseError> for Refusal {
    fn from(error: PauseError) -> Self {
        let (exit, advice) = match error {
            PauseError::NotLeader { leader } => return Self::not_leader(leader),
            PauseError::Move(error) => return error.into(),
            PauseError::NotServing(_) => (Exit::NoQuorum, BRING_BACK),
            PauseError::NotPaused => (Exit::Refused, "there is nothing to do"),
            PauseError::Busy => return Self::busy(&error),
            PauseError::NoPrimary(_) | PauseError::TooLong { .. } => (Exit::Refused, ""),
        };
        Self::new(exit, error.to_string(), advice)
    }
}

impl From<RepairRefusal> for Refusal {
    fn from(refusal: RepairRefusal) -> Self {
        let (exit, advice) = match refusal {
            RepairRefusal::NoEvidence => (Exit::NoQuorum, ""),
            RepairRefusal::Led { .. } => (
                Exit::Refused,
                "look with `witness status` why it does not serve, if it does not",
            ),
            RepairRefusal::OtherSurvivor(_) | RepairRefusal::Changed(_) => (
                Exit::Refused,
                "nothing was changed; look at the plan again with `witness quorum fix`",
            ),
            RepairRefusal::Stopped(_) => (Exit::Error, STOPPED),
            _ => (Exit::Refused, ""),
        };
        Self::new(exit, refusal.to_string(), advice)
    }
}

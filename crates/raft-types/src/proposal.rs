//! The outcome of a proposal, and the ticket on which the proposer receives it.

use thiserror::Error;

use crate::ids::{MemberId, OpId};

/// The outcome of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The entry is committed: every later leader's log has it.
    Committed(OpId),
    /// The entry was not accepted, and never will be. Propose it again, to the leader.
    Refused(Refusal),
    /// The leadership ended before the commit. The entry may be committed or not; the ring's log shows that.
    Unknown(Unknown),
}

/// Why a proposal was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// This member does not lead in the term of the proposal. Contains the leader, if known.
    #[error("this member does not lead in that term{}", leader_words(.0))]
    NotLeader(Option<MemberId>),
    /// An earlier entry on which this one depends was refused.
    #[error("an entry before it was not taken; propose both again, in their order")]
    AfterRefused,
    /// No quorum has answered within the lease.
    #[error("no quorum has answered within the lease; bring voters back, then propose again")]
    QuorumSilent,
    /// A leadership transfer to another member is in progress. Contains the target, if known.
    #[error("the leadership is being transferred{}; wait for it", leader_words(.0))]
    Transferring(Option<MemberId>),
}

fn leader_words(leader: &Option<MemberId>) -> String {
    match leader {
        Some(leader) => format!("; member {leader} does"),
        None => String::new(),
    }
}

/// Why the commit of a proposal is uncertain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unknown {
    /// This member lost the leadership in which the entry was proposed.
    #[error(
        "the leadership ended before the commit; the ring's log says whether the entry is in it"
    )]
    LeadershipLost,
    /// This member's consensus engine stopped before the commit.
    #[error("the engine stopped before the commit; the ring's log says whether the entry is in it")]
    EngineStopped,
}

/// The ticket of a proposal in flight. Dropping it does not cancel the proposal.
pub trait Ticket: Send + 'static {
    /// Returns the outcome if it is known by now. Repeated calls return the same outcome.
    fn resolved_now(&mut self) -> Option<Outcome>;

    /// Waits until the outcome is known. Cancel safe.
    fn outcome(&mut self) -> impl Future<Output = Outcome> + Send;
}

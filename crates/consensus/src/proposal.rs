//! Proposals: an entry on its way, the ticket that says what became of it, and the bound on how much
//! may be under way. The commit reaches the ticket and the commit mark from inside the engine's loop.

use openraft::errors::{ClientWriteError, ForwardReason, ForwardToLeader};
use openraft::raft::ClientWriteResult;
use raft_types::{MemberId, OpId, ProposalListener, ProposalSequence, TypeConfig};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::engine::Fault;
use crate::lease::leadership::{Leadership, Term};
use crate::log_room::rooms::{NoRoom, UnderWay};
use crate::state_machine::CommitMark;

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The entry is committed: it will be in the log of every leader from now on.
    Committed(OpId),
    /// The entry was not taken, and never will be: propose it to who leads.
    Refused(Refusal),
    /// The leadership ended first. The entry may be committed or not; the ring's log will tell.
    Unknown(Unknown),
}

/// Why a proposal was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// This member does not lead in the term that the proposal names.
    #[error("this member does not lead in that term{}", leader_words(.leader))]
    NotLeader {
        /// Who leads, when that is known.
        leader: Option<MemberId>,
    },
    /// An entry that it relies on was refused.
    #[error("an entry before it was not taken; propose both again, in their order")]
    Behind,
    /// No quorum has answered within the lease.
    #[error("no quorum has answered within the lease; bring voters back, then propose again")]
    QuorumSilent,
    /// The leadership is on its way to another member.
    #[error("the leadership is being transferred{}; wait for it", leader_words(.to))]
    Transferring {
        /// To whom, when that is known.
        to: Option<MemberId>,
    },
}

fn leader_words(leader: &Option<MemberId>) -> String {
    match leader {
        Some(leader) => format!("; member {leader} does"),
        None => String::new(),
    }
}

/// Why it cannot be said whether a proposal is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// This member lost the leadership in which the entry was proposed.
    #[error(
        "the leadership ended before the commit; the ring's log says whether the entry is in it"
    )]
    LeadershipLost,
    /// This member's consensus engine stopped before it could tell.
    #[error("the engine stopped before the commit; the ring's log says whether the entry is in it")]
    EngineStopped,
}

/// Why an entry could not even be proposed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// Larger than any member takes.
    #[error(
        "a transaction of {bytes} bytes is larger than the {limit} that the ring takes; split it"
    )]
    TooLarge {
        /// Bytes of the transaction's payload.
        bytes: u64,
        /// The largest that a ring takes: [`raft_types::MAX_TRANSACTION_BYTES`].
        limit: u64,
    },
    /// There is no room for it on the disks of the ring.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The consensus engine has stopped, so nothing was proposed.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

/// Says what became of one proposal. Tickets resolve in the order of their proposals as long as
/// they resolve as committed. Dropping one does not take the proposal back.
#[derive(Debug)]
pub struct ProposalTicket {
    term: Term,
    answer: oneshot::Receiver<Outcome>,
    leadership: watch::Receiver<Leadership>,
    resolved: Option<Outcome>,
}

impl ProposalTicket {
    /// The ticket of a proposal that was not even made.
    pub(crate) fn refused(
        term: Term,
        refusal: Refusal,
        leadership: watch::Receiver<Leadership>,
    ) -> Self {
        let (_, answer) = oneshot::channel();
        Self {
            term,
            answer,
            leadership,
            resolved: Some(Outcome::Refused(refusal)),
        }
    }

    /// Waits until the outcome is known. Cancel safe; asked again, it answers the same.
    pub async fn outcome(&mut self) -> Outcome {
        loop {
            if let Some(outcome) = self.resolved_now() {
                return outcome;
            }
            let outcome = tokio::select! {
                biased;
                answer = &mut self.answer => Some(answer.unwrap_or(ENGINE_STOPPED)),
                changed = self.leadership.changed() => changed.err().map(|_| ENGINE_STOPPED),
            };
            self.resolved = outcome;
        }
    }

    /// The outcome, if it is known by now.
    pub fn resolved_now(&mut self) -> Option<Outcome> {
        if self.resolved.is_none() {
            self.resolved = match self.answer.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(oneshot::error::TryRecvError::Closed) => Some(ENGINE_STOPPED),
                Err(oneshot::error::TryRecvError::Empty) => {
                    let leading = self.leadership.borrow_and_update().leading_term();
                    (leading != Some(self.term)).then_some(LEADERSHIP_LOST)
                }
            };
        }
        self.resolved
    }
}

const ENGINE_STOPPED: Outcome = Outcome::Unknown(Unknown::EngineStopped);
const LEADERSHIP_LOST: Outcome = Outcome::Unknown(Unknown::LeadershipLost);

/// The engine's end of a ticket. It holds the proposal's share of the bound until the engine lets go.
pub(crate) struct InFlight {
    answer: Option<oneshot::Sender<Outcome>>,
    mark: CommitMark,
    /// What is proposed behind it relies on it.
    sequence: ProposalSequence,
    _share: (OwnedSemaphorePermit, UnderWay),
}

impl InFlight {
    /// A ticket for a proposal in `term` and the engine's end of it.
    pub(crate) fn new(
        term: Term,
        mark: CommitMark,
        share: (OwnedSemaphorePermit, UnderWay),
        sequence: ProposalSequence,
        leadership: watch::Receiver<Leadership>,
    ) -> (Self, ProposalTicket) {
        let (sender, answer) = oneshot::channel();
        let in_flight = Self {
            answer: Some(sender),
            mark,
            sequence,
            _share: share,
        };
        let ticket = ProposalTicket {
            term,
            answer,
            leadership,
            resolved: None,
        };
        (in_flight, ticket)
    }

    fn answer(&mut self, outcome: Outcome) {
        if let Some(answer) = self.answer.take() {
            // The proposer may have dropped its ticket.
            let _ = answer.send(outcome);
        }
    }
}

impl ProposalListener<ClientWriteResult<TypeConfig>> for InFlight {
    fn committed(&mut self, op_id: OpId) {
        self.mark.advance(op_id);
        self.answer(Outcome::Committed(op_id));
    }

    fn completed(mut self: Box<Self>, result: ClientWriteResult<TypeConfig>) {
        let outcome = match result {
            Ok(applied) => Outcome::Committed(applied.log_id.into()),
            Err(ClientWriteError::ForwardToLeader(forward)) => {
                // Inside of the engine's loop, so before it judges what comes behind.
                self.sequence.break_off();
                Outcome::Refused(refusal(&forward))
            }
            // Discarded on a change of leader; the other two are answers to membership changes.
            Err(
                ClientWriteError::LogEntryDiscarded(_)
                | ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_),
            ) => LEADERSHIP_LOST,
        };
        self.answer(outcome);
    }
}

fn refusal(forward: &ForwardToLeader<TypeConfig>) -> Refusal {
    match forward.reason {
        ForwardReason::NotLeader => Refusal::NotLeader {
            leader: forward.leader_id,
        },
        ForwardReason::LeaseExpired => Refusal::QuorumSilent,
        ForwardReason::LeadershipTransfer => Refusal::Transferring {
            to: forward.leader_id,
        },
    }
}

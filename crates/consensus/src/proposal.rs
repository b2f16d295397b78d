//! Proposals: an entry in flight, the ticket for its outcome, and the bound on entries in flight. The engine's loop itself reports a commit
//! to the ticket and to the commit mark.

use openraft::errors::{ClientWriteError, ForwardReason, ForwardToLeader};
use openraft::raft::ClientWriteResult;
use raft_types::{
    MAX_TRANSACTION_BYTES, OpId, Outcome, ProposalListener, ProposalSequence, Refusal, Term,
    Ticket, TypeConfig, Unknown,
};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::engine::Fault;
use crate::lease::leadership::Leadership;
use crate::log_room::{NoRoom, UnderWay};
use crate::state_machine::CommitMark;

/// Why an entry could not be proposed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// The payload, with this many bytes, is larger than any member accepts.
    #[error(
        "a transaction of {0} bytes is larger than the {MAX_TRANSACTION_BYTES} that the ring takes; split it"
    )]
    TooLarge(u64),
    /// The ring's disks have no room for the entry.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The consensus engine has stopped, so the entry was not proposed.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

/// The outcome of one proposal. Tickets of committed proposals resolve in the order of the proposals. Dropping a ticket does not withdraw
/// the proposal.
#[derive(Debug)]
pub struct ProposalTicket {
    term: Term,
    answer: oneshot::Receiver<Outcome>,
    leadership: watch::Receiver<Leadership>,
    resolved: Option<Outcome>,
}

impl ProposalTicket {
    /// Returns the ticket of a proposal that was refused before it reached the engine.
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

    /// Waits for the outcome. Cancel safe; later calls return the same outcome.
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

    /// Returns the outcome, if it is known already.
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

impl Ticket for ProposalTicket {
    fn resolved_now(&mut self) -> Option<Outcome> {
        Self::resolved_now(self)
    }

    async fn outcome(&mut self) -> Outcome {
        Self::outcome(self).await
    }
}

const ENGINE_STOPPED: Outcome = Outcome::Unknown(Unknown::EngineStopped);
const LEADERSHIP_LOST: Outcome = Outcome::Unknown(Unknown::LeadershipLost);

/// The engine's end of a ticket. It holds the proposal's share of the bound until the engine drops it.
pub(crate) struct InFlight {
    answer: Option<oneshot::Sender<Outcome>>,
    mark: CommitMark,
    /// The sequence of later proposals that depend on this one.
    sequence: ProposalSequence,
    _share: (OwnedSemaphorePermit, UnderWay),
}

impl InFlight {
    /// Returns a ticket for a proposal in `term`, and the engine's end of the ticket.
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
                // This runs inside the engine's loop, so it takes effect before the loop handles later proposals.
                self.sequence.break_off();
                Outcome::Refused(refusal(&forward))
            }
            // An entry is discarded on a leader change. The other two errors answer membership changes.
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
        ForwardReason::NotLeader => Refusal::NotLeader(forward.leader_id),
        ForwardReason::LeaseExpired => Refusal::QuorumSilent,
        ForwardReason::LeadershipTransfer => Refusal::Transferring(forward.leader_id),
    }
}

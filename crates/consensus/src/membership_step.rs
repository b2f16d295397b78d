//! The only code by which a running leader changes the voters or the members. Every change is one entry through the engine's
//! `append_membership`. The engine enforces two rules: an entry of the leader's own term must be committed before, and so must the previous
//! membership entry.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::errors::{
    ChangeMembershipError, ClientWriteError, ForwardReason, ForwardToLeader, RaftError,
};
use openraft::raft::Precondition;
use raft_types::{
    CommittedLeaderId, EntryPayload, MemberId, MemberRecord, Membership, OpId, TypeConfig,
};
use thiserror::Error;
use tokio::time::Instant;

use crate::engine::{self, Fault, RoleSnapshot};
use crate::node::RaftNode;
use crate::quorum::VoterSets;

/// Why the membership was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MoveError {
    /// This member has lost the leadership since the decision.
    #[error("this member does not lead any more{}", match .leader {
        Some(leader) => format!("; ask member {leader}"),
        None => String::new(),
    })]
    NotLeader {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// A leadership transfer to another member is in progress.
    #[error("the leadership is being transferred; wait for its end")]
    Transferring,
    /// Another change of the membership was committed since the decision.
    #[error("the membership has been changed meanwhile; look at it again")]
    Overtaken,
    /// The engine refuses this step, with its reason as text.
    #[error("the engine refuses the step: {0}")]
    Refused(String),
    /// No entry was appended, because another must be committed first.
    #[error(
        "nothing was changed: within {waited:?} {what}; bring the voters back that do not answer"
    )]
    NotBegun {
        /// How long the step waited for it.
        waited: Duration,
        /// The uncommitted item, as text.
        what: String,
    },
    /// The entry is in the log, but was not committed within this duration.
    #[error(
        "the change is in the log, but not committed within {0:?}; it takes effect when the voters that do not answer are back"
    )]
    Uncommitted(Duration),
    /// The consensus engine has stopped; the step may or may not be in the log.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

/// Pause before a retry of a step that the engine cannot accept yet.
const PAUSE: Duration = Duration::from_millis(2);

impl RaftNode {
    /// Appends a membership that follows the membership of `role`, in the leadership of `role`, and waits for the commit. If another
    /// membership is in force, the step is refused. The caller must let no other task change the membership or the leader in the meantime.
    ///
    /// # Errors
    /// [`MoveError`]. The entry may be in the log only if the error is [`MoveError::Uncommitted`] or the engine stops.
    pub async fn append_membership(
        &self,
        role: &RoleSnapshot,
        sets: VoterSets,
        members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<OpId, MoveError> {
        let (raft, patience) = (&self.engine.raft, self.engine.timers.longest_election());
        let began = Instant::now();
        if let Some(newcomer) = newcomer_that_votes(role.membership.membership(), &sets) {
            let reason =
                format!("member {newcomer} would join with a vote; it joins without one first");
            return Err(MoveError::Refused(reason));
        }
        let membership = Membership::new(sets, members);
        let membership = membership.map_err(|error| MoveError::Refused(error.to_string()))?;
        let mut obstacle = None;
        loop {
            let left = patience.saturating_sub(began.elapsed());
            if let (true, Some(what)) = (left.is_zero(), obstacle.take()) {
                let waited = began.elapsed();
                return Err(MoveError::NotBegun { waited, what });
            }
            let preconditions = [
                Precondition::<TypeConfig>::CommittedLeaderId {
                    committed_leader_id: CommittedLeaderId::new(role.term.0),
                },
                Precondition::LastMembershipLogId {
                    last_membership_log_id: *role.membership.log_id(),
                },
            ];
            let appended =
                raft.append_membership(membership.clone(), EntryPayload::Blank, preconditions);
            let Ok(appended) = tokio::time::timeout(left, appended).await else {
                let waited = began.elapsed();
                return Err(MoveError::Uncommitted(waited));
            };
            obstacle = match appended {
                Ok(done) => {
                    let op_id = OpId::from(done.log_id);
                    // The next decision uses the engine's published state, which may lag this answer for a moment.
                    let left = patience.saturating_sub(began.elapsed());
                    let is_shown = |role: &RoleSnapshot| {
                        role.membership.log_id().map(|at| at.index) >= Some(op_id.index)
                    };
                    let _ = tokio::time::timeout(left, engine::role_when(raft, is_shown)).await;
                    return Ok(op_id);
                }
                Err(RaftError::Fatal(fatal)) => return Err(Fault::from(fatal).into()),
                Err(RaftError::APIError(error)) => Some(passing(error)?),
            };
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Returns a member that would join and get its vote in the same entry. This is not allowed: the proof that a quorum repair loses no
/// entries requires that the next voters are members already.
fn newcomer_that_votes(present: &Membership, sets: &VoterSets) -> Option<MemberId> {
    let mut voters = sets.iter().flatten();
    voters.find(|id| present.get_node(id).is_none()).copied()
}

/// Returns why the engine cannot accept the step yet, or the error of a permanent refusal.
fn passing(error: ClientWriteError<TypeConfig>) -> Result<String, MoveError> {
    match error {
        ClientWriteError::ForwardToLeader(ForwardToLeader {
            reason, leader_id, ..
        }) => match reason {
            ForwardReason::LeaseExpired => Ok("no quorum answered".to_owned()),
            ForwardReason::NotLeader => Err(MoveError::NotLeader { leader: leader_id }),
            ForwardReason::LeadershipTransfer => Err(MoveError::Transferring),
        },
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => {
            Ok("the change before it was not committed".to_owned())
        }
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::UncommittedLeaderLog(_)) => {
            Ok("no entry of the leader's own term was committed".to_owned())
        }
        ClientWriteError::ChangeMembershipError(other) => {
            Err(MoveError::Refused(other.to_string()))
        }
        ClientWriteError::PreconditionFailed(_) => Err(MoveError::Overtaken),
        ClientWriteError::LogEntryDiscarded(forward) => Err(MoveError::NotLeader {
            leader: forward.leader_id,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_newcomer_has_no_vote_in_the_entry_with_which_it_joins() {
        let members = |ids: &[u64]| -> BTreeMap<MemberId, MemberRecord> {
            let records = ids
                .iter()
                .map(|id| (MemberId(*id), MemberRecord::default()));
            records.collect()
        };
        let set =
            |ids: &[u64]| -> BTreeSet<MemberId> { ids.iter().copied().map(MemberId).collect() };
        let base = Membership::new(vec![set(&[1, 2])], members(&[1, 2, 3])).unwrap();
        let newcomer = |sets: VoterSets| newcomer_that_votes(&base, &sets);
        assert_eq!(newcomer(vec![set(&[1, 2, 3])]), None);
        let with_four = vec![set(&[1, 2]), set(&[3, 4])];
        assert_eq!(newcomer(with_four), Some(MemberId(4)));
    }

    #[test]
    fn permanent_refusals_are_not_retried() {
        let refused = |reason| {
            passing(ClientWriteError::ForwardToLeader(ForwardToLeader {
                leader_id: Some(MemberId(2)),
                leader_node: None,
                reason,
            }))
        };
        let elsewhere = MoveError::NotLeader {
            leader: Some(MemberId(2)),
        };
        assert_eq!(refused(ForwardReason::NotLeader), Err(elsewhere));
        assert_eq!(
            refused(ForwardReason::LeadershipTransfer),
            Err(MoveError::Transferring)
        );
        let waits = refused(ForwardReason::LeaseExpired);
        assert_eq!(waits, Ok("no quorum answered".to_owned()));
    }
}

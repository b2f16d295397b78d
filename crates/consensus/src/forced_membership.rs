//! A membership that no leader proposed: the first membership of a ring, or one that repairs a permanently lost quorum. The member accepts
//! it as if a leader had sent it, in a term that no member can have reached. Then the member campaigns.
//!
//! This is safe only if no other member can have committed entries that this log lacks. That is certain at bootstrap; for a repair, an
//! operator decides it. All other changes use `membership_step`.

use openraft::raft::AppendEntriesRequest;
use raft_types::{
    CommittedLeaderId, Entry, EntryPayload, LogId, MemberId, Membership, MembershipPayload, OpId,
    TypeConfig, Vote,
};

use crate::engine::Fault;
use crate::node::RaftNode;

/// The sender of a forced membership; no member has this number.
pub(crate) const NO_MEMBER: MemberId = MemberId(u64::MAX);

impl RaftNode {
    /// Appends `membership` in `term` after `last`, then campaigns. `last` must be exactly the last entry, and `term` later than any that a
    /// member of the ring has seen. Safe only if no other member can have committed entries that this log lacks.
    ///
    /// # Errors
    /// [`ForceError`]; the log is unchanged then, unless the engine has stopped.
    pub async fn force_membership(
        &self,
        membership: Membership,
        last: Option<OpId>,
        term: u64,
    ) -> Result<OpId, ForceError> {
        let raft = &self.engine.raft;
        let index = last.map_or(0, |last| last.index + 1);
        let log_id = LogId {
            leader_id: CommittedLeaderId::new(term),
            index,
        };
        let vote = vote_in(term);
        let request = AppendEntriesRequest::<TypeConfig> {
            vote,
            prev_log_id: last.map(LogId::from),
            leader_commit: None,
            entries: vec![Entry {
                log_id,
                payload: EntryPayload::Membership(MembershipPayload::seal(membership)),
            }],
        };
        let answer = raft.append_entries(request).await;
        if !answer.map_err(Fault::from)?.is_success() {
            return Err(ForceError::Changed);
        }
        raft.trigger().elect(false).await.map_err(Fault::from)?;
        Ok(OpId::from(log_id))
    }

    /// Returns the term in which a ring's first membership may be forced here: the first term, or the term after an interrupted attempt.
    /// The vote is durable before the entry. So a member that stopped between the two has an empty log, and it has sent the entry to no
    /// member. Its log writer may still have the entry, so the next attempt needs a new term. Returns `None` if the log has entries, or the
    /// member has voted.
    ///
    /// # Errors
    /// The engine has stopped.
    pub async fn first_term(&self) -> Result<Option<u64>, Fault> {
        let raft = &self.engine.raft;
        if !raft.is_initialized().await? {
            return Ok(Some(1));
        }
        let state =
            raft.with_raft_state(|state| (state.log_ids.last().copied(), *state.vote_ref()));
        let (last, vote) = state.await?;
        let term = vote.leader_id.term;
        let is_begun = last.is_none() && vote == vote_in(term);
        Ok(is_begun.then_some(term + 1))
    }
}

fn vote_in(term: u64) -> Vote {
    Vote::new_committed(term, NO_MEMBER)
}

/// Why a membership was not forced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForceError {
    /// The log does not end as the decision expects, or the member has seen a later term.
    #[error("the log or the vote has changed since the decision; look again")]
    Changed,
    /// The consensus engine has stopped.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

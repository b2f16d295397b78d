//! A membership that no leader proposed: the first one of a ring, and the one that repairs a quorum that is lost for
//! good. The member takes it as if a leader of a term that nobody can have reached had sent it, then campaigns.
//!
//! This is safe where no other member can have committed anything that this log lacks: when the ring is being made, and
//! when an operator has taken that decision. Everything else goes through `membership_step`.

use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::AppendEntriesRequest;
use openraft::vote::{RaftLeaderId, RaftVote};
use raft_types::{
    CommittedLeaderId, Entry, EntryPayload, LogId, MemberId, Membership, MembershipPayload, OpId,
    TypeConfig, Vote,
};

use crate::engine::{Engine, Fault};

/// The number under which a membership is imposed; no member has it.
pub(crate) const NOBODY: MemberId = MemberId(u64::MAX);

/// Appends `membership` after `last`, which must be exactly the last entry, in `term`, which must be later than any
/// term that a member of the ring has seen; then campaigns.
///
/// # Errors
/// [`ForceError`]; the log is unchanged then, unless the engine has stopped.
pub(crate) async fn force_membership(
    raft: &Engine,
    membership: Membership,
    last: Option<OpId>,
    term: u64,
) -> Result<OpId, ForceError> {
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
    let answer = answer.map_err(crate::calls::inbound::raft_fault)?;
    if !answer.is_success() {
        return Err(ForceError::Changed);
    }
    raft.trigger().elect(false).await.map_err(Fault::from)?;
    Ok(OpId::from(log_id))
}

/// The term in which a ring's first membership may be imposed here: the first one, or the one after those in which that was begun and
/// stopped. The vote is on the disk before the entry, so that a member that was stopped in between has an empty log. It has told nobody of
/// the entry, but its writer may have had it: another one has to have a term of its own. `None` where the log has entries, or the member
/// has voted.
///
/// # Errors
/// The engine has stopped.
pub(crate) async fn first_term(raft: &Engine) -> Result<Option<u64>, Fault> {
    if !raft.is_initialized().await? {
        return Ok(Some(1));
    }
    let (last, vote) = raft
        .with_raft_state(|state| (state.log_ids.last().copied(), *state.vote_ref()))
        .await?;
    let term = vote.leader_id().term();
    let is_begun = last.is_none() && vote == vote_in(term);
    Ok(is_begun.then_some(term + 1))
}

fn vote_in(term: u64) -> Vote {
    <Vote as RaftVote>::from_leader_id(LeaderId::new(term, NOBODY), true)
}

/// Why a membership was not imposed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForceError {
    /// The log does not end as the decision said, or the member has seen a later term.
    #[error("the log or the vote has changed since the decision; look again")]
    Changed,
    #[error(transparent)]
    Stopped(#[from] Fault),
}

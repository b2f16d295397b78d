//! The project's name for the engine, and owned copies of its metrics. Only this module reads the metrics: a read guard held across an
//! await would stop the engine's loop.

pub(crate) mod any_log;
pub(crate) mod handle;
pub(crate) mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{Fatal, RaftError};
use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use openraft::{Instant as _, ServerState};
use raft_types::{MemberId, MemberRecord, OpId, StoredMembership, Term, TypeConfig};
use thiserror::Error;

use crate::state_machine::CommitStateMachine;

/// openraft with our types and our state machine.
pub type Engine = openraft::Raft<TypeConfig, CommitStateMachine>;

/// The engine's role and membership.
#[derive(Debug, Clone)]
pub struct RoleSnapshot {
    pub(crate) state: ServerState,
    /// The latest term that the member has seen.
    pub term: Term,
    /// The leader of the term, if known.
    pub leader: Option<MemberId>,
    /// The newest membership of the member's log.
    pub membership: Arc<StoredMembership>,
}

impl RoleSnapshot {
    /// Returns the voter sets in force. A commit and an election need a majority of each.
    pub fn voter_sets(&self) -> &[BTreeSet<MemberId>] {
        self.membership.membership().get_joint_config()
    }

    /// All members of the membership.
    pub fn members(&self) -> BTreeMap<MemberId, MemberRecord> {
        let nodes = self.membership.nodes();
        nodes.map(|(id, record)| (*id, record.clone())).collect()
    }

    /// Returns all members of the membership except this one.
    pub fn others(&self, own: MemberId) -> impl Iterator<Item = (MemberId, &MemberRecord)> {
        let nodes = self.membership.nodes();
        let others = nodes.filter(move |(id, _)| **id != own);
        others.map(|(id, record)| (*id, record))
    }

    /// Returns the leader, if another member leads.
    pub fn other_leader(&self, own: MemberId) -> Option<(MemberId, &MemberRecord)> {
        self.others(own).find(|(id, _)| Some(*id) == self.leader)
    }

    /// Returns a member other than `own` that is the only voter, or may still consider itself the only voter. In the second case, the
    /// member alone is a voter set of an uncommitted membership. This set may be the only one of the previous membership.
    pub(crate) fn another_alone(&self, own: MemberId, mark: Option<OpId>) -> Option<MemberId> {
        let sets = self.voter_sets();
        let changed_at = self.membership.log_id().map(|at| at.index);
        let settled = changed_at <= mark.map(|mark| mark.index);
        if settled && sets.len() > 1 {
            return None;
        }
        sets.iter().find_map(|set| match (set.len(), set.first()) {
            (1, Some(&only)) if only != own => Some(only),
            _ => None,
        })
    }

    /// Returns true if `member` is the only voter.
    pub(crate) fn is_alone(&self, member: MemberId) -> bool {
        let sets = self.voter_sets();
        !sets.is_empty() && sets.iter().all(|set| set.iter().eq([&member]))
    }
}

pub(crate) fn role(raft: &Engine) -> RoleSnapshot {
    let metrics = raft.server_metrics();
    let seen: RaftServerMetrics<TypeConfig> = metrics.borrow_watched().clone();
    RoleSnapshot {
        state: seen.state,
        term: Term(seen.vote.leader_id.term),
        leader: seen.current_leader,
        membership: seen.membership_config,
    }
}

/// Waits until `wanted` is true for the role.
///
/// # Errors
/// The engine stops before that.
pub(crate) async fn role_when(
    raft: &Engine,
    wanted: impl Fn(&RoleSnapshot) -> bool,
) -> Result<RoleSnapshot, Fault> {
    let mut changes = raft.server_metrics();
    loop {
        let role = role(raft);
        if wanted(&role) {
            return Ok(role);
        }
        if changes.changed().await.is_err() {
            return Err(Fault::Stopped);
        }
    }
}

/// The state of the engine's log and, on a leader, the progress of the other members.
#[derive(Debug, Clone)]
pub struct ProgressSnapshot {
    /// The last entry of the log.
    pub last_log: Option<OpId>,
    /// The last entry that is applied, and therefore committed.
    pub applied: Option<OpId>,
    /// The last entry that is purged.
    pub purged: Option<OpId>,
    /// For each other member, the last entry that its log durably shares with this log. Empty on a follower.
    pub(crate) matched: BTreeMap<MemberId, Option<OpId>>,
    /// For each other member, how long ago the last call that it answered was sent.
    pub(crate) answered: BTreeMap<MemberId, Option<Duration>>,
}

pub(crate) fn progress(raft: &Engine) -> ProgressSnapshot {
    let metrics = raft.data_metrics();
    let seen: RaftDataMetrics<TypeConfig> = metrics.borrow_watched().clone();
    ProgressSnapshot {
        last_log: seen.last_log.map(OpId::from),
        applied: seen.last_applied.map(OpId::from),
        purged: seen.purged.map(OpId::from),
        matched: seen
            .replication
            .unwrap_or_default()
            .into_iter()
            .map(|(id, matched)| (id, matched.map(OpId::from)))
            .collect(),
        answered: seen
            .heartbeat
            .unwrap_or_default()
            .into_iter()
            .map(|(id, at)| (id, at.map(|at| at.elapsed())))
            .collect(),
    }
}

// Why a member's engine stopped. The messages include the operator's next step.

/// Why the engine has stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The log storage failed, with its error as text. Acknowledged entries are durable; later ones may not be.
    #[error("the log storage failed: {0}; repair the disk, then start the member again")]
    Storage(String),
    /// A broken invariant in the engine, or in a task of the member.
    #[error("a part of the member has panicked; keep its log output and start it again")]
    Panicked,
    /// The ring has committed another entry at an index where this member has committed one.
    #[error(
        "entry {ours} is committed here, and the ring's leader has {theirs} in its place: the quorum was repaired without this member; start it again, and it cuts its log back to where it agrees with the ring"
    )]
    Contradicted {
        /// The entry that this member holds as committed.
        ours: OpId,
        /// The entry that the leader holds as committed at the same index.
        theirs: OpId,
    },
    /// The member was shut down.
    #[error("the member was shut down")]
    Stopped,
}

impl From<Fatal<TypeConfig>> for Fault {
    fn from(fatal: Fatal<TypeConfig>) -> Self {
        match fatal {
            Fatal::StorageError(error) => Self::Storage(error.to_string()),
            Fatal::Panicked => Self::Panicked,
            Fatal::Stopped => Self::Stopped,
        }
    }
}

/// Converts the error of an engine call that cannot fail in other ways.
impl From<RaftError<TypeConfig>> for Fault {
    fn from(error: RaftError<TypeConfig>) -> Self {
        match error {
            RaftError::Fatal(fatal) => fatal.into(),
            RaftError::APIError(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use raft_types::LogId;
    use raft_types::Membership;

    use super::*;

    fn role(sets: &[&[u64]], changed_at: u64) -> RoleSnapshot {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        let sets: Vec<BTreeSet<MemberId>> = sets.iter().map(set).collect();
        let membership = Membership::new_with_defaults(sets, []);
        let at = LogId::from(OpId::new(2, changed_at));
        RoleSnapshot {
            state: ServerState::Leader,
            term: Term(2),
            leader: Some(MemberId(1)),
            membership: Arc::new(StoredMembership::new(Some(at), membership)),
        }
    }

    #[test]
    fn a_lone_voter_elsewhere_ends_the_lease() {
        let alone = |sets: &[&[u64]], mark| {
            role(sets, 5).another_alone(MemberId(1), Some(OpId::new(2, mark)))
        };
        let four = Some(MemberId(4));
        assert_eq!(alone(&[&[4]], 4), four);
        assert_eq!(alone(&[&[4]], 5), four);
        // Member 4 may still have the previous membership, and be its only voter.
        assert_eq!(alone(&[&[4], &[1, 2, 3]], 4), four);
        assert_eq!(alone(&[&[4], &[1, 2, 3]], 5), None);
        assert_eq!(alone(&[&[1]], 4), None);
        assert_eq!(alone(&[&[1, 2, 3]], 4), None);
    }
}

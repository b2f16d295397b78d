//! The engine under its own name, and owned copies of what it shows. Its metrics are read here and
//! nowhere else: a guard on them held across an await would stop the engine's loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use openraft::{Instant as _, ServerState};
use raft_types::{MemberId, OpId, StoredMembership, TypeConfig};

use crate::leadership::Term;
use crate::watermark::CommittedLog;

/// openraft with our types and our state machine.
pub(crate) type Engine = openraft::Raft<TypeConfig, CommittedLog>;

/// The engine's role and membership.
#[derive(Debug, Clone)]
pub(crate) struct RoleSnapshot {
    pub(crate) state: ServerState,
    pub(crate) term: Term,
    pub(crate) leader: Option<MemberId>,
    pub(crate) membership: Arc<StoredMembership>,
}

impl RoleSnapshot {
    /// The voter sets in force; a commit and an election need a majority of each.
    pub(crate) fn voter_sets(&self) -> &[BTreeSet<MemberId>] {
        self.membership.membership().get_joint_config()
    }

    /// Whether `member` is the only voter.
    pub(crate) fn is_alone(&self, member: MemberId) -> bool {
        let sets = self.voter_sets();
        !sets.is_empty() && sets.iter().all(|set| set.iter().eq([&member]))
    }
}

/// The engine's role now.
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

/// The engine's log and, on a leader, what it knows of the others.
#[derive(Debug, Clone)]
pub(crate) struct ProgressSnapshot {
    pub(crate) last_log: Option<OpId>,
    pub(crate) applied: Option<OpId>,
    pub(crate) purged: Option<OpId>,
    /// How far each other member's log is known to be durable and equal; none on a follower.
    pub(crate) matched: BTreeMap<MemberId, Option<OpId>>,
    /// How long ago the last call was sent that the member has answered.
    pub(crate) answered: BTreeMap<MemberId, Option<Duration>>,
}

/// The engine's progress now.
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

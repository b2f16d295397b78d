//! The leader's view of the ring's members: owned values from one moment, for status pages and for every decision about a leadership
//! transfer.

use std::collections::BTreeSet;
use std::time::Duration;

use raft_types::{MemberId, MemberRecord, OpId};

use crate::engine::{ProgressSnapshot, RoleSnapshot};

/// One member in another's view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingMember {
    /// Its number in the ring.
    pub id: MemberId,
    /// Its record in the membership.
    pub record: MemberRecord,
    /// Whether it currently counts in the quorum.
    pub voter: bool,
    /// The last entry that its log durably shares with the leader's; known only on the leader.
    pub matched: Option<OpId>,
    /// Number of entries that it lags the leader's log; known only on the leader.
    pub lag: Option<u64>,
    /// Age of the last call that it has answered; known only on the leader.
    pub answered: Option<Duration>,
    /// The leader has purged entries that it needs. Its log will begin with a later file, and its mysqld must be reprovisioned if it lacks
    /// earlier transactions.
    pub needs_purged_entries: bool,
}

impl RingMember {
    /// Whether it answered within `lease`.
    pub fn answers(&self, lease: Duration) -> bool {
        self.answered.is_some_and(|age| age < lease)
    }
}

/// All members of the ring at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingView {
    /// The viewing member.
    pub own: MemberId,
    /// True if it was elected, and can therefore observe the others.
    pub leads: bool,
    /// True if it was elected because no voter had the end of its log, and must transfer the leadership.
    pub is_interim: bool,
    /// How long a member's answer counts.
    pub lease: Duration,
    /// The leader, if known.
    pub leader: Option<MemberId>,
    /// The last entry of its own log.
    pub last_log: Option<OpId>,
    /// The voter sets in force; more than one during a quorum move, or by policy.
    pub voter_sets: Vec<BTreeSet<MemberId>>,
    /// Every member of the membership in force, the viewing member included.
    pub members: Vec<RingMember>,
}

impl RingView {
    pub(crate) fn new(own: MemberId, role: &RoleSnapshot, progress: &ProgressSnapshot) -> Self {
        let leads = role.state == openraft::ServerState::Leader;
        let voter_sets = role.voter_sets().to_vec();
        let next_index = |op_id: Option<OpId>| op_id.map_or(0, |op_id| op_id.index + 1);
        let members = role
            .membership
            .nodes()
            .map(|(&id, record)| {
                let is_own = id == own;
                let matched = match is_own {
                    // A leader also counts its own log only as far as it is durable.
                    true if leads => progress.matched.get(&id).copied().flatten(),
                    true => progress.last_log,
                    false => progress.matched.get(&id).copied().flatten(),
                };
                let lag = next_index(progress.last_log).saturating_sub(next_index(matched));
                let answered = match is_own {
                    true => Some(Duration::ZERO),
                    false => progress.answered.get(&id).copied().flatten(),
                };
                RingMember {
                    id,
                    record: record.clone(),
                    voter: voter_sets.iter().any(|set| set.contains(&id)),
                    matched,
                    lag: (leads || is_own).then_some(lag),
                    answered,
                    needs_purged_entries: leads
                        && answered.is_some()
                        && next_index(matched) < next_index(progress.purged),
                }
            })
            .collect();
        Self {
            own,
            leads,
            is_interim: false,
            lease: Duration::ZERO,
            leader: role.leader,
            last_log: progress.last_log,
            voter_sets,
            members,
        }
    }

    /// Whether a member answered within the lease.
    pub fn answers(&self, peer: &RingMember) -> bool {
        peer.answers(self.lease)
    }

    /// `None` for a number that is not in the membership.
    pub fn member(&self, id: MemberId) -> Option<&RingMember> {
        self.members.iter().find(|peer| peer.id == id)
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! The leader's view of the ring's members at one moment, as owned values. It is used for status pages and for every decision about a
//! leadership transfer.

use std::collections::BTreeSet;
use std::time::Duration;

use raft_types::{MemberId, MemberRecord, OpId};

use crate::engine::{ProgressSnapshot, RoleSnapshot};

/// One member in another's view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingMember {
    /// The member's number in the ring.
    pub id: MemberId,
    /// The member's record in the membership.
    pub record: MemberRecord,
    /// True if the member counts in the current quorum.
    pub voter: bool,
    /// The last entry that the member's log durably shares with the leader's log; known only on the leader.
    pub matched: Option<OpId>,
    /// The number of entries by which the member lags the leader's log; known only on the leader.
    pub lag: Option<u64>,
    /// The age of the last call that the member has answered; known only on the leader.
    pub answered: Option<Duration>,
    /// True if the leader has purged entries that the member needs. The member's log will begin with a later file. If its mysqld lacks
    /// earlier transactions, it must be reprovisioned.
    pub needs_purged_entries: bool,
}

impl RingMember {
    /// Returns true if the member answered within `lease`.
    pub fn answers(&self, lease: Duration) -> bool {
        self.answered.is_some_and(|age| age < lease)
    }
}

/// All members of the ring at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingView {
    /// The viewing member.
    pub own: MemberId,
    /// True if the viewing member leads, so it can observe the others.
    pub leads: bool,
    /// True if the viewing member is an interim leader. It was elected because no voter had the end of its log, and it must transfer the
    /// leadership.
    pub is_interim: bool,
    /// How long a member's answer counts.
    pub lease: Duration,
    /// The leader, if known.
    pub leader: Option<MemberId>,
    /// The last entry of the viewing member's log.
    pub last_log: Option<OpId>,
    /// The voter sets in force. There is more than one during a quorum move, or if the policy requires it.
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
                    // A leader's own log counts only up to its durable end, too.
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

    /// Returns true if a member answered within the lease.
    pub fn answers(&self, peer: &RingMember) -> bool {
        peer.answers(self.lease)
    }

    /// Returns the member with this number; `None` if it is not in the membership.
    pub fn member(&self, id: MemberId) -> Option<&RingMember> {
        self.members.iter().find(|peer| peer.id == id)
    }
}

#[cfg(test)]
pub(crate) mod tests;

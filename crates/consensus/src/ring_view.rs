//! The leader's view of the ring's members: owned values from one moment, for status pages and for every decision about a leadership
//! transfer.

use std::collections::BTreeSet;
use std::time::Duration;

use raft_types::{MemberId, MemberRecord, OpId};
use serde::{Deserialize, Serialize};

use crate::engine::{ProgressSnapshot, RoleSnapshot};

/// One member in another's view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    pub behind: Option<u64>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingView {
    /// The viewing member.
    pub own: MemberId,
    /// Whether it was elected, and can therefore observe the others.
    pub leads: bool,
    /// Whether it was elected because no voter had the end of its log, and must transfer the leadership.
    #[serde(skip)]
    pub stands_in: bool,
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
                let behind = next_index(progress.last_log).saturating_sub(next_index(matched));
                let answered = match is_own {
                    true => Some(Duration::ZERO),
                    false => progress.answered.get(&id).copied().flatten(),
                };
                RingMember {
                    id,
                    record: record.clone(),
                    voter: voter_sets.iter().any(|set| set.contains(&id)),
                    matched,
                    behind: (leads || is_own).then_some(behind),
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
            stands_in: false,
            leader: role.leader,
            last_log: progress.last_log,
            voter_sets,
            members,
        }
    }

    /// `None` for a number that is not in the membership.
    pub fn member(&self, id: MemberId) -> Option<&RingMember> {
        self.members.iter().find(|peer| peer.id == id)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Rings for the decision tables in tests.

    use raft_types::MemberKind;
    use raft_types::Region;

    use super::*;

    pub(crate) const LEASE: Duration = Duration::from_millis(800);

    /// A ring in which every member answers and has all entries, unless a test changes it.
    #[derive(Clone)]
    pub(crate) struct Ring(RingView);

    impl Ring {
        /// Parses a text such as `a: 1d 2w 3w | b: 4d 5w 6n`: regions with their members. `d` is a database member, `w` a witness, `n` a
        /// witness without a vote.
        pub(crate) fn new(text: &str) -> Self {
            let mut members = Vec::new();
            for region in text.split('|') {
                let (name, list) = region.split_once(':').unwrap();
                for member in list.split_whitespace() {
                    let (id, kind) = member.split_at(member.len() - 1);
                    let region = Region(name.trim().to_owned());
                    members.push(peer(id.parse().unwrap(), region, kind));
                }
            }
            members.sort_by_key(|peer| peer.id);
            Self(RingView {
                own: members[0].id,
                leads: true,
                stands_in: false,
                leader: Some(members[0].id),
                last_log: Some(OpId::new(2, 9)),
                voter_sets: Vec::new(),
                members,
            })
        }

        pub(crate) fn led_by(mut self, id: u64) -> Self {
            self.0.own = MemberId(id);
            self.0.leader = Some(MemberId(id));
            self
        }

        /// Its leader has no vote, and was elected for the end of its log.
        pub(crate) fn standing_in(mut self) -> Self {
            self.0.stands_in = true;
            self
        }

        pub(crate) fn with_sets(mut self, sets: &[&[u64]]) -> Self {
            let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
            self.0.voter_sets = sets.iter().map(set).collect();
            for peer in &mut self.0.members {
                peer.voter = self.0.voter_sets.iter().any(|set| set.contains(&peer.id));
            }
            self
        }

        pub(crate) fn silent(mut self, ids: &[u64]) -> Self {
            for id in ids {
                self = self.with(*id, |peer| peer.answered = Some(LEASE));
            }
            self
        }

        pub(crate) fn with(&self, id: u64, change: impl FnOnce(&mut RingMember)) -> Self {
            let mut ring = self.clone();
            let mut members = ring.0.members.iter_mut();
            change(members.find(|peer| peer.id.0 == id).unwrap());
            ring
        }

        pub(crate) fn view(&self) -> RingView {
            self.0.clone()
        }
    }

    fn peer(id: u64, region: Region, kind: &str) -> RingMember {
        RingMember {
            id: MemberId(id),
            record: MemberRecord {
                name: format!("member-{id}"),
                region,
                kind: match kind {
                    "d" => MemberKind::Database,
                    _ => MemberKind::Witness,
                },
                votes: kind != "n",
                ..MemberRecord::default()
            },
            voter: false,
            matched: Some(OpId::new(2, 9)),
            behind: Some(0),
            answered: Some(Duration::from_millis(100)),
            needs_purged_entries: false,
        }
    }
}

//! Everything that an operator asks one member about its Raft, as owned values.

use raft_types::{MemberId, OpId, RingId};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::lease::leadership::{Leadership, Term};
use crate::member::explain::Explanation;
use crate::quorum::{QuorumHealth, RegionQuorum, RingRules};
use crate::reconfiguration::leader_tasks::LeaderTask;
use crate::reconfiguration::pinned_primary::RingPause;
use crate::ring_view::RingView;

/// One member's Raft at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The ring.
    pub ring: RingId,
    /// This member.
    pub member: MemberId,
    /// What it may be relied on for.
    pub leadership: Leadership,
    /// In words, why it leads without serving.
    pub not_serving: Option<String>,
    /// The term in which it is.
    pub term: Term,
    /// Up to where its log is known to be committed.
    pub committed: Option<OpId>,
    /// The last purged entry.
    pub purged: Option<OpId>,
    /// The ring as it sees it; a leader sees how far the others are.
    pub ring_view: RingView,
    /// The pause of failover that stands, if one does.
    pub pause: Option<RingPause>,
    /// Who decides a commit, and where the leadership goes, as this member's log says it.
    pub rules: RingRules,
    /// The quorum region by region; empty where this member does not lead.
    pub regions: Vec<RegionQuorum>,
    /// Why the ring is as it is; known on the leader only.
    pub explanation: Option<Explanation>,
    /// Whether the quorum answers; known on the leader only.
    pub quorum: Option<QuorumHealth>,
    /// In words, what the quorum lacks.
    pub quorum_cause: Option<String>,
    /// Bytes of proposals that are not committed yet.
    pub proposals_bytes: u64,
    /// What the leader does to bring the quorum and the leadership to where they should be.
    pub leader_task: Option<LeaderTask>,
    /// Why it neither votes nor campaigns, in words, if it does not.
    #[serde(default)]
    pub stays_out_of_elections: Option<String>,
    /// Why the engine stopped, if it did.
    pub fault: Option<Fault>,
}

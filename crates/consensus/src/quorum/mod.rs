//! Quorums as sets of voters: pure arithmetic over what the log says and what was observed.
//!
//! What a commit needs is decided here, by making the voter sets of the membership (`policy.rs`): an entry is committed once a
//! majority of *each* set has it durably. The counting itself is openraft's (its replication progress, over the joint membership);
//! it tells the crate's `state_machine.rs` what is committed. An election needs majorities of the same sets.

mod health;
pub(crate) mod majority;
mod plan;
pub(crate) mod policy;
mod regions;
#[cfg(test)]
mod tests;

pub use crate::quorum::health::{
    QuorumHealth, VoterSetHealth, even_voters, failures, failures_tolerated,
};
pub use crate::quorum::majority::majority_of;
pub use crate::quorum::plan::{MoveObstacle, QuorumPlan, is_safe_step, next_step};
pub(crate) use crate::quorum::plan::{is_near, obstacle, plan, unseen_quorum, wanted_sets};
pub use crate::quorum::policy::{PolicyGap, QuorumPolicy, RingRules, VoterSets};
pub use crate::quorum::regions::{RegionQuorum, region_quorums};

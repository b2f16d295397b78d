//! Quorums as sets of voters: pure arithmetic over what the log says and what was observed.

mod health;
pub(crate) mod majority;
mod plan;
pub(crate) mod policy;
mod regions;
#[cfg(test)]
mod tests;

pub use crate::quorum::health::{QuorumHealth, VoterSetHealth};
pub use crate::quorum::majority::majority_of;
pub use crate::quorum::plan::{MoveObstacle, QuorumPlan, is_safe_step, next_step};
pub(crate) use crate::quorum::plan::{is_near, obstacle, plan, unseen_quorum, wanted_sets};
pub use crate::quorum::policy::{PolicyGap, QuorumPolicy, RingRules, VoterSets};
pub use crate::quorum::regions::{RegionQuorum, region_quorums};

//! Quorums as sets of voters: pure arithmetic over what the log says and what was observed.

mod health;
#[cfg(test)]
mod intersection_tests;
pub(crate) mod logged_rules;
pub(crate) mod majority;
mod plan;
#[cfg(test)]
mod plan_tables;
mod policy;
mod regions;
#[cfg(test)]
mod some_regions_tests;
mod transition;

pub use health::{QuorumHealth, VoterSetHealth};
pub use majority::majority_of;
pub use plan::{MoveObstacle, QuorumPlan};
pub(crate) use plan::{is_near, obstacle, plan, wanted_sets};
pub use policy::{PolicyGap, QuorumPolicy, RingRules, VoterSets};
pub use regions::{RegionQuorum, region_quorums};
pub(crate) use transition::unseen_quorum;
pub use transition::{is_safe_step, next_step};

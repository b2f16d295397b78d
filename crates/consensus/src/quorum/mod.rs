//! Quorums as sets of voters: pure functions over the log's contents and observations.
//!
//! A commit needs the voter sets of the membership (`policy.rs`): an entry is committed after a majority of *each* set has it durably.
//! Openraft counts this, by its replication progress over the joint membership, and reports committed entries to the crate's
//! `state_machine.rs`. An election needs majorities of the same sets.

mod health;
mod plan;
pub mod policy;

pub use crate::purge_floor::{RegionQuorum, region_quorums};
pub use crate::quorum::health::{
    QuorumHealth, VoterSetHealth, even_voters, failures, failures_tolerated,
};
pub use crate::quorum::plan::{
    MoveObstacle, QuorumPlan, is_safe_step, next_step, obstacle, plan, unseen_quorum, wanted_sets,
};
pub use crate::quorum::policy::{
    PolicyGap, QuorumPolicy, RingRules, VoterSets, have_majorities, majority_of,
};

#[cfg(test)]
mod tests;

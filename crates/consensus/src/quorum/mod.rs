//! Quorums as sets of voters: pure arithmetic over what the log says and what was observed.

mod health;
mod majority;

pub use health::{QuorumHealth, VoterSetHealth};
pub use majority::majority_of;

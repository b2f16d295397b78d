//! What a member keeps beside its log files: Raft's hard state and small marks, in a store of its own.

pub(crate) mod hard_state;
pub(crate) mod store;

//! The member's data next to its log files: Raft's hard state and small marks, in a separate store.

pub(crate) mod hard_state;
pub(crate) mod store;

//! The files of the member's log: which go, which stay, and which are read back.

pub(crate) mod purge_order;
pub(crate) mod purging;
pub(crate) mod scrubbing;

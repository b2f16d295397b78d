//! Code shared by the ring tests.

pub(crate) mod memory_log;
pub(crate) mod ring;
pub(crate) mod scripted_network;
pub(crate) mod switchboard;

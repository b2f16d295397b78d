//! A mysqld that crashes with unacknowledged transactions restarts without them.

#![allow(clippy::unwrap_used, reason = "all of this is test")]

mod crashing_server;
mod every_crash_point;
mod kills_under_load;
mod reference;
#[path = "../beside_a_mysqld/ring_in_memory.rs"]
#[allow(dead_code, reason = "shared with the tests of a mysqld")]
mod ring_in_memory;
mod statements;
mod what_is_not_cut;

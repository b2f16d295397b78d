//! Clients of a server whose log is in memory.

mod dumps;
mod memory_log;
mod sessions;

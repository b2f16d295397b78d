//! Clients of a server with a log in memory.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod dumps;
mod memory_log;
mod older_files;
mod sessions;

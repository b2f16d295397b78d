//! Clients of a server whose log is in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dumps;
mod memory_log;
mod older_files;
mod sessions;

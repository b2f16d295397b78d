//! Ingest, watcher, controller and supervisor between a real mysqld and a ring in memory.

#![allow(clippy::unwrap_used, reason = "all of this is test")]

mod a_commit_waits_for_the_ring;
mod a_follower_becomes_the_primary;
mod after_a_break;
mod an_account_that_is_lost;
mod commits_that_stand;
mod conversions;
mod copied_beside_itself;
mod drift_closes_it_for_writes;
mod each_right_is_needed;
mod external;
mod guarded_starts;
mod primary;
mod readers_are_kept_off;
mod ring_in_memory;
mod starts_are_told_apart;
mod supervised;
mod what_is_in_no_binlog_file;
mod what_mysqld_does;

//! Tests with rings of several members in one process. Their logs are in memory, and a switchboard can cut the connections between them.

#![allow(clippy::unwrap_used, reason = "these are tests, their helpers too")]

#[path = "../support/mod.rs"]
mod support;

mod bootstrap_once;
mod cold_start;
mod commits_in_order;
mod doubted_tail;
mod early_elections;
mod failing_log;
mod forgotten_lease;
mod formats;
mod history;
mod lacking;
mod leader_crash;
mod lost_quorum;
mod no_membership_without_the_barrier;
mod paused_failover;
mod pre_vote;
mod proposals_are_bounded;
mod purge;
mod quorum_repair;
mod regions;
mod restored_directory;
mod returning;
mod roster;
mod rules_in_the_log;
mod search_across_a_distance;
mod search_answers;
mod silent_leader;
mod slow_disks;
mod slow_writer;
mod split_votes;
mod timers;
mod transfer_to_a_database_member;
mod transfers;

//! Rings of three members over loopback gRPC, with logs in memory.

#![allow(clippy::unwrap_used, reason = "these are tests, their helpers too")]

#[path = "../support/mod.rs"]
mod support;

mod another_address;
mod bootstrap;
mod campaign_on_request;
mod commands;
mod commits_and_restarts;
mod damaged_on_the_way;
mod entry_in_pieces;
mod far_away;
mod flooded;
mod frozen_connection;
mod greetings;
mod hung_up;
mod memberships_of_another_version;
mod names;
mod one_way_partition;
mod proxy_sessions;
mod proxying;
mod replication_window;
mod reports;
mod stalled_entries;
mod strangers;
mod tls;
mod unreachable_member;

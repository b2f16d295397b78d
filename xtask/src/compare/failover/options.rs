//! What the comparison is told, and what its parts need of that.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// With a mysqld beside every database member and clients that look for the primary, in place of a writer
    #[arg(long)]
    pub(super) mysql: bool,
    /// How many times the leader is killed, for each timer setting
    #[arg(long, default_value_t = 50)]
    pub(super) crashes: u32,
    /// How many times the primary of a Group Replication of three is killed, for each of two settings, with --mysql
    #[arg(long, default_value_t = 10)]
    pub(super) group_kills: u32,
    /// How many times another member is promoted, for each timer setting
    #[arg(long, default_value_t = 50)]
    pub(super) promotions: u32,
    /// Heartbeats to measure with, in milliseconds; the lease follows from each as by default
    #[arg(long, value_delimiter = ',', default_values_t = [500, 100])]
    pub(super) timers: Vec<u64>,
    /// One way, between two members of a region, in milliseconds
    #[arg(long, default_value_t = 0.1)]
    pub(super) inside_ms: f64,
    /// One way, between two regions, in milliseconds
    #[arg(long, default_value_t = 30.0)]
    pub(super) across_ms: f64,
    /// How many transactions a second the database commits
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    pub(super) commits_per_second: u32,
}

impl Options {
    pub(super) fn inside(&self) -> Duration {
        Duration::from_secs_f64(self.inside_ms / 1e3)
    }

    pub(super) fn across(&self) -> Duration {
        Duration::from_secs_f64(self.across_ms / 1e3)
    }
}

/// The programs of the ring.
pub(super) struct Programs {
    pub(super) witness: PathBuf,
    /// Of a database member with a writer, or of the clients.
    pub(super) database: PathBuf,
}

/// Fails once Ctrl-C was pressed.
pub(super) fn ensure_goes_on(stop: &AtomicBool) -> Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

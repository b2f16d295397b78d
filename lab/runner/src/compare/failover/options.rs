//! The options of the comparison.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Args)]
pub(crate) struct Options {
    /// With a mysqld next to every database member and clients that look for the primary, in place of a writer
    #[arg(long)]
    pub(super) mysql: bool,
    /// Regions of the primaries: all members in one region, or in three
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Place::Across, Place::Inside])]
    pub(super) places: Vec<Place>,
    /// How leaders die
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Death::ProcessKilled, Death::HostVanished])]
    pub(super) deaths: Vec<Death>,
    /// How many members the ring has, three of them with a database
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(5..=60))]
    pub(super) members: u32,
    /// Which part of the packets between two members is lost, each way, in percent
    #[arg(long, default_value_t = 0.0)]
    pub(super) loss_percent: f64,
    /// At the end, keep every processor busy for so many minutes; no leader may be elected in that time
    #[arg(long, default_value_t = 0)]
    pub(super) soak_minutes: u32,
    /// How many times the leader dies, for each death, timer setting and place
    #[arg(long, default_value_t = 50)]
    pub(super) crashes: u32,
    /// How many times the primary of a Group Replication of three is killed, for each of two settings, with --mysql
    #[arg(long, default_value_t = 10)]
    pub(super) group_kills: u32,
    /// How many times another member is promoted, for each timer setting and place
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

/// Where the members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// In three regions, each with a database member.
    Across,
    /// In one region, which has the three database members.
    Inside,
}

/// How a leader dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Death {
    /// SIGKILL; its host continues, closes its connections and refuses new ones.
    ProcessKilled,
    /// No packet leaves its host any longer.
    HostVanished,
}

impl Options {
    pub(super) fn inside(&self) -> Duration {
        Duration::from_secs_f64(self.inside_ms / 1e3)
    }

    pub(super) fn across(&self) -> Duration {
        Duration::from_secs_f64(self.across_ms / 1e3)
    }
}

/// The programs that the ring runs.
pub(super) struct Programs {
    pub(super) witness: PathBuf,
    /// The program of a database member with a writer, or of the clients.
    pub(super) database: PathBuf,
}

/// Returns an error after the user has pressed Ctrl-C.
pub(super) fn ensure_writes_continue(stop: &AtomicBool) -> Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

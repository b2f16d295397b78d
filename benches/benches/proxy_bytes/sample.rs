//! One load on one ring: what it cost the links, and how long commits and their ways took. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use raft_types::MemberId;
use testkit::statistics::Percentiles;

use super::links::{Count, Counts, Heading, Lane, LinkId};
use super::load::{Commit, Load};
use super::topology::{LEADER, Topology};
use super::variant::Variant;

const NOTHING: &str = "nothing was committed";

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) variant: Variant,
    pub(crate) load: Load,
    pub(crate) entry_bytes: usize,
    pub(crate) commits_per_s: f64,
    pub(crate) commit_ms: Percentiles,
    pub(crate) lag_ms: Percentiles,
    /// A call that says nothing, and its answer, inside the leader's region.
    pub(crate) call_ms: Percentiles,
    /// Between the leader and one member that is behind a proxy, or would be.
    pub(crate) destination: PerCommit,
    /// Of that, what was said to its proxy.
    pub(crate) said_to_proxy: PerCommit,
    /// And what its proxy said.
    pub(crate) said_by_proxy: PerCommit,
    /// Between the leader and all members of another region.
    pub(crate) region: PerCommit,
    /// How often the leader left a proxy.
    pub(crate) fallbacks: u64,
}

/// What was seen, before it is reckoned with.
pub(crate) struct Seen {
    pub(crate) commits: Vec<Commit>,
    pub(crate) lags_ms: Vec<f64>,
    pub(crate) calls_inside: Vec<Duration>,
    /// Of the load alone.
    pub(crate) time: Duration,
    /// Who is behind a proxy, or would be.
    pub(crate) destinations: BTreeSet<MemberId>,
    /// Over the links, until everything was everywhere.
    pub(crate) counts: Counts,
    pub(crate) fallbacks: u64,
}

impl Sample {
    pub(crate) fn of(
        (variant, load, entry_bytes): (Variant, Load, usize),
        topology: &Topology,
        seen: Seen,
    ) -> Result<Self> {
        let commits = seen.commits.len() as f64;
        let took = |commit: &Commit| commit.answered.saturating_duration_since(commit.asked);
        let average = |count: Count, over: usize| PerCommit::new(count, commits * over as f64);
        let remote: Vec<_> = topology.remote().map(|(id, _)| id).collect();
        let from_leader = |link: &LinkId| link.from == LEADER;
        // What is said to a proxy for others is theirs; heartbeats go to each of them anyway.
        let to_destinations = seen.counts.over(|link| {
            let theirs = link.lane == Lane::Proxied || seen.destinations.contains(&link.to);
            from_leader(link) && theirs
        });
        let sessions = |heading: Heading| {
            let wanted = |link: &LinkId| link.lane == Lane::Proxied && link.heading == heading;
            seen.counts.over(|link| from_leader(link) && wanted(link))
        };
        let to_regions = seen
            .counts
            .over(|link| from_leader(link) && remote.contains(&link.to));
        Ok(Self {
            variant,
            load,
            entry_bytes,
            commits_per_s: commits / seen.time.as_secs_f64(),
            commit_ms: Percentiles::of_ms(seen.commits.iter().map(took)).context(NOTHING)?,
            lag_ms: Percentiles::of(seen.lags_ms).context(NOTHING)?,
            call_ms: Percentiles::of_ms(seen.calls_inside).context(NOTHING)?,
            destination: average(to_destinations, seen.destinations.len()),
            said_to_proxy: average(sessions(Heading::There), seen.destinations.len()),
            said_by_proxy: average(sessions(Heading::Back), seen.destinations.len()),
            region: average(to_regions, topology.remote_regions()),
            fallbacks: seen.fallbacks,
        })
    }
}

/// What a commit costs a link, in both directions and over all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerCommit {
    pub(crate) bytes: f64,
    pub(crate) bytes_with_headers: f64,
    pub(crate) messages: f64,
}

impl PerCommit {
    fn new(count: Count, by: f64) -> Self {
        Self {
            bytes: count.bytes as f64 / by,
            bytes_with_headers: count.bytes_with_headers() as f64 / by,
            messages: count.messages as f64 / by,
        }
    }
}

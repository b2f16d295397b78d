//! The clients.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use consensus::{Outcome, Term};
use raft_types::{AppEntry, MemberId, TransactionPayload};
use ring_admin::Member;
use serde::Serialize;
use testkit::statistics::Percentiles;
use tokio::task::JoinSet;

use crate::delay_timer::DelayTimer;
use crate::links::{Count, Counts, Heading, Lane, LinkId};
use crate::topology::{LEADER, Topology};
use crate::variant::Variant;

/// The most payload bytes per second of the even load. With more, Raft without proxies to nineteen members in one process
/// would measure the processor.
const PACED_BYTES_PER_S: usize = 4 << 20;
/// The most payload bytes in flight. With more, the bench would measure its own buffers.
const CLIENTS_BYTES: usize = 4 << 20;
/// The most payload bytes in a round, since each of the twenty members keeps all of them in memory. On a faster machine a
/// busy round ends earlier.
const ROUND_BYTES: usize = 200 << 20;

/// How commits arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// One client that commits one entry after another at an even rate: 200 per second, or fewer if they are large.
    Low,
    /// As many clients as the entries' size allows, at most 64. Each waits for its answer before it sends the next request.
    Busy,
}

impl Load {
    pub(crate) const BOTH: [Self; 2] = [Self::Low, Self::Busy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Busy => "busy",
        }
    }

    /// Describes the load for entries of a size.
    pub(crate) fn words(self, entry_bytes: usize) -> String {
        match self {
            Self::Low => format!("{} a second", pace(entry_bytes)),
            Self::Busy => format!("{} clients", clients(entry_bytes)),
        }
    }
}

fn pace(entry_bytes: usize) -> u32 {
    (PACED_BYTES_PER_S / entry_bytes).clamp(1, 200) as u32
}

fn clients(entry_bytes: usize) -> u32 {
    (CLIENTS_BYTES / entry_bytes).clamp(1, 64) as u32
}

/// A commit as observed by its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) index: u64,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

/// A client and the payload of its entries.
#[derive(Clone)]
pub(crate) struct Client {
    member: Member,
    term: Term,
    /// Random bytes, so that compression does not shorten them.
    payload: Bytes,
}

impl Client {
    pub(crate) fn new(member: Member, term: Term, entry_bytes: usize) -> Self {
        let mut payload = vec![0; entry_bytes];
        fastrand::Rng::with_seed(entry_bytes as u64).fill(&mut payload);
        Self {
            member,
            term,
            payload: payload.into(),
        }
    }

    async fn commit(&self) -> Result<Commit> {
        let payload = TransactionPayload::seal(self.payload.clone());
        let asked = Instant::now();
        let proposed = self
            .member
            .propose(AppEntry::Transaction(payload), self.term);
        match proposed.await?.outcome().await {
            Outcome::Committed(op_id) => Ok(Commit {
                index: op_id.index,
                asked,
                answered: Instant::now(),
            }),
            other => bail!("the leadership changed in the middle of the bench: {other:?}"),
        }
    }

    /// Applies a load to the leader for `time`.
    pub(crate) async fn load(
        &self,
        load: Load,
        delay_timer: &DelayTimer,
        time: Duration,
    ) -> Result<Vec<Commit>> {
        match load {
            Load::Low => self.paced(delay_timer, time).await,
            Load::Busy => self.closed(time).await,
        }
    }

    async fn paced(&self, delay_timer: &DelayTimer, time: Duration) -> Result<Vec<Commit>> {
        let pace = pace(self.payload.len());
        let interval = Duration::from_secs(1) / pace;
        let mut commits = Vec::new();
        let begun = Instant::now();
        for number in 0..(time.as_secs_f64() * f64::from(pace)) as u32 {
            delay_timer.wait_until(begun + interval * number).await;
            commits.push(self.commit().await?);
        }
        Ok(commits)
    }

    async fn closed(&self, time: Duration) -> Result<Vec<Commit>> {
        let begun = Instant::now();
        let mut working = JoinSet::new();
        let clients = clients(self.payload.len());
        let most = ROUND_BYTES / self.payload.len() / clients as usize;
        for _ in 0..clients {
            let client = self.clone();
            working.spawn(async move {
                let mut commits = Vec::new();
                while begun.elapsed() < time && commits.len() < most {
                    commits.push(client.commit().await?);
                }
                anyhow::Ok(commits)
            });
        }
        let mut commits = Vec::new();
        while let Some(done) = working.join_next().await {
            commits.extend(done.context("a client panicked")??);
        }
        Ok(commits)
    }
}

// The result of one load on one ring: traffic over links, commit latencies and delays. Pure.

const NOTHING: &str = "nothing was committed";

/// The result of one load on one ring.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) variant: Variant,
    pub(crate) load: Load,
    pub(crate) entry_bytes: usize,
    pub(crate) commits_per_s: f64,
    pub(crate) commit_ms: Percentiles,
    pub(crate) lag_ms: Percentiles,
    /// An empty call and its answer, within the leader's region.
    pub(crate) call_ms: Percentiles,
    /// The traffic between the leader and one member that receives entries through a proxy, or would if proxying were on.
    pub(crate) destination: PerCommit,
    /// The part of `destination` that is sent to its proxy.
    pub(crate) said_to_proxy: PerCommit,
    /// The part of `destination` that is received from its proxy.
    pub(crate) said_by_proxy: PerCommit,
    /// The traffic between the leader and all members of another region.
    pub(crate) region: PerCommit,
    /// How often the leader fell back from a proxy.
    pub(crate) fallbacks: u64,
}

/// What was observed during one load.
pub(crate) struct Seen {
    pub(crate) commits: Vec<Commit>,
    pub(crate) lags_ms: Vec<f64>,
    pub(crate) calls_inside: Vec<Duration>,
    /// The duration of the load.
    pub(crate) time: Duration,
    /// The members that receive entries through a proxy, or would if proxying were on.
    pub(crate) destinations: BTreeSet<MemberId>,
    /// The traffic over the links, until all members have all entries.
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
        // Messages to a proxy for other members count as traffic of those members. Heartbeats are sent to each of them
        // directly.
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

/// What a commit costs on a link, in both directions and over all connections.
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

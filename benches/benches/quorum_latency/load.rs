//! The clients: some that commit one transaction after another, or many that commit at a given rate, whether or not earlier commits
//! are answered.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use raft_types::{AppEntry, TransactionPayload};
use serde::Serialize;
use testkit::log_entries;
use testkit::statistics::Percentiles;
use tokio::task::JoinSet;

use super::delay_timer::DelayTimer;
use super::ring::Leader;

/// Bytes of text in a transaction's row.
pub(crate) const TEXT_BYTES: usize = 500;

/// The random seed: commits begin at the same times in every round and for every setup.
const SEED: u64 = 7;

/// How commits arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    /// This many commits per second, whether or not earlier ones are answered. Each begins at a random time of its interval. At an
    /// exactly even rate and some distances, distant members' work for one commit would always coincide with a later commit.
    Paced(u32),
    /// This many clients. Each waits for its answer before it sends the next request.
    Clients(u32),
}

impl Load {
    pub(crate) const ALL: [Self; 3] = [Self::Paced(250), Self::Clients(1), Self::Clients(64)];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Paced(rate) => format!("paced_{rate}_per_s"),
            Self::Clients(1) => "1_client".to_owned(),
            Self::Clients(count) => format!("{count}_clients"),
        }
    }
}

/// The result of one load.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) latency_ms: Percentiles,
    elapsed: Duration,
}

impl Sample {
    fn new(latencies_ms: Vec<f64>, elapsed: Duration) -> Result<Self> {
        Ok(Self {
            latency_ms: Percentiles::of(latencies_ms).context("nothing was committed")?,
            elapsed,
        })
    }

    pub(crate) fn commits_per_s(&self) -> f64 {
        self.latency_ms.samples as f64 / self.elapsed.as_secs_f64()
    }
}

/// Applies a load to the leader for `time`.
pub(crate) async fn measure(
    load: Load,
    leader: &Leader,
    delay_timer: &DelayTimer,
    time: Duration,
) -> Result<Sample> {
    match load {
        Load::Paced(rate) => paced(rate, leader, delay_timer, time).await,
        Load::Clients(clients) => closed(clients, leader, time).await,
    }
}

fn entry(number: u64) -> AppEntry {
    let events = log_entries::transaction_events(number, TEXT_BYTES);
    AppEntry::Transaction(TransactionPayload::seal(events))
}

async fn paced(
    rate: u32,
    leader: &Leader,
    delay_timer: &DelayTimer,
    time: Duration,
) -> Result<Sample> {
    let interval = Duration::from_secs(1) / rate;
    let mut commits = JoinSet::new();
    let mut chance = fastrand::Rng::with_seed(SEED);
    let begun = Instant::now();
    let commits_in_time = (time.as_secs_f64() * f64::from(rate)) as u32;
    for number in 0..commits_in_time {
        // The entry is created in advance, so that its creation is not measured.
        let entry = entry(u64::from(number));
        let due = begun + interval * number + interval.mul_f64(chance.f64());
        delay_timer.wait_until(due).await;
        let leader = leader.clone();
        commits.spawn(async move {
            let asked = Instant::now();
            leader.commit(entry).await?;
            anyhow::Ok(milliseconds(asked))
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = commits.join_next().await {
        latencies.push(done.context("a client panicked")??);
    }
    Sample::new(latencies, begun.elapsed())
}

async fn closed(clients: u32, leader: &Leader, time: Duration) -> Result<Sample> {
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for client in 0..clients {
        let leader = leader.clone();
        working.spawn(async move {
            let mut latencies = Vec::new();
            let mut number = u64::from(client);
            while begun.elapsed() < time {
                let entry = entry(number);
                let asked = Instant::now();
                leader.commit(entry).await?;
                latencies.push(milliseconds(asked));
                number += u64::from(clients);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = working.join_next().await {
        latencies.extend(done.context("a client panicked")??);
    }
    Sample::new(latencies, begun.elapsed())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

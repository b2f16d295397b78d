//! Measures what a proxy saves and costs, by entry size: bytes and messages over each link per commit, commit latency, and the lag of
//! distant witnesses, with and without proxies.
//!
//! The topology is that of the paper on Raft at Meta: a primary with two witnesses, five followers with two witnesses each, two learners,
//! and six regions. The time of one hop is measured on a ring of two regions. Members and their gRPC are real and in one process; logs are
//! in memory. Between every two members a forwarder counts TCP payload, including HTTP/2 and heartbeats, and adds a one-way delay: 30 ms
//! between regions, 0.1 ms within a region. Entries are random, so that compression does not shrink them. Rounds are interleaved.
//!
//! `cargo bench --bench proxy_bytes` prints the tables and writes `target/figures/proxy_bytes.json`. With `-- --quick` the bench is short
//! and writes nothing.

#[allow(
    dead_code,
    reason = "shared with another bench, which needs more of it"
)]
#[path = "../quorum_latency/delay_timer.rs"]
mod delay_timer;
mod links;
mod load;
#[allow(
    clippy::unwrap_used,
    dead_code,
    reason = "shared with the tests, which need more of it"
)]
#[path = "../../../crates/ring-admin/tests/support/memory_log.rs"]
mod memory_log;
mod report;
mod ring;
mod topology;
mod variant;

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::figures::Figures;

use delay_timer::DelayTimer;
use load::{Client, Load, Sample, Seen};
use report::{HopReport, Report};
use ring::{Arrivals, Ring};
use topology::{ACROSS, INSIDE, Layout};
use variant::Variant;

/// The extent of the measurements.
struct Plan {
    rounds: usize,
    sizes: Vec<usize>,
    /// How long each load is measured.
    time: Duration,
    /// How long each load runs before it is measured.
    warm_up: Duration,
}

impl Plan {
    fn whole() -> Self {
        Self {
            rounds: 3,
            sizes: vec![100, 500, 5_000, 50_000, 1_000_000],
            time: Duration::from_secs(4),
            warm_up: Duration::from_secs(1),
        }
    }

    fn quick() -> Self {
        Self {
            rounds: 1,
            sizes: vec![500],
            time: Duration::from_secs(1),
            warm_up: Duration::from_millis(300),
        }
    }
}

/// How long traffic continues after the last entry has arrived: the answer, the new commit index, and the answer to that.
const LAST_WORDS: Duration = ACROSS.saturating_mul(4);

async fn settle(ring: &Ring) -> Result<()> {
    ring.all_have_all().await?;
    tokio::time::sleep(LAST_WORDS).await;
    Ok(())
}

/// The number of empty calls inside a region, measured without other traffic.
const CALLS_INSIDE: usize = 100;

async fn calls_inside(ring: &Ring) -> Result<Vec<Duration>> {
    let mut calls = Vec::new();
    for _ in 0..CALLS_INSIDE {
        calls.push(ring.call_inside().await?);
    }
    Ok(calls)
}

async fn measure(
    (layout, loads): (Layout, &[Load]),
    variant: Variant,
    entry_bytes: usize,
    plan: &Plan,
    delay_timer: &DelayTimer,
) -> Result<Vec<Sample>> {
    let ring = Ring::make(layout, variant, delay_timer).await?;
    let term = ring.serving().await?;
    let client = Client::new(ring.leader().clone(), term, entry_bytes);
    let mut samples = Vec::new();
    for &load in loads {
        client.load(load, delay_timer, plan.warm_up).await?;
        settle(&ring).await?;
        let destinations = match variant {
            Variant::Vanilla => ring.topology.behind_followers().collect(),
            Variant::Proxied => ring.through_proxies().await?,
        };
        let arrivals = Arrivals::watch(&ring, ring.topology.remote_witnesses());
        let (counts, fallbacks) = (ring.counts(), ring.fallbacks());
        let begun = Instant::now();
        let commits = client.load(load, delay_timer, plan.time).await?;
        let time = begun.elapsed();
        settle(&ring).await?;
        let seen = Seen {
            lags_ms: arrivals.lags_ms(&commits),
            calls_inside: calls_inside(&ring).await?,
            commits,
            time,
            destinations,
            counts: ring.counts().since(&counts),
            fallbacks: ring.fallbacks() - fallbacks,
        };
        let what = (variant, load, entry_bytes);
        samples.push(Sample::of(what, &ring.topology, seen)?);
    }
    drop(client);
    ring.end().await;
    Ok(samples)
}

/// Measures the traffic over links in the paper's ring, and the time of a hop in the ring of two regions.
async fn run(plan: &Plan) -> Result<(Report, HopReport)> {
    let delay_timer = DelayTimer::start();
    let (mut samples, mut hops) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        for &size in &plan.sizes {
            let mut variants = Variant::BOTH;
            // The order of the variants changes from round to round.
            variants.rotate_left(round % Variant::BOTH.len());
            for variant in variants {
                let name = variant.name();
                eprintln!("round {} of {}: {size} B, {name}", round + 1, plan.rounds);
                let whole = (Layout::Paper, &Load::BOTH[..]);
                samples.extend(measure(whole, variant, size, plan, &delay_timer).await?);
                let small = (Layout::TwoRegions, &[Load::Low][..]);
                hops.extend(measure(small, variant, size, plan, &delay_timer).await?);
            }
        }
    }
    let report = Report::of(&samples, &plan.sizes)?;
    Ok((report, HopReport::of(&hops, &plan.sizes)?))
}

fn main() -> Result<()> {
    // `cargo test` runs benches with `--test`, to check that they work. The figures are then not usable.
    let short = ["--test", "--quick"];
    let quick = std::env::args().any(|argument| short.contains(&argument.as_str()));
    let plan = if quick { Plan::quick() } else { Plan::whole() };
    let mut figures = Figures::new("proxy_bytes", "cargo bench --bench proxy_bytes")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (report, hops) = runtime.block_on(run(&plan))?;
    print!("{}\n{}", report.tables(), hops.table());
    if quick {
        return Ok(());
    }
    figures.set("rounds", plan.rounds)?;
    figures.set("time_of_a_load_ms", plan.time.as_millis() as u64)?;
    figures.set("one_way_across_regions_ms", ACROSS.as_secs_f64() * 1e3)?;
    figures.set("one_way_inside_a_region_ms", INSIDE.as_secs_f64() * 1e3)?;
    report.put_into(&mut figures)?;
    hops.put_into(&mut figures)?;
    println!("figures: {}", figures.write()?.display());
    Ok(())
}

//! Commit latency by quorum policy and distance. Each policy has nine members in three regions, with a database member and two witnesses in
//! each region. For comparison, the bench measures the leader's region alone, unmodified openraft, and the physical limit: the round trip
//! plus one durable write, from the same run.
//!
//! Members, logs and fsyncs are real and in one process; the network between the members delays messages. Rounds are interleaved. `cargo
//! bench --bench quorum_latency` prints a table, writes `target/figures/quorum_latency.json`, and draws `docs/img/quorum_latency.svg`. With
//! `-- --quick` the bench is short and writes nothing.

mod delay_timer;
mod distances;
mod durable_write;
mod load;
mod network;
mod plain;
mod receiver;
mod report;
mod ring;
mod setup;

use std::fs;
use std::time::Duration;

use anyhow::Result;
use testkit::figures::Figures;

use crate::delay_timer::DelayTimer;
use crate::distances::Distances;
use crate::load::{Load, measure};
use crate::report::{Measured, Report};
use crate::ring::Ring;
use crate::setup::Setup;

const INSIDE_ONE_WAY_MS: [f64; 2] = [0.1, 1.0];
const ACROSS_ONE_WAY_MS: [f64; 3] = [10.0, 30.0, 100.0];

/// The extent of the measurements.
struct Plan {
    rounds: usize,
    distances: Vec<Distances>,
    /// How long each load is measured.
    time: Duration,
    /// How long each load runs before it is measured.
    warm_up: Duration,
}

impl Plan {
    fn whole() -> Self {
        let inside = INSIDE_ONE_WAY_MS.into_iter();
        let distances = inside.flat_map(|inside_one_way_ms| {
            ACROSS_ONE_WAY_MS.map(|across_one_way_ms| Distances {
                inside_one_way_ms,
                across_one_way_ms,
            })
        });
        Self {
            rounds: 3,
            distances: distances.collect(),
            time: Duration::from_secs(1),
            warm_up: Duration::from_millis(300),
        }
    }

    fn quick() -> Self {
        Self {
            rounds: 1,
            distances: vec![Distances {
                inside_one_way_ms: 0.1,
                across_one_way_ms: 10.0,
            }],
            time: Duration::from_millis(250),
            warm_up: Duration::from_millis(50),
        }
    }
}

async fn measure_setup(
    setup: Setup,
    distances: Distances,
    plan: &Plan,
    delay_timer: &DelayTimer,
) -> Result<Vec<Measured>> {
    let durable_write_ms = durable_write::median_ms()?;
    let ring = Ring::make(setup, distances, delay_timer).await?;
    let leader = ring.leader();
    let mut measured = Vec::new();
    for load in Load::ALL {
        measure(load, &leader, delay_timer, plan.warm_up).await?;
        let sample = measure(load, &leader, delay_timer, plan.time).await?;
        measured.push(Measured {
            setup,
            distances,
            load,
            sample,
            durable_write_ms,
        });
    }
    drop(leader);
    ring.end().await?;
    Ok(measured)
}

async fn run(plan: &Plan) -> Result<Report> {
    let delay_timer = DelayTimer::start();
    let mut measured = Vec::new();
    for round in 0..plan.rounds {
        for &distances in &plan.distances {
            eprintln!(
                "round {} of {}: {}",
                round + 1,
                plan.rounds,
                distances.key()
            );
            let mut setups = Setup::ALL;
            // The order of the setups changes from round to round.
            setups.rotate_left(round % Setup::ALL.len());
            for setup in setups {
                measured.extend(measure_setup(setup, distances, plan, &delay_timer).await?);
            }
        }
    }
    Report::of(&measured)
}

fn main() -> Result<()> {
    // `cargo test` runs benches with `--test`, to check that they work. The figures are then not usable.
    let short = ["--test", "--quick"];
    let quick = std::env::args().any(|argument| short.contains(&argument.as_str()));
    let plan = if quick { Plan::quick() } else { Plan::whole() };
    let mut figures = Figures::new("quorum_latency", "cargo bench --bench quorum_latency")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let report = runtime.block_on(run(&plan))?;
    print!("{}", report.table());
    if quick {
        return Ok(());
    }
    figures.set("rounds", plan.rounds)?;
    figures.set("time_of_a_load_ms", plan.time.as_millis() as u64)?;
    report.put_into(&mut figures)?;
    println!("figures: {}", figures.write()?.display());
    let folder = testkit::checkout().join("docs/img");
    fs::create_dir_all(&folder)?;
    let picture = folder.join("quorum_latency.svg");
    fs::write(&picture, report::draw(&report)?)?;
    println!("picture: {}", picture.display());
    Ok(())
}

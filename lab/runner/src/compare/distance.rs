//! `cargo lab compare distance`: measures how fast a restarted member catches up with a leader in another region. The link has a high
//! latency and may lose packets.
//!
//! The ring has two members: a leader without a mysqld, and a witness in another region. Only the leader's region is the quorum. The
//! witness is killed, the leader writes, and the witness is started again. Compression is off, so that the bytes of the log equal the bytes
//! on the link. The time runs from the first new byte of the witness's log to the last.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::process::Signal;
use serde::Serialize;
use serde_json::json;
use testkit::cluster::{
    Cluster, ClusterOptions, MemberDatabase, MemberOptions, Profile, embedded_member,
};
use testkit::distance::{Place, check_needs};
use testkit::wait::try_eventually;

use crate::compare::{begin, finish, set_all, spread};

const FIGURES: &str = "distance";
const LEADER: usize = 0;
const FAR: usize = 1;
/// Approximate size of one transaction, in bytes.
const TRANSACTION: u16 = 60_000;
const PER_SECOND: u32 = 600;
const READY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct Options {
    /// What the far member lacks, in MiB
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    mib: u64,
    /// There and back, in milliseconds
    #[arg(long, default_value_t = 300)]
    round_trip_ms: u64,
    /// How many of a hundred packets between the regions are lost
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 1.0])]
    loss_percent: Vec<f64>,
    /// Congestion controls that take turns: `regions.congestion_control` of the members
    #[arg(long, value_delimiter = ',', default_values_t = ["bbr".to_owned(), "system".to_owned()])]
    congestion_control: Vec<String>,
    /// Rounds; every round catches up once with each loss and each congestion control
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long it may take; what has arrived by then counts
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// The result of one catch-up.
#[derive(Clone, Debug, Serialize)]
struct CaughtUp {
    loss_percent: f64,
    congestion_control: String,
    mib: f64,
    seconds: f64,
    /// True if the whole log arrived within the time limit.
    complete: bool,
    /// Number of new terms during the catch-up.
    elections: u64,
}

impl CaughtUp {
    fn mb_per_s(&self) -> f64 {
        self.mib * f64::from(1 << 20) / 1e6 / self.seconds
    }
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    check_needs()?;
    let (witness, mut figures) = begin(FIGURES)?;
    let member = embedded_member(Profile::Dist)?;
    let mut all = Vec::new();
    let turns = || {
        let losses = options.loss_percent.iter();
        losses.flat_map(|loss| {
            let ways = options.congestion_control.iter();
            ways.map(move |way| (*loss, way))
        })
    };
    for _ in 0..options.rounds {
        for (loss, way) in turns() {
            let one = catch_up(options, loss, way, &witness, &member)?;
            eprintln!(
                "loss {loss} %, {way}: {:.0} MiB in {:.1} s, {:.1} MB/s",
                one.mib,
                one.seconds,
                one.mb_per_s()
            );
            all.push(one);
        }
    }
    let mut by_control = json!({});
    println!(
        "{:>7} {:<10} {:>8} {:>16} {:>10}",
        "loss %", "control", "MB/s", "[min max]", "elections"
    );
    for (loss, way) in turns() {
        let is = |one: &&CaughtUp| {
            one.loss_percent.total_cmp(&loss).is_eq() && one.congestion_control == *way
        };
        let of: Vec<&CaughtUp> = all.iter().filter(is).collect();
        let rates = spread(of.iter().map(|one| one.mb_per_s())).context("no rounds")?;
        let elections: u64 = of.iter().map(|one| one.elections).sum();
        println!(
            "{loss:>7} {way:<10} {:>8.1} {:>16} {elections:>10}",
            rates.median,
            format!("[{:.1} {:.1}]", rates.min, rates.max)
        );
        by_control[way][loss.to_string()] = serde_json::to_value(rates)?;
    }
    let first = options.congestion_control.first();
    let entries = json!({
        "round_trip_ms": options.round_trip_ms, "mb_per_s": first.map(|way| &by_control[way]),
        "mb_per_s_by_control": by_control, "rounds": all,
    });
    set_all(&mut figures, &entries)?;
    finish(&figures)
}

fn catch_up(
    options: &Options,
    loss_percent: f64,
    congestion_control: &str,
    witness: &Path,
    member: &Path,
) -> Result<CaughtUp> {
    let mut ring = ring(options, congestion_control, witness, member)?;
    let accounts = tempfile::tempdir()?;
    let account = accounts.path().join("acknowledged").display().to_string();
    let (rate, bytes) = (PER_SECOND.to_string(), TRANSACTION.to_string());
    let writer = [
        "--acknowledged",
        &account,
        "--commits-per-second",
        &rate,
        "--text-bytes",
        &bytes,
    ];
    for index in (0..ring.size()).rev() {
        match index {
            LEADER => ring.start_with(index, &[&writer[..], &["--bootstrap"]].concat())?,
            _ => ring.start(index)?,
        }
    }
    let begun = || Ok(log_bytes(&ring, FAR)? > 0);
    try_eventually("the far member has the log's beginning", READY, begun)?;
    ring.kill(FAR)?;
    let (had, wanted) = (log_bytes(&ring, FAR)?, options.mib << 20);
    let limit = Duration::from_secs(options.mib).max(READY);
    let written = || Ok(log_bytes(&ring, LEADER)? > had + wanted);
    try_eventually("the leader has written", limit, written)?;
    ring.signal(LEADER, Signal::USR1)?;
    thread::sleep(Duration::from_secs(1));
    let (whole, term) = (log_bytes(&ring, LEADER)?, ring.term(LEADER)?);
    ring.links(|links| {
        let (near, far) = (Place::member(LEADER), Place::member(FAR));
        links.set_loss(near, far, loss_percent / 100.0);
        links.set_loss(far, near, loss_percent / 100.0);
    });
    ring.start(FAR)?;
    // Before the far member appends, it may truncate entries that the leader lacks.
    let grows = || Ok(log_bytes(&ring, FAR)? > had);
    try_eventually("the far log grows", READY, grows)?;
    let began = Instant::now();
    let limit = Duration::from_secs(options.seconds);
    let mut has = had;
    while has < whole && began.elapsed() < limit {
        thread::sleep(LOOK);
        has = log_bytes(&ring, FAR)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let mib = (has - had) as f64 / f64::from(1 << 20);
    ensure!(mib > 0.0, "nothing arrived");
    Ok(CaughtUp {
        loss_percent,
        congestion_control: congestion_control.to_owned(),
        mib,
        seconds,
        complete: has >= whole,
        elections: ring.term(LEADER)? - term,
    })
}

fn ring(
    options: &Options,
    congestion_control: &str,
    witness: &Path,
    member: &Path,
) -> Result<Cluster> {
    let program = member.to_owned();
    let members = vec![
        MemberOptions::new("leader", "near", MemberDatabase::Embedded { program }),
        MemberOptions::new("far", "far", MemberDatabase::Nothing),
    ];
    let one_way = Duration::from_millis(options.round_trip_ms) / 2;
    let cluster = ClusterOptions {
        distance: Some((Duration::ZERO, one_way)),
        ..ClusterOptions::of(members)
            .with("log", "disk_reserve_bytes = 0")
            .with("regions", "compression_level = 0")
            .with(
                "regions",
                format!("congestion_control = {congestion_control:?}"),
            )
    };
    Cluster::prepare(witness, cluster)
}

/// Returns the total size of a member's log files; 0 if the member has no log yet.
fn log_bytes(ring: &Cluster, index: usize) -> Result<u64> {
    let Ok(entries) = fs::read_dir(ring.directory(index).join("log")) else {
        return Ok(0);
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("binlog.") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

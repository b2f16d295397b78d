//! `cargo lab compare large-transaction`: measures how long one large transaction delays small commits, and the members' peak memory. It
//! compares the ring with stock semi-sync replicas that do not apply.
//!
//! The primary updates a number in many long rows; the binlog contains each row twice. At the same time a client commits small rows one
//! after another, each with the time when its INSERT began. The longest difference of two consecutive times is the delay of a commit. MySQL
//! itself makes commits wait for the large transaction, because of the binlog's order. The acknowledgement of the large transaction
//! determines how long.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use testkit::figures::{Figures, load_average, private_memory};
use testkit::mysql_tree::MysqlTree;

use crate::compare::servers::Template;
use crate::compare::setup::{Bed, Setup};
use crate::compare::{begin, finish, rounds, set_all, spread, work_folder};

const FIGURES: &str = "large-transaction";
/// Characters of each row.
const ROW: u64 = 8000;
/// Number of rows that one statement inserts before the measurement, so that the inserts are not large transactions themselves.
const ROWS_AT_ONCE: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct Options {
    /// Binlog of the large transaction, in MiB
    #[arg(long, default_value_t = 960, value_parser = clap::value_parser!(u64).range(1..1020))]
    mib: u64,
    /// Rounds; every round measures every setup once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Setups to measure
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Setup::LeanSemiSync, Setup::SyncedSemiSync, Setup::RingFsync, Setup::RingApplies])]
    setups: Vec<Setup>,
    /// Folder on the disk to measure (default: the build's target folder)
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// The result of one large transaction.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    setup: Setup,
    /// Time from the statement to its answer.
    seconds: f64,
    /// The longest time from the begin of one small commit to the begin of the next.
    held_up_seconds: f64,
    /// The peak private memory of each member, in MiB. The primary's member is first.
    members_mib: Vec<u64>,
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    let tree = MysqlTree::locate()?;
    let (witness, mut figures) = begin(FIGURES)?;
    let work = work_folder(options.folder.as_deref())?;
    let data = Template::with_tables(&tree, work.path(), 1, 1)?;
    let mut samples = Vec::new();
    for order in rounds(&options.setups, options.rounds as usize) {
        for setup in order {
            let home = work.path().join(format!("bed-{}", samples.len()));
            let bed = Bed::make(setup, &data, &home, &witness)?;
            let sample = measure(options, setup, &bed)
                .with_context(|| format!("while measuring {}", setup.key()))?;
            drop(bed);
            std::fs::remove_dir_all(&home)?;
            eprintln!(
                "compare: {}: {:.1} s, small commits held up for {:.1} s, members {:?} MiB",
                setup.key(),
                sample.seconds,
                sample.held_up_seconds,
                sample.members_mib
            );
            samples.push(sample);
        }
    }
    report(options, &samples, &mut figures)?;
    finish(&figures)
}

fn measure(options: &Options, setup: Setup, bed: &Bed) -> Result<Sample> {
    let client = bed.primary().client();
    client.sql(
        "CREATE DATABASE large; \
         CREATE TABLE large.many (id INT PRIMARY KEY, v INT NOT NULL, b VARCHAR(8000) CHARACTER SET latin1 NOT NULL); \
         CREATE TABLE large.small (id INT PRIMARY KEY AUTO_INCREMENT, began DATETIME(6) NOT NULL); \
         CREATE TABLE large.ended (id INT PRIMARY KEY)",
    )?;
    // The binlog event of an update contains each row twice.
    let rows = (options.mib << 20) / (2 * ROW);
    for first in (0..rows).step_by(ROWS_AT_ONCE as usize) {
        let count = ROWS_AT_ONCE.min(rows - first);
        client.sql(&format!(
            "INSERT INTO large.many WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count}) \
             SELECT {first} + n, 0, REPEAT(CHAR(97 + n % 26), {ROW}) FROM n"
        ))?;
    }
    bed.settle()?;
    // Syncs the writes of the inserts before the measurement.
    rustix::fs::sync();
    client.sql(
        "DELIMITER //\nCREATE PROCEDURE large.commit_small() WHILE NOT EXISTS (SELECT * FROM large.ended) DO \
         INSERT INTO large.small (began) VALUES (SYSDATE(6)); END WHILE//\nDELIMITER ;",
    )?;
    let small = client.start_sql("CALL large.commit_small()")?;
    thread::sleep(Duration::from_secs(1));
    let ended = AtomicBool::new(false);
    let (seconds, members_mib) = thread::scope(|scope| -> Result<_> {
        let watching = scope.spawn(|| watch_memory(&bed.members(), &ended));
        let began = Instant::now();
        let done = client.sql_within("UPDATE large.many SET v = v + 1", LIMIT);
        let seconds = began.elapsed().as_secs_f64();
        thread::sleep(Duration::from_secs(1));
        ended.store(true, Ordering::Relaxed);
        let members = watching.join().expect("it only reads files");
        done?;
        Ok((seconds, members))
    })?;
    client.sql("INSERT INTO large.ended VALUES (1)")?;
    small.finish(LIMIT)?;
    let longest = client.value(
        "SELECT MAX(us) / 1e6 FROM (SELECT TIMESTAMPDIFF(MICROSECOND, LAG(began) OVER (ORDER BY id), began) us FROM large.small) gaps",
    )?;
    Ok(Sample {
        setup,
        seconds,
        held_up_seconds: longest.trim().parse()?,
        members_mib,
    })
}

/// Returns the peak private memory of each process until `ended`, in MiB.
fn watch_memory(processes: &[u32], ended: &AtomicBool) -> Vec<u64> {
    let mut most = vec![0; processes.len()];
    while !ended.load(Ordering::Relaxed) {
        for (most, process) in most.iter_mut().zip(processes) {
            // A process that has ended uses no memory.
            let now = private_memory(*process).unwrap_or(0) >> 20;
            *most = now.max(*most);
        }
        thread::sleep(LOOK);
    }
    most
}

fn report(options: &Options, samples: &[Sample], figures: &mut Figures) -> Result<()> {
    let of = |setup: Setup| samples.iter().filter(move |sample| sample.setup == setup);
    let held = |setup| spread(of(setup).map(|sample| sample.held_up_seconds));
    let lean = held(Setup::LeanSemiSync);
    println!(
        "{:<18} {:>9} {:>12} {:>14} {:>9} {:>12}",
        "one transaction", "statement", "held up", "[min max]", "÷ lean", "member MiB"
    );
    let mut by_setup = json!({});
    for &setup in &options.setups {
        let Some(held) = held(setup) else { continue };
        let whole = spread(of(setup).map(|sample| sample.seconds));
        let member = of(setup)
            .flat_map(|sample| sample.members_mib.iter().copied())
            .max();
        let ratio = lean.as_ref().map(|lean| held.median / lean.median);
        println!(
            "{:<18} {:>7.1} s {:>10.1} s {:>14} {:>9} {:>12}",
            setup.key(),
            whole.as_ref().map_or(f64::NAN, |whole| whole.median),
            held.median,
            format!("[{:.1} {:.1}]", held.min, held.max),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            member.map_or_else(|| "-".to_owned(), |mib| mib.to_string()),
        );
        by_setup[setup.key()] = json!({
            "held_up_seconds": held, "statement_seconds": whole, "ratio_to_lean": ratio, "member_mib": member,
        });
    }
    println!(
        "binlog of the transaction: {} MiB; held up: the longest time from one small commit to the next",
        options.mib
    );
    let entries = json!({
        "mib": options.mib, "load_average_1_min_at_end": load_average(), "setups": by_setup, "rounds": samples,
    });
    set_all(figures, &entries)
}

//! Measures how fast entries become durable, by entry size, durability and number of concurrent entries. The comparison is a plain
//! sequential write and `fdatasync` of the same number of bytes. Rounds are interleaved, so that variations of the disk affect both
//! equally.
//!
//! `cargo bench --bench append` prints a table and writes `target/figures/append.json`. With criterion it also compares one entry of 1 KiB
//! with the previous run.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use binlog_store::{BinlogStore, DiskFileSystem, Durability, SledMeta, StoreOptions};
use bytes::Bytes;
use criterion::Criterion;
use futures::stream::{FuturesOrdered, StreamExt};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, OpId, RingId, TransactionPayload, TypeConfig,
};
use serde::Serialize;
use tempfile::TempDir;
use testkit::figures::{Figures, target_folder};
use testkit::log_entries;
use testkit::statistics::{Percentiles, Spread};
use tokio::runtime::Runtime;

const ROUNDS: usize = 5;
/// How long one cell of the table is measured in one round.
const CELL: Duration = Duration::from_millis(200);
const SIZES: [usize; 4] = [200, 1 << 10, 16 << 10, 256 << 10];

/// How entries arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// This many entries per call. The next call follows when they are durable.
    Batch(usize),
    /// One entry per call, with this many concurrent calls.
    InFlight(usize),
}

impl Arrival {
    const ALL: [Self; 3] = [Self::Batch(1), Self::Batch(64), Self::InFlight(64)];

    fn name(self) -> String {
        match self {
            Self::Batch(count) => format!("batches of {count}"),
            Self::InFlight(count) => format!("{count} in flight"),
        }
    }
}

/// The result of one cell of the table in one round.
struct Sample {
    entries_per_s: f64,
    mb_per_s: f64,
    /// The time from the call until the entries are durable, in microseconds.
    latency_us: Percentiles,
}

impl Sample {
    fn new(entries: usize, bytes: u64, elapsed: Duration, latencies_us: Vec<f64>) -> Result<Self> {
        let seconds = elapsed.as_secs_f64();
        Ok(Self {
            entries_per_s: entries as f64 / seconds,
            mb_per_s: bytes as f64 / 1e6 / seconds,
            latency_us: Percentiles::of(latencies_us).context("a cell has no samples")?,
        })
    }
}

struct Log {
    store: BinlogStore,
    payload: TransactionPayload,
    next: u64,
    _dir: TempDir,
}

impl Log {
    fn open(size: usize, durability: Durability) -> Result<Self> {
        let dir = tempfile::tempdir_in(target_folder())?;
        let options = StoreOptions {
            durability,
            ..StoreOptions::new(dir.path(), RingId::random())
        };
        let meta = SledMeta::open(&dir.path().join("meta"))?;
        let (store, _) = BinlogStore::open(options, Arc::new(DiskFileSystem), Arc::new(meta))?;
        let payload = TransactionPayload::seal(events(size));
        Ok(Self {
            store,
            payload,
            next: 0,
            _dir: dir,
        })
    }

    fn entries(&mut self, count: usize) -> Vec<Entry> {
        let indexes = self.next..self.next + count as u64;
        self.next = indexes.end;
        let entry = |index| Entry {
            log_id: LogId::from(OpId::new(0, index)),
            payload: EntryPayload::Normal(AppEntry::Transaction(self.payload.clone())),
        };
        indexes.map(entry).collect()
    }

    async fn begin(
        &mut self,
        count: usize,
    ) -> Result<impl Future<Output = Result<Instant>> + use<>> {
        let (done, flushed) = TypeConfig::oneshot();
        let entries = self.entries(count);
        let begun = Instant::now();
        self.store.append(entries, IOFlushed::signal(done)).await?;
        Ok(async move {
            flushed.await??;
            Ok(begun)
        })
    }

    /// Appends entries for `time`, and returns the result.
    async fn fill(&mut self, arrival: Arrival, time: Duration) -> Result<Sample> {
        let (batch, in_flight) = match arrival {
            Arrival::Batch(count) => (count, 1),
            Arrival::InFlight(count) => (1, count),
        };
        let before = self.store.stats().appended_bytes;
        let (mut under_way, mut latencies, mut entries) = (FuturesOrdered::new(), Vec::new(), 0);
        let begun = Instant::now();
        while begun.elapsed() < time || !under_way.is_empty() {
            while begun.elapsed() < time && under_way.len() < in_flight {
                under_way.push_back(self.begin(batch).await?);
            }
            if let Some(call) = under_way.next().await {
                latencies.push(call?.elapsed().as_secs_f64() * 1e6);
                entries += batch;
            }
        }
        let bytes = self.store.stats().appended_bytes - before;
        Sample::new(entries, bytes, begun.elapsed(), latencies)
    }
}

/// Returns the canonical events of a transaction of `size` bytes.
fn events(size: usize) -> Bytes {
    let overhead = log_entries::transaction_events(0, 0).len();
    log_entries::transaction_events(0, size.saturating_sub(overhead))
}

/// Returns how many bytes an entry of this size uses in the log: its events, a CRC32 for each event, and its marker.
fn stored_len(size: usize) -> usize {
    events(size).len() + 4 * 5 + 63
}

/// Writes as many bytes as the log would write, as batches and syncs in turn.
fn plain(size: usize, durability: Durability, arrival: Arrival, time: Duration) -> Result<Sample> {
    let dir = tempfile::tempdir_in(target_folder())?;
    let file = new_file(&dir.path().join("plain"))?;
    // In the best case, one sync covers all concurrent calls.
    let (Arrival::Batch(count) | Arrival::InFlight(count)) = arrival;
    let bytes = vec![0x5a; stored_len(size) * count];
    let (mut offset, mut latencies) = (0, Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < time {
        let call = Instant::now();
        file.write_all_at(black_box(&bytes), offset)?;
        if durability == Durability::Fsync {
            file.sync_data()?;
        }
        offset += bytes.len() as u64;
        latencies.push(call.elapsed().as_secs_f64() * 1e6);
    }
    let entries = latencies.len() * count;
    Sample::new(entries, offset, begun.elapsed(), latencies)
}

fn new_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    Ok(file)
}

/// A row of the table and of the figures.
#[derive(Serialize)]
struct Row {
    entry_bytes: usize,
    durability: Durability,
    arrival: String,
    log_entries_per_s: Spread,
    log_mb_per_s: Spread,
    log_latency_p50_us: Spread,
    log_latency_p99_us: Spread,
    plain_entries_per_s: Spread,
    plain_mb_per_s: Spread,
    plain_latency_p50_us: Spread,
    ratio_of_throughput_to_plain: Spread,
}

fn row(
    size: usize,
    durability: Durability,
    arrival: Arrival,
    samples: &[(Sample, Sample)],
) -> Result<Row> {
    let spread = |value: &dyn Fn(&(Sample, Sample)) -> f64| {
        let values: Vec<f64> = samples.iter().map(value).collect();
        Spread::of(&values).context("a cell has no samples")
    };
    Ok(Row {
        entry_bytes: size,
        durability,
        arrival: arrival.name(),
        log_entries_per_s: spread(&|(log, _)| log.entries_per_s)?,
        log_mb_per_s: spread(&|(log, _)| log.mb_per_s)?,
        log_latency_p50_us: spread(&|(log, _)| log.latency_us.p50)?,
        log_latency_p99_us: spread(&|(log, _)| log.latency_us.p99)?,
        plain_entries_per_s: spread(&|(_, plain)| plain.entries_per_s)?,
        plain_mb_per_s: spread(&|(_, plain)| plain.mb_per_s)?,
        plain_latency_p50_us: spread(&|(_, plain)| plain.latency_us.p50)?,
        ratio_of_throughput_to_plain: spread(&|(log, plain)| {
            log.entries_per_s / plain.entries_per_s
        })?,
    })
}

fn print_table(rows: &[Row]) {
    println!(
        "{:>8} {:>6} {:>14} | {:>11} {:>9} {:>9} {:>9} | {:>11} {:>9} {:>9} | {:>6}",
        "bytes",
        "durab.",
        "arrival",
        "log e/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "plain e/s",
        "MB/s",
        "p50 us",
        "ratio"
    );
    for row in rows {
        println!(
            "{:>8} {:>6} {:>14} | {:>11.0} {:>9.1} {:>9.0} {:>9.0} | {:>11.0} {:>9.1} {:>9.0} | {:>6.2}",
            row.entry_bytes,
            row.durability,
            row.arrival,
            row.log_entries_per_s.median,
            row.log_mb_per_s.median,
            row.log_latency_p50_us.median,
            row.log_latency_p99_us.median,
            row.plain_entries_per_s.median,
            row.plain_mb_per_s.median,
            row.plain_latency_p50_us.median,
            row.ratio_of_throughput_to_plain.median,
        );
    }
}

fn compare(runtime: &Runtime) -> Result<()> {
    let mut figures = Figures::new("append", "cargo bench --bench append")?;
    let mut rows = Vec::new();
    for size in SIZES {
        for durability in [Durability::Fsync, Durability::Os] {
            for arrival in Arrival::ALL {
                let mut samples = Vec::new();
                for _ in 0..ROUNDS {
                    let mut log = Log::open(size, durability)?;
                    let log_sample = runtime.block_on(log.fill(arrival, CELL))?;
                    drop(log);
                    samples.push((log_sample, plain(size, durability, arrival, CELL)?));
                }
                rows.push(row(size, durability, arrival, &samples)?);
            }
        }
    }
    print_table(&rows);
    figures.set("rounds", ROUNDS)?;
    figures.set("cell_time_ms", CELL.as_millis() as u64)?;
    figures.set("rows", &rows)?;
    println!("figures: {}", figures.write()?.display());
    Ok(())
}

/// Measures one entry of 1 KiB, from the call until it is durable, for criterion's history.
fn history(runtime: &Runtime) -> Result<()> {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    for durability in [Durability::Fsync, Durability::Os] {
        let mut log = Log::open(1 << 10, durability)?;
        criterion.bench_function(&format!("append 1 KiB, {durability}"), |bencher| {
            bencher.iter_custom(|times| {
                let begun = Instant::now();
                for _ in 0..times {
                    let call = runtime.block_on(async { log.begin(1).await?.await });
                    call.expect("the bench's disk works");
                }
                begun.elapsed()
            });
        });
    }
    criterion.final_summary();
    Ok(())
}

fn main() -> Result<()> {
    // `cargo test` runs benches with `--test`: nothing is measured then.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    history(&runtime)?;
    compare(&runtime)
}

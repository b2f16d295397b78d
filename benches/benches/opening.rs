//! Measures how long a member's log takes to open: 100 GiB after a clean shutdown and after a crash, and a GTID set with a million
//! intervals. It also measures the queries of GTID sets that members and consumers make.
//!
//! `cargo bench --bench opening` prints a table and writes `target/figures/opening.json`. Most of the 100 GiB is sparse, because a start
//! reads only the header of a closed file that was verified before. Such files have a header, a few entries, and a hole up to their size.
//! All other data is real: the last two files, up to 4 GiB of unverified files, and a file with a change of the term, whose markers are
//! read. Real files need this space on the target folder's disk. After the simulated crash none of their data is in the page cache.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use binlog_format::gtid::{Gno, GtidSet, SourceId, Tag};
use binlog_store::{
    BinlogStore, DiskFileSystem, Durability, FileNumber, LogHandle, PurgePolicy, RecoveryReport,
    SledMeta, StillNeeded, StoreOptions, VerifyAtStart,
};
use futures::executor::block_on;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, LogId, MemberId, OpId, RingId, TypeConfig, Vote};
use rustix::fs::{Advice, fadvise};
use testkit::figures::{Figures, peak_memory, target_folder};
use testkit::log_entries;

const FILE_BYTES: u64 = 1 << 30;
/// The number of files of the large log, and of the log with a large GTID set.
const FILES: u64 = 101;
const FILES_WITH_INTERVALS: u64 = 20;
/// The number of files at the end that contain real data: the unverified ones, and those that every start reads.
const REAL_FILES: u64 = 6;
const INTERVALS: u64 = 1_000_000;
const TRANSACTION_BYTES: usize = 4 << 10;
const BATCH: usize = 256;
/// This program's own argument: write the last files into this folder, and exit without closing the log.
const WRITE_AND_CRASH: &str = "--write-and-crash";

/// A log under construction.
struct Log {
    store: BinlogStore,
    next: u64,
}

impl Log {
    fn open(
        folder: &Path,
        origin: GtidSet,
        verify: VerifyAtStart,
    ) -> Result<(Self, RecoveryReport)> {
        let options = StoreOptions {
            origin,
            verify_at_start: verify,
            durability: Durability::Fsync,
            disk_reserve_bytes: 0,
            ..StoreOptions::new(folder, ring()?)
        };
        let meta = SledMeta::open(&folder.join("meta"))?;
        let (store, report) = BinlogStore::open(options, Arc::new(DiskFileSystem), Arc::new(meta))?;
        let next = report.bounds.map_or(0, |(_, last)| last.index + 1);
        Ok((Self { store, next }, report))
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<()> {
        let (done, flushed) = TypeConfig::oneshot();
        block_on(self.store.append(entries, IOFlushed::signal(done)))?;
        Ok(block_on(flushed)??)
    }

    fn transactions(&mut self, count: usize) -> Result<()> {
        let from = self.next;
        self.next += count as u64;
        let entry = |index| log_entries::transaction(OpId::new(1, index), TRANSACTION_BYTES);
        self.append((from..self.next).map(entry).collect())
    }

    /// Ends the current file and begins the next one.
    fn rotate(&mut self) -> Result<()> {
        let entry = log_entries::rotate(OpId::new(1, self.next));
        self.next += 1;
        self.append(vec![entry])
    }

    /// Commits all entries appended so far.
    fn commit(&mut self) -> Result<()> {
        let last = LogId::from(OpId::new(1, self.next - 1));
        Ok(block_on(self.store.save_committed(Some(last)))?)
    }

    /// Appends transactions until the current file is full.
    fn fill(&mut self) -> Result<()> {
        let handle = self.store.handle();
        while handle.current_file().size < FILE_BYTES {
            self.transactions(BATCH)?;
        }
        self.commit()
    }

    fn close(self) -> Result<LogHandle> {
        let handle = self.store.handle();
        handle.close()?;
        Ok(handle)
    }
}

fn ring() -> Result<RingId> {
    Ok(RingId("11111111-2222-3333-4444-555555555555".parse()?))
}

/// Returns a GTID set with this many transaction numbers of one server, each as a separate interval.
fn intervals(count: u64) -> GtidSet {
    let source = SourceId::from_bytes([0x11; 16]);
    let mut set = GtidSet::new();
    for gno in (0..count).filter_map(|at| Gno::new(2 * at + 1)) {
        set.add_interval(source, Tag::NONE, gno.into());
    }
    set
}

/// Creates files with a few entries each, all verified. Optionally, the first file is full.
fn small_files(folder: &Path, count: u64, origin: GtidSet, first: FirstFile) -> Result<()> {
    let (mut log, _) = Log::open(folder, origin.clone(), VerifyAtStart::All)?;
    block_on(log.store.save_vote(&Vote::new(1, MemberId(1))))?;
    // The term of the bootstrap entry is lower than that of the first leader.
    log.append(vec![log_entries::blank(OpId::new(0, log.next))])?;
    log.next += 1;
    for number in 0..count {
        match (number, first) {
            (0, FirstFile::Whole) => log.fill()?,
            _ => log.transactions(3)?,
        }
        log.rotate()?;
    }
    log.commit()?;
    log.close()?;
    Log::open(folder, origin, VerifyAtStart::All)?.0.close()?;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum FirstFile {
    Small,
    Whole,
}

/// Extends these files, except the first and the last, to full size with holes.
fn stretch(folder: &Path, files: u64) -> Result<()> {
    for number in (2..files).filter_map(FileNumber::new) {
        let file = File::options().write(true).open(path(folder, number))?;
        file.set_len(FILE_BYTES)?;
    }
    Ok(())
}

fn path(folder: &Path, number: FileNumber) -> PathBuf {
    folder.join("log").join(number.name())
}

/// Appends full files. The process exits before the log is closed.
fn write_and_crash(folder: &Path) -> Result<()> {
    let (mut log, _) = Log::open(folder, GtidSet::new(), VerifyAtStart::New)?;
    for _ in 1..REAL_FILES {
        log.fill()?;
        log.rotate()?;
    }
    log.fill()?;
    std::process::abort();
}

fn forget_cached(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder.join("log"))? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Opens a log. Returns the log, the time in seconds, and the report with the bytes read.
fn opening(folder: &Path, origin: &GtidSet) -> Result<(Log, f64, RecoveryReport)> {
    let begun = Instant::now();
    let (log, report) = Log::open(folder, origin.clone(), VerifyAtStart::New)?;
    Ok((log, begun.elapsed().as_secs_f64(), report))
}

fn tell(figures: &mut Figures, what: &str, key: &str, seconds: f64) -> Result<()> {
    println!("{what:<64}{seconds:>9.3} s");
    figures.set(key, seconds)
}

fn large_log(figures: &mut Figures) -> Result<()> {
    let folder = tempfile::tempdir_in(target_folder())?;
    let small = FILES - REAL_FILES;
    small_files(folder.path(), small, GtidSet::new(), FirstFile::Whole)?;
    stretch(folder.path(), small)?;
    let writer = Command::new(std::env::current_exe()?)
        .args([WRITE_AND_CRASH.as_ref(), folder.path()])
        .status()?;
    ensure!(!writer.success(), "the writer was to crash");
    forget_cached(folder.path())?;

    let none = GtidSet::new();
    let (log, seconds, report) = opening(folder.path(), &none)?;
    let read_gib = report.verified_bytes as f64 / FILE_BYTES as f64;
    let what = format!("100 GiB after a crash, {read_gib:.1} GiB of it read back from the disk");
    tell(figures, &what, "after_crash_seconds", seconds)?;
    figures.set("after_crash_read_gib", read_gib)?;
    log.close()?;
    let (log, seconds, report) = opening(folder.path(), &none)?;
    let read_gib = report.verified_bytes as f64 / FILE_BYTES as f64;
    let what = format!(
        "{FILES} GiB after an orderly stop, {read_gib:.1} GiB of it read back from the cache"
    );
    tell(figures, &what, "after_orderly_stop_seconds", seconds)?;
    figures.set("after_orderly_stop_read_gib", read_gib)?;
    figures.set(
        "log_gib",
        log.store.stats().log_bytes as f64 / FILE_BYTES as f64,
    )?;
    log.close()?;
    Ok(())
}

fn large_set(figures: &mut Figures) -> Result<()> {
    let folder = tempfile::tempdir_in(target_folder())?;
    let origin = intervals(INTERVALS);
    small_files(
        folder.path(),
        FILES_WITH_INTERVALS,
        origin.clone(),
        FirstFile::Small,
    )?;
    let (log, seconds, _) = opening(folder.path(), &origin)?;
    let what =
        format!("{FILES_WITH_INTERVALS} files after a set of {INTERVALS} intervals: opening");
    tell(figures, &what, "intervals_opening_seconds", seconds)?;
    let handle = log.store.handle();
    let timed = |figures: &mut Figures, what: &str, key: &str, act: &dyn Fn() -> Result<()>| {
        let begun = Instant::now();
        act()?;
        tell(figures, what, key, begun.elapsed().as_secs_f64())
    };
    timed(
        figures,
        "  copying the set for the member's status",
        "intervals_look_seconds",
        &|| {
            ensure!(
                handle.gtid_set().count() > u128::from(INTERVALS),
                "the set is not whole"
            );
            Ok(())
        },
    )?;
    let text = handle.gtid_set().to_string();
    timed(
        figures,
        "  the set as a text, in the status",
        "intervals_text_seconds",
        &|| {
            ensure!(handle.gtid_set().to_string() == text, "another text");
            Ok(())
        },
    )?;
    // This set has no interval in common with the log's set.
    let foreign: GtidSet = text.parse()?;
    timed(
        figures,
        "  a plan to purge, by what a mysqld has executed",
        "intervals_purge_plan_seconds",
        &|| {
            let needed = StillNeeded {
                by_ring: None,
                executed: Some(foreign.clone()),
                by_archive: None,
            };
            let plan = handle.plan_purge(&PurgePolicy::TotalBytes(1), &needed);
            ensure!(plan.remove.len() as u64 == FILES_WITH_INTERVALS, "{plan:?}");
            Ok(())
        },
    )?;
    timed(
        figures,
        "  a consumer that has all but the last transactions",
        "intervals_dump_seconds",
        &|| {
            let committed = handle.committed_gtids(None);
            ensure!(foreign.contains_set(&committed), "it lacks something");
            let file = handle
                .last_file_within(&foreign)
                .context("it finds no file")?;
            ensure!(file.number.get() == FILES_WITH_INTERVALS + 1, "{file:?}");
            Ok(())
        },
    )?;
    timed(
        figures,
        "  a consumer that has nothing but the set",
        "intervals_first_dump_seconds",
        &|| {
            let file = handle
                .last_file_within(&origin)
                .context("it finds no file")?;
            ensure!(file.number == FileNumber::FIRST, "{file:?}");
            Ok(())
        },
    )?;
    let peak_mib = peak_memory(std::process::id())? as f64 / f64::from(1 << 20);
    println!("  most memory of this process{peak_mib:>43.0} MiB");
    figures.set("intervals_peak_mib", peak_mib)?;
    log.close()?;
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, first, folder] = &arguments[..]
        && first == WRITE_AND_CRASH
    {
        return write_and_crash(Path::new(folder));
    }
    // `cargo test` runs benches with `--test`: nothing is measured then.
    if arguments.iter().any(|argument| argument == "--test") {
        return Ok(());
    }
    let mut figures = Figures::new("opening", "cargo bench --bench opening")?;
    large_set(&mut figures)?;
    large_log(&mut figures)?;
    println!("figures: {}", figures.write()?.display());
    Ok(())
}

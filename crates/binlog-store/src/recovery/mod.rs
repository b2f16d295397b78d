//! Recovery of a log after a crash. First the whole state is read without changes (`survey`, `log_scan`). Then two tables in
//! `decision_table` decide what to do, and `repair` does it. A crash during any step leaves a state that is in the tables.

mod decision_table;
mod log_scan;
mod repair;
mod survey;

use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use raft_types::{DoubtedTail, OpId};

use crate::disk_space::DiskSpace;
use crate::error::{OpenError, StoreError};
use crate::file_system::FileSystem;
use crate::format::FileNumber;
use crate::handle::LogHandle;
use crate::hard_state::{
    DURABLE, HardState, LogStage, MetaStore, SCRUB, SavedState, UNSYNCED, UnsyncedRun,
};
use crate::log::{LogFile, LogView, OpenLog, RecentEntries, SharedView};
use crate::options::{Durability, StoreOptions, WriterMode};
use crate::read_faults::ReadFaults;
use crate::recovery::decision_table::Unsynced;
pub use crate::recovery::decision_table::{
    IndexState, MetaState, RECOVERY_CASES, RecoveryCase, TailState, Verdict, boot_id, judge,
};
use crate::recovery::log_scan::{ScannedLog, scan_log};
use crate::recovery::repair::Repair;
use crate::recovery::survey::{Survey, SurveyedFile, corrupt, survey};
use crate::scan::Fault;
use crate::scrub::record::Scrub;
use crate::shared::Shared;
use crate::stats::Counters;
use crate::store::BinlogStore;
use crate::writer::{CommandQueue, LogWriter, Purger, Waiting, WriterState, serve};

// Opens a log: survey, scan, judge, repair; then creates the writer and the shared view.

/// The most attempts to create a log, or to restart it after a floor, before it must be usable.
const ROUNDS: usize = 4;

impl BinlogStore {
    /// Opens the log in a data directory, or creates one. Blocks; reads the log as far as [`StoreOptions::verify_at_start`] requires,
    /// truncates a torn tail, and completes interrupted operations. On return, all visible entries of the log are durable.
    ///
    /// # Errors
    /// [`OpenError`] names the file and offset of damage, or the missing item, and the remedy. The disk is unchanged then.
    pub fn open(
        options: StoreOptions,
        fs: Arc<dyn FileSystem>,
        meta: Arc<dyn MetaStore>,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let hard = HardState { meta };
        let (saved, log, report) = recover(&options, &*fs, &hard)?;
        let handle = start(options, fs, hard, saved, log)?;
        Ok((Self { handle }, report))
    }
}

/// The hard state and the files after recovery, and its report.
type Recovered = (SavedState, ScannedLog, RecoveryReport);

fn recover(
    options: &StoreOptions,
    fs: &dyn FileSystem,
    hard: &HardState,
) -> Result<Recovered, OpenError> {
    let dir = options.log_dir();
    let repair = Repair {
        fs,
        dir: &dir,
        hard,
        options,
    };
    let mut cases = Vec::new();
    for _ in 0..ROUNDS {
        let survey = survey(fs, &dir, hard, options.ring)?;
        let log = scan_log(
            fs,
            &dir,
            &survey,
            options.verify_at_start,
            options.progress.as_ref(),
        )?;
        let meta = meta_state(&survey.saved, &log);
        let case = judge(log.tail, meta);
        cases.push(case.name);
        match (case.verdict, &survey.saved.floor) {
            (Verdict::StartOver, _) => repair.start_over(survey.saved.start)?,
            (Verdict::CreateLog, _) if options.begun => {
                return Err(OpenError::AllMissing(options.data_dir.clone()));
            }
            (Verdict::CreateLog, _) => repair.create_log()?,
            (Verdict::BeginBehindFloor, Some(floor)) => repair.begin_after_floor(&log, floor)?,
            (
                Verdict::Open | Verdict::CutTail | Verdict::CutDoubtedTail | Verdict::MakeNextFile,
                _,
            ) => {
                let boot = options.boot_id.as_deref();
                let unsynced = Unsynced::of(survey.saved.unsynced.as_ref(), boot);
                let ending = Ending {
                    verdict: unsynced.judge_tail(case.verdict, meta, options.durability),
                    may_lack_unsynced: unsynced.leaves_a_doubt(log.end()),
                    run: (options.durability == Durability::Os).then(|| UnsyncedRun {
                        boot: options.boot_id.clone(),
                    }),
                };
                return finish(&repair, survey, log, ending, cases);
            }
            (verdict, _) => return Err(refusal(verdict, &dir, &survey.saved, &log)),
        }
    }
    let error = std::io::Error::other("the log is not usable after it was made");
    Err(OpenError::io("opening the log")(error))
}

/// Compares the hard state with the present complete entries.
fn meta_state(saved: &SavedState, log: &ScannedLog) -> MetaState {
    let entries = log.terms.bounds();
    if saved.start.is_some() {
        return MetaState::StartingOver;
    }
    match saved.log.map(|record| record.stage) {
        None => return MetaState::Missing,
        Some(LogStage::Creating) if entries.is_some() => return MetaState::Missing,
        Some(LogStage::Creating) => return MetaState::Creating,
        Some(LogStage::InUse) => {}
    }
    let floor = saved.floor.as_ref().map(|floor| floor.op_id);
    let end = log.end();
    let beyond =
        |known: Option<OpId>, end: Option<OpId>| known.map(|id| id.index) > end.map(|id| id.index);
    let end_or_floor = if beyond(floor, end) { floor } else { end };
    let vote_term = saved.vote.map_or(0, |vote| vote.leader_id.term);
    let last_term = end_or_floor.map_or(0, |last| last.term);
    let differs = |id: OpId| log.terms.op_id(id.index).is_some_and(|found| found != id);

    if vote_term < last_term {
        MetaState::VoteOlder
    } else if beyond(saved.committed, end_or_floor) {
        MetaState::CommittedBeyondEnd
    } else if saved.committed.is_some_and(differs) {
        MetaState::CommittedDiffers
    } else if beyond(saved.durable.map(|mark| mark.op_id), end_or_floor)
        || saved.durable.is_some_and(|mark| differs(mark.op_id))
    {
        MetaState::DurableBeyondEnd
    } else if beyond(floor, end) {
        MetaState::FloorBeyondEnd
    } else if floor
        .is_some_and(|floor| entries.is_some_and(|(first, _)| first.index <= floor.index))
    {
        MetaState::FloorInside
    } else if vote_term > last_term {
        MetaState::VoteNewer
    } else {
        MetaState::Agrees
    }
}

fn refusal(verdict: Verdict, dir: &Path, saved: &SavedState, log: &ScannedLog) -> OpenError {
    let end = log.end();
    match verdict {
        Verdict::RefuseLogMissing => OpenError::LogMissing(dir.to_path_buf()),
        Verdict::RefuseVoteOlder => OpenError::VoteOlderThanLog(
            end.unwrap_or_default(),
            saved.vote.map_or(0, |vote| vote.leader_id.term),
        ),
        Verdict::RefuseEntriesMissing => {
            let (known, what) = match (saved.committed, saved.durable) {
                (Some(committed), _) if Some(committed.index) > end.map(|end| end.index) => {
                    (committed, "committed")
                }
                (_, mark) => (mark.map(|mark| mark.op_id).unwrap_or_default(), "durable"),
            };
            OpenError::EntriesMissing { known, what, end }
        }
        Verdict::RefuseCommittedDiffers => {
            let committed = saved.committed.unwrap_or_default();
            OpenError::CommittedDiffers {
                committed,
                found: log.terms.op_id(committed.index).unwrap_or_default(),
            }
        }
        Verdict::RefuseDamage => match &log.tail_fault {
            Some((file, fault)) => corrupt(dir, *file, fault.clone()),
            None => {
                let file = log
                    .files
                    .back()
                    .map_or(crate::format::FileNumber::FIRST, LogFile::number);
                corrupt(dir, file, Fault::wrong_header("place in the log"))
            }
        },
        _ => OpenError::MetaMissing(dir.to_path_buf()),
    }
}

/// How to finish opening a log whose files can stay.
struct Ending {
    verdict: Verdict,
    /// True if entries that were acknowledged without a sync may be missing.
    may_lack_unsynced: bool,
    /// The record to write for the new run.
    run: Option<UnsyncedRun>,
}

/// Carries out the last repairs. They do not change `log`, except that they may add a new last file.
fn finish(
    repair: &Repair<'_>,
    mut survey: Survey,
    mut log: ScannedLog,
    ending: Ending,
    cases: Vec<&'static str>,
) -> Result<Recovered, OpenError> {
    let mut saved = std::mem::take(&mut survey.saved);
    let found = DoubtedTail::of_term(saved.vote.map_or(0, |vote| vote.leader_id.term));
    // An earlier doubt stays.
    let doubt = saved.doubt.map_or(found, |known| known.and(found));
    let mut cut = settle_last_file(repair, &survey.files, &mut saved, &log, &ending, doubt)?;
    let mut made_file = None;
    if ending.verdict == Verdict::MakeNextFile {
        let next = log.files.back().map(|file| file.number().next());
        let half_made = survey.files.iter().find(|file| Some(file.number) == next);
        let bytes = half_made.map_or(0, |file| file.size);
        let (file, doubted) = repair.make_next_file(&mut log, bytes, &doubt)?;
        if doubted {
            saved.doubt = Some(doubt);
            cut = Some(TailCut {
                file,
                offset: 0,
                bytes,
                doubted,
            });
        }
        made_file = Some(file);
    }
    // The survey has refused an index that names a missing file.
    let rewrite = survey.index != IndexState::Agrees || made_file.is_some();
    repair.tidy_directory(&log, rewrite, &survey)?;
    if saved.scrub.verified != log.verified {
        saved.scrub.verified = log.verified;
        let noted = repair.hard.put(SCRUB, Some(&saved.scrub));
        noted.map_err(OpenError::io("storing which files were verified"))?;
    }
    // Written after the doubt, because the old record is the evidence for the doubt. Also written after the present entries are synced, and
    // before the first new entry.
    if saved.unsynced != ending.run {
        let noted = repair.hard.put(UNSYNCED, ending.run.as_ref());
        noted.map_err(OpenError::io("storing how the log is written"))?;
        saved.unsynced = ending.run;
    }
    repair.note_in_use(&saved)?;
    let floor = saved.floor.as_ref().map(|floor| floor.op_id);
    let mut served = log.terms.clone();
    if let Some(floor) = floor {
        served.purge(floor.index);
    }
    let report = RecoveryReport {
        cases,
        index_case: survey.index.name(),
        files: log.files.len(),
        bounds: served.bounds(),
        floor,
        verified_entries: log.verified_entries,
        verified_bytes: log.verified_bytes,
        cut,
        made_file,
        may_lack_unsynced: ending.may_lack_unsynced,
        doubted: saved.doubt.is_some(),
        removed_files: survey.leftovers,
    };
    Ok((saved, log, report))
}

/// Records a doubt if there is one. Then truncates the last file after its last complete entry, and makes the file durable.
fn settle_last_file(
    repair: &Repair<'_>,
    files: &[SurveyedFile],
    saved: &mut SavedState,
    log: &ScannedLog,
    ending: &Ending,
    doubt: DoubtedTail,
) -> Result<Option<TailCut>, OpenError> {
    let Some(last) = log.files.back() else {
        return Ok(None);
    };
    let (number, end) = (last.number(), last.end);
    let surveyed = files.iter().find(|file| file.number == number);
    let doubted = ending.verdict == Verdict::CutDoubtedTail;
    if doubted || ending.may_lack_unsynced {
        repair.note_doubt(&doubt)?;
        saved.doubt = Some(doubt);
    }
    let is_cut = doubted || ending.verdict == Verdict::CutTail;
    let known = saved
        .durable
        .filter(|mark| mark.file == number && mark.end <= end);
    repair.settle_tail(number, known.map_or(0, |mark| mark.end), end)?;
    // From now on, present entries count as durable. This includes a membership that was written but not acknowledged before the member
    // stopped.
    let newest = log.memberships.0.last().map(|membership| membership.op_id);
    let unmarked = newest.map(|id| id.index) > saved.durable.map(|mark| mark.op_id.index);
    if let Some(mark) = last.durable_mark().filter(|_| unmarked) {
        // The writer does the same for memberships that it writes. `note_in_use` makes the mark durable.
        let noted = repair.hard.put(DURABLE, Some(&mark));
        noted.map_err(OpenError::io("storing that a membership is durable"))?;
        saved.durable = Some(mark);
    }
    Ok(is_cut.then(|| TailCut {
        file: number,
        offset: end,
        bytes: surveyed.map_or(0, |file| file.size.saturating_sub(end)),
        doubted,
    }))
}

/// Creates the open log's in-memory state and starts its writer.
fn start(
    options: StoreOptions,
    fs: Arc<dyn FileSystem>,
    hard: HardState,
    saved: SavedState,
    log: ScannedLog,
) -> Result<LogHandle, OpenError> {
    let dir = options.log_dir();
    let Some(current) = log.files.back().cloned() else {
        let error = std::io::Error::other("the log has no file");
        return Err(OpenError::io("opening the log")(error));
    };
    let number = current.number();
    let file = fs.open(&dir.join(number.name()));
    let state = WriterState {
        file: file.map_err(OpenError::io(format!("opening {number}")))?,
        header: current.header.clone(),
        end: current.end,
        last: current.last_or_before(),
        gtids: log.gtids.clone(),
        saved_committed: saved.committed,
        saved_mark: saved.durable,
        unsynced_run: saved.unsynced.is_some(),
    };
    let counters = Arc::new(Counters::default());
    let log_bytes = log.files.iter().map(|file| file.end).sum();
    let space = DiskSpace::of(&options, &fs, log_bytes, &counters);
    let space = space.map_err(OpenError::io("asking for the free space of the log's disk"))?;
    let scrub = Scrub {
        record: Mutex::new(saved.scrub),
        ..Scrub::default()
    };
    let view = log_view(saved, log, options.cache_bytes);
    let next_index = view.last().map_or(0, |last| last.index + 1);
    let log = Arc::new(OpenLog {
        options: StoreOptions {
            progress: None,
            ..options
        },
        fs,
        dir,
        hard,
        view: SharedView(Mutex::new(view)),
        counters,
        space,
        read_faults: ReadFaults::default(),
    });
    let queue = Arc::new(CommandQueue::new(log.options.queue_bytes));
    let purger = Arc::new(Purger::new(log.clone()));
    let has_thread = log.options.writer == WriterMode::Thread;
    // Only a writer with its own thread can wait for room on the disk.
    let waiting = has_thread.then(|| {
        Arc::new(Waiting {
            log: log.clone(),
            queue: queue.clone(),
            purger: purger.clone(),
            purges: AtomicBool::new(true),
        })
    });
    let mut writer = LogWriter::new(log.clone(), purger, waiting, state);
    // A purge may have been interrupted after its floor was stored and before its files were removed.
    writer.catch_up();
    let writer = Arc::new(Mutex::new(writer));
    let mut thread = None;
    if has_thread {
        let (writer, queue) = (writer.clone(), queue.clone());
        let builder = std::thread::Builder::new().name("binlog-writer".to_owned());
        let spawned = builder.spawn(move || serve(&writer, &queue));
        thread = Some(spawned.map_err(OpenError::io("starting the log's writer"))?);
    }
    let handle = LogHandle {
        shared: Arc::new(Shared {
            log,
            scrub,
            queue,
            writer,
            thread: Mutex::new(thread),
            appended: tokio::sync::watch::Sender::new(next_index),
        }),
    };
    // The writer may have failed before its first request.
    let failed = |failure: StoreError| OpenError::io("finishing a purge")(failure.into());
    handle
        .failure()
        .map_or(Ok(handle), |failure| Err(failed(failure)))
}

fn log_view(saved: SavedState, log: ScannedLog, cache_bytes: u64) -> LogView {
    // Only committed entries are purged, but the stored committed op id is a hint that may be older than the floor. If the floor were not
    // included here, the engine would start before the first present entry.
    let floor = saved.floor.as_ref().map(|floor| floor.op_id);
    let known = saved.committed.into_iter().chain(floor);
    let committed = known.max_by_key(|op_id| op_id.index);
    let last = log.terms.bounds().map(|(_, last)| last);
    let mut view = LogView {
        floor: None,
        vote: saved.vote,
        committed,
        durable: last,
        synced: last,
        recent: RecentEntries::new(cache_bytes),
        files: log.files,
        memberships: log.memberships,
        terms: log.terms,
        gtids: log.gtids,
        sequence_number: log.sequence_number,
        tail: log.written,
        generation: 0,
        failure: None,
        holds: Default::default(),
        doubt: saved.doubt,
        elections: saved.elections,
        at_open: Default::default(),
    };
    if let Some(floor) = saved.floor {
        view.purge(floor);
    }
    view.at_open = (committed, view.committed_membership());
    view
}

// The result of opening a log.

/// A torn tail that was truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailCut {
    /// The last file of the log, which was truncated.
    pub file: FileNumber,
    /// Length of that file after the truncation.
    pub offset: u64,
    /// Number of truncated bytes.
    pub bytes: u64,
    /// Whether some of the truncated bytes may have been acknowledged.
    pub doubted: bool,
}

/// The result of opening a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The applied rows of the recovery table, in order; the last one ends with an open log.
    pub cases: Vec<&'static str>,
    /// The applied row of the index table.
    pub index_case: &'static str,
    /// The current number of files.
    pub files: usize,
    /// The first and the last entry.
    pub bounds: Option<(OpId, OpId)>,
    /// The last purged entry; `None` if nothing was purged.
    pub floor: Option<OpId>,
    /// Number of entries read and verified.
    pub verified_entries: u64,
    /// Number of bytes read and verified.
    pub verified_bytes: u64,
    /// The truncated tail.
    pub cut: Option<TailCut>,
    /// The created file.
    pub made_file: Option<FileNumber>,
    /// Entries that were acknowledged without a sync may be missing: the machine has stopped since.
    pub may_lack_unsynced: bool,
    /// Acknowledged entries may be missing, since this start or an earlier one, and the doubt is not resolved yet.
    pub doubted: bool,
    /// Removed leftover files of a purge.
    pub removed_files: Vec<FileNumber>,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}; ", self.cases.join(", then "), self.index_case)?;
        match self.bounds {
            Some((first, last)) => write!(f, "entries {first} to {last} in {} files", self.files)?,
            None => write!(f, "no entries, {} files", self.files)?,
        }
        write!(
            f,
            "; verified {} entries, {} bytes",
            self.verified_entries, self.verified_bytes
        )?;
        if let Some(cut) = self.cut {
            write!(
                f,
                "; cut {} bytes off {} at {}",
                cut.bytes, cut.file, cut.offset
            )?;
            if cut.doubted {
                f.write_str(", which may have been acknowledged")?;
            }
        }
        if self.may_lack_unsynced {
            f.write_str(
                "; it was written without syncing before the machine stopped, and acknowledged entries may be missing",
            )?;
        } else if self.doubted && self.cut.is_none() {
            f.write_str("; since an earlier start acknowledged entries may be missing")?;
        }
        if let Some(file) = self.made_file {
            write!(f, "; made {file}")?;
        }
        for file in &self.removed_files {
            write!(f, "; removed {file}")?;
        }
        Ok(())
    }
}

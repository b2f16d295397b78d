//! Drives a member's log step by step, with a model of what the log must contain.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

pub(crate) mod exploration;

use std::collections::BTreeMap;
use std::path::PathBuf;

use binlog_format::gtid::{Gtid, GtidSet};
use binlog_store::{
    BinlogStore, OpenError, RecoveryReport, StoreOptions, VerifyAtStart, WriterMode,
};
use futures::executor::block_on;
use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, FileStart, FileStarts, LogId, MemberId, OpId, RingId, TypeConfig, Vote};
use testkit::disk::FaultyDisk;
use testkit::log_entries;

/// The data directory on every faulty disk.
pub(crate) const DATA_DIR: &str = "/data";

pub(crate) fn log_dir() -> PathBuf {
    PathBuf::from(DATA_DIR).join("log")
}

pub(crate) fn ring() -> RingId {
    RingId("11111111-2222-3333-4444-555555555555".parse().unwrap())
}

/// Options for a store without a writer thread, on a faulty disk.
pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        writer: WriterMode::Inline,
        disk_reserve_bytes: 0,
        verify_at_start: VerifyAtStart::All,
        ..StoreOptions::new(DATA_DIR, ring())
    }
}

pub(crate) fn open_with(
    disk: &FaultyDisk,
    options: StoreOptions,
) -> Result<(BinlogStore, RecoveryReport), OpenError> {
    BinlogStore::open(options, disk.file_system(), disk.meta())
}

pub(crate) fn open(disk: &FaultyDisk) -> Result<(BinlogStore, RecoveryReport), OpenError> {
    open_with(disk, options())
}

pub(crate) fn vote(term: u64) -> Vote {
    Vote::new(term, MemberId(1))
}

/// Appends and waits for the callback.
pub(crate) fn append(store: &mut BinlogStore, entries: Vec<Entry>) -> std::io::Result<()> {
    let (done, flushed) = TypeConfig::oneshot();
    block_on(store.append(entries, IOFlushed::signal(done)))?;
    block_on(flushed).map_err(std::io::Error::other)?
}

pub(crate) fn save_vote(store: &mut BinlogStore, term: u64) -> std::io::Result<()> {
    block_on(store.save_vote(&vote(term)))
}

pub(crate) fn truncate(store: &mut BinlogStore, keep: Option<OpId>) -> std::io::Result<()> {
    block_on(store.truncate_after(keep.map(LogId::from)))
}

pub(crate) fn purge(store: &mut BinlogStore, upto: OpId) -> std::io::Result<()> {
    block_on(store.purge(LogId::from(upto)))
}

pub(crate) fn begin_at(store: &mut BinlogStore, start: &FileStart) -> std::io::Result<()> {
    block_on(FileStarts::begin_at(&store.handle(), start.clone()))
}

/// The first file start at or after an entry that a log can offer.
pub(crate) fn start_after(store: &BinlogStore, from: OpId) -> FileStart {
    let offered = block_on(FileStarts::first_start(&store.handle(), Some(from)));
    offered.unwrap().expect("a file that begins there")
}

pub(crate) fn cut_back(
    store: &mut BinlogStore,
    to: Option<OpId>,
) -> std::io::Result<Option<binlog_store::CutTail>> {
    block_on(store.cut_back(to, "the quorum was repaired", 1_700_000_000))
        .map_err(std::io::Error::other)
}

pub(crate) fn save_committed(store: &mut BinlogStore, committed: OpId) -> std::io::Result<()> {
    block_on(store.save_committed(Some(LogId::from(committed))))
}

pub(crate) fn read_all(store: &BinlogStore) -> std::io::Result<Vec<Entry>> {
    block_on(store.reader().try_get_log_entries(0..))
}

/// All files in the log directory that must be equal on all members.
pub(crate) fn log_files(disk: &FaultyDisk) -> BTreeMap<String, Vec<u8>> {
    let files = disk.files(&log_dir()).into_iter();
    files
        .map(|path| {
            let bytes = disk.contents(&path).unwrap_or_default();
            (
                path.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                bytes,
            )
        })
        .collect()
}

/// One request of the engine to the store.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Vote(u64),
    Append(Vec<Entry>),
    Truncate(Option<OpId>),
    Purge(OpId),
    Committed(OpId),
    /// Includes the GTIDs before the file start.
    Begin(FileStart, GtidSet),
    CutBack(Option<OpId>),
}

/// What the log must contain after a crash: the acknowledged steps, and perhaps the pending one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// The log as acknowledged.
    pub(crate) entries: Vec<Entry>,
    /// The acknowledged vote's term.
    pub(crate) vote: u64,
    /// The acknowledged purge floor.
    pub(crate) floor: Option<OpId>,
    /// The GTIDs of acknowledged entries that were purged.
    pub(crate) purged: GtidSet,
    /// The step that was pending when the power was cut.
    pub(crate) under_way: Option<Step>,
}

impl Model {
    /// Records that the step was acknowledged.
    pub(crate) fn acknowledge(&mut self, step: &Step) {
        match step {
            Step::Vote(term) => self.vote = *term,
            Step::Append(entries) => self.entries.extend(entries.iter().cloned()),
            Step::Truncate(keep) | Step::CutBack(keep) => {
                let from = keep.map_or(0, |keep| keep.index + 1);
                self.entries.retain(|entry| entry.log_id.index < from);
            }
            Step::Purge(upto) => {
                self.floor = self.floor.max(Some(*upto));
                self.purged.extend(gtids_up_to(&self.entries, upto.index));
                self.entries.retain(|entry| entry.log_id.index > upto.index);
            }
            Step::Committed(_) => {}
            Step::Begin(start, gtids) => {
                let purge = Step::Purge(start.before);
                if self.floor >= Some(start.before) {
                } else if self.has(start.before) {
                    self.acknowledge(&purge);
                } else {
                    self.entries.clear();
                    self.floor = Some(start.before);
                    self.purged = gtids.clone();
                }
            }
        }
    }

    fn has(&self, op_id: OpId) -> bool {
        self.entries
            .iter()
            .any(|entry| OpId::from(entry.log_id) == op_id)
    }

    /// Checks that the model allows this log; the error describes the difference.
    pub(crate) fn check(&self, store: &BinlogStore) -> Result<(), String> {
        let found = read_all(store).map_err(|error| format!("reading the log: {error}"))?;
        let index = |entry: &Entry| entry.log_id.index;
        if found
            .windows(2)
            .any(|pair| index(&pair[0]) + 1 != index(&pair[1]))
        {
            return Err(format!("the log has a hole: {}", summary(&found)));
        }
        if !self.allowed_logs().contains(&found) {
            return Err(format!(
                "acknowledged were {}, but the log has {}; under way was {:?}",
                summary(&self.entries),
                summary(&found),
                self.under_way
            ));
        }
        let found_vote = block_on(store.reader().read_vote())
            .unwrap()
            .map_or(0, |vote| vote.leader_id.term);
        let under_way = matches!(self.under_way, Some(Step::Vote(term)) if term == found_vote);
        if found_vote != self.vote && !under_way {
            return Err(format!(
                "acknowledged was a vote of term {}, but term {found_vote} is stored",
                self.vote
            ));
        }
        self.check_gtids(store, &found)
    }

    /// The logs that are allowed: the acknowledged one, and those that the pending step may have left.
    fn allowed_logs(&self) -> Vec<Vec<Entry>> {
        let mut allowed = vec![self.entries.clone()];
        match &self.under_way {
            None | Some(Step::Committed(_) | Step::Vote(_)) => {}
            Some(begin @ Step::Begin(..)) => {
                let mut begun = self.clone();
                begun.acknowledge(begin);
                allowed.push(begun.entries);
            }
            Some(Step::Append(entries)) => {
                for count in 1..=entries.len() {
                    allowed.push(
                        self.entries
                            .iter()
                            .chain(&entries[..count])
                            .cloned()
                            .collect(),
                    );
                }
            }
            Some(Step::Truncate(keep) | Step::CutBack(keep)) => {
                let from = keep.map_or(0, |keep| keep.index + 1);
                let stay = self
                    .entries
                    .iter()
                    .filter(|entry| entry.log_id.index < from)
                    .count();
                allowed
                    .extend((stay..self.entries.len()).map(|count| self.entries[..count].to_vec()));
            }
            Some(Step::Purge(upto)) => {
                allowed.push(
                    self.entries
                        .iter()
                        .filter(|entry| entry.log_id.index > upto.index)
                        .cloned()
                        .collect(),
                );
            }
        }
        allowed
    }

    /// Checks that the log's GTID set has exactly the GTIDs of its entries and of purged entries.
    fn check_gtids(&self, store: &BinlogStore, found: &[Entry]) -> Result<(), String> {
        let mut expected = self.purged.clone();
        expected.extend(gtids_up_to(found, u64::MAX));
        if let Some(begin @ Step::Begin(..)) = &self.under_way {
            let mut begun = self.clone();
            begun.acknowledge(begin);
            begun.under_way = None;
            if begun.entries == found && begun.check_gtids(store, found).is_ok() {
                return Ok(());
            }
        }
        if let Some(Step::Purge(upto)) = &self.under_way {
            expected.extend(gtids_up_to(&self.entries, upto.index));
        }
        let set = store.gtid_set();
        if set == expected {
            return Ok(());
        }
        let (extra, missing) = (set.difference(&expected), expected.difference(&set));
        Err(format!(
            "the log's GTID set has {extra} in excess and lacks {missing}"
        ))
    }
}

fn gtids_up_to(entries: &[Entry], index: u64) -> impl Iterator<Item = Gtid> {
    let wanted = entries
        .iter()
        .filter(move |entry| entry.log_id.index <= index && is_transaction(entry));
    wanted.map(|entry| log_entries::gtid(entry.log_id.index))
}

fn is_transaction(entry: &Entry) -> bool {
    matches!(
        &entry.payload,
        raft_types::EntryPayload::Normal(raft_types::AppEntry::Transaction(_))
    )
}

pub(crate) fn summary(entries: &[Entry]) -> String {
    let id = |entry: Option<&Entry>| {
        entry.map_or("-".to_owned(), |entry| OpId::from(entry.log_id).to_string())
    };
    format!(
        "{} entries {}..={}",
        entries.len(),
        id(entries.first()),
        id(entries.last())
    )
}

/// Performs a step.
pub(crate) fn perform(store: &mut BinlogStore, step: &Step) -> std::io::Result<()> {
    match step {
        Step::Vote(term) => save_vote(store, *term),
        Step::Append(entries) => append(store, entries.clone()),
        Step::Truncate(keep) => truncate(store, *keep),
        Step::Purge(upto) => purge(store, *upto),
        Step::Committed(op_id) => save_committed(store, *op_id),
        Step::Begin(start, _) => begin_at(store, start),
        Step::CutBack(to) => cut_back(store, *to).map(|_| ()),
    }
}

/// Performs steps until one fails. The model then records the acknowledged steps and the pending one.
pub(crate) fn run(store: &mut BinlogStore, steps: &[Step], model: &mut Model) -> usize {
    for (at, step) in steps.iter().enumerate() {
        model.under_way = Some(step.clone());
        if perform(store, step).is_err() {
            return at;
        }
        model.acknowledge(step);
        model.under_way = None;
    }
    steps.len()
}

/// The steps of the crash tests: votes, entries of all kinds and sizes, rotations, and several files in one append. Also truncations within
/// a file and across files, and purges within a file, of files and beyond the end.
pub(crate) fn script() -> Vec<Step> {
    use log_entries::{blank, membership, rotate, transaction};
    let id = OpId::new;
    let run = |term: u64, from: u64, sizes: &[usize]| -> Vec<Entry> {
        sizes
            .iter()
            .zip(from..)
            .map(|(size, index)| transaction(id(term, index), *size))
            .collect()
    };
    vec![
        Step::Append(vec![membership(id(0, 0), &[1, 2, 3])]),
        Step::Vote(1),
        Step::Append(vec![blank(id(1, 1))]),
        Step::Append(run(1, 2, &[10, 700, 30])),
        Step::Committed(id(1, 3)),
        Step::Append(run(1, 5, &[0, 5_000, 40, 90])),
        Step::Committed(id(1, 6)),
        Step::Append(vec![rotate(id(1, 9))]),
        Step::Append(run(1, 10, &[100, 200])),
        Step::Truncate(Some(id(1, 10))),
        Step::Append(vec![
            transaction(id(1, 11), 300),
            rotate(id(1, 12)),
            transaction(id(1, 13), 50),
            blank(id(1, 14)),
        ]),
        Step::Vote(2),
        // The truncation goes back across one file's end.
        Step::Truncate(Some(id(1, 10))),
        Step::Append(vec![
            blank(id(2, 11)),
            transaction(id(2, 12), 80),
            rotate(id(2, 13)),
            rotate(id(2, 14)),
        ]),
        Step::Vote(3),
        // The truncation goes back across two files, to exactly a rotate entry.
        Step::Truncate(Some(id(2, 13))),
        Step::Append(vec![blank(id(3, 14)), membership(id(3, 15), &[1, 2])]),
        Step::Append(run(3, 16, &[20, 20, 20])),
        Step::Committed(id(3, 18)),
        Step::Purge(id(1, 5)),
        Step::Purge(id(1, 10)),
        Step::Append(vec![rotate(id(3, 19)), transaction(id(3, 20), 60)]),
        Step::Committed(id(3, 20)),
        Step::Committed(id(3, 20)),
        Step::Committed(id(3, 20)),
        Step::Committed(id(3, 20)),
        Step::Committed(id(3, 20)),
        Step::Purge(id(3, 19)),
        Step::Vote(4),
        Step::Append(run(4, 21, &[10, 10])),
        // The purge is beyond the log's end, as after a snapshot.
        Step::Purge(id(4, 30)),
        Step::Append(vec![
            blank(id(4, 31)),
            transaction(id(4, 32), 500),
            rotate(id(4, 33)),
            blank(id(4, 34)),
        ]),
        Step::Vote(5),
        Step::Append(run(5, 35, &[70, 80])),
    ]
}

//! The interfaces of a member's log to the code around the consensus engine: where its files begin, its reports, its free
//! room, and whether it had to cut its end. Declared here, because the log answers and the consensus crate transports the answers.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use derive_more::Display;
use openraft::type_config::alias::SnapshotOf;
use openraft::{Snapshot, SnapshotMeta};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::entry::{Entry, StoredMembership, TypeConfig, Vote};
use crate::ids::OpId;

// The start of a log file: all that a log needs to begin there instead of at the first entry. A leader sends it, in place of a
// snapshot, to a member that needs purged entries: a log has no other state.

/// Where a file begins, and its first bytes, which are the same on every member.
#[derive(Clone, PartialEq, Eq)]
pub struct FileStart {
    /// The last entry before the file: the floor of a log that begins here. It is committed.
    pub before: OpId,
    /// The membership in force there.
    pub membership: StoredMembership,
    /// The file's header: which file of which ring it is, its format description, its previous GTIDs and
    /// its time. Only the log reads it.
    pub header: Bytes,
}

/// The content of a snapshot for the engine: where a log can begin instead of at its first entry.
/// None where a snapshot only marks up to where a log without files may be purged.
pub type OfferedStart = Option<FileStart>;

impl FileStart {
    /// The start as a snapshot for the engine.
    pub fn snapshot(self) -> SnapshotOf<TypeConfig, OfferedStart> {
        Snapshot {
            meta: SnapshotMeta {
                last_log_id: Some(self.before.into()),
                last_membership: self.membership.clone(),
            },
            snapshot: Some(self),
        }
    }
}

impl fmt::Debug for FileStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, bytes) = (self.before, self.header.len());
        write!(f, "FileStart(after {before}, header of {bytes} bytes)")
    }
}

/// A piece of a closed file of the log, for a member with a damaged copy. The entries around it identify the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The number in the file's name.
    pub file: u64,
    /// The entry before the file.
    pub before: Option<OpId>,
    /// The last entry of that file.
    pub last: OpId,
    /// The offset of the piece in the file.
    pub offset: u64,
}

/// A log's answer that takes time.
pub type FileStartAnswer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A log as a sequence of files; another member's log may begin with any of them.
pub trait FileStarts: Send + Sync + 'static {
    /// The first unpurged file start with a preceding entry that is `from` or a later one.
    /// None when nothing is purged and `from` is not given: then there is no
    /// need to begin later than at the first entry.
    ///
    /// # Errors
    /// The file cannot be read.
    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>>;

    /// Whether a log could begin with this start: its header is complete, of this ring, and matches it.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check_start(&self, start: &FileStart) -> io::Result<()>;

    /// Lets the log begin with this start; durable when it returns. A log that has the entry before the
    /// start only drops the entries up to there. Any other log loses all its entries: they are older
    /// than the start, and the ring no longer needs the committed ones.
    ///
    /// # Errors
    /// The log could not be re-created, and does nothing more. Repeating the call after a restart completes it.
    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()>;

    /// The doubt that the log may lack entries which it has acknowledged, until that is settled.
    fn doubted_tail(&self) -> Option<DoubtedTail>;

    /// Removes [`FileStarts::doubted_tail`] durably if the durable log ends at `from` or later; returns whether it is
    /// settled now.
    ///
    /// # Errors
    /// It could not be stored.
    fn settle_tail(&self, from: OpId) -> FileStartAnswer<'_, bool>;

    /// Records durably that the log may lack entries which it has acknowledged, in addition to an existing doubt.
    ///
    /// # Errors
    /// It could not be stored.
    fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()>;

    /// The record that this member reads after a restart, before it votes.
    fn election_notes(&self) -> ElectionNotes;

    /// Stores [`FileStarts::election_notes`]; durable when it returns.
    ///
    /// # Errors
    /// They could not be stored.
    fn note_elections(&self, notes: ElectionNotes) -> FileStartAnswer<'_, ()>;

    /// How far this member has durably come by now. Nothing where the log cannot report it.
    fn standing(&self) -> Option<Standing>;

    /// Bytes of a closed file whose entries are all committed, from an offset on; as many as are readily available.
    ///
    /// # Errors
    /// `NotFound` when the log does not have exactly that file; `Unsupported` when it has none; what the disk reports.
    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes>;
}

// A member's log's report without the engine: the stored vote and the terms of its
// durable entries. Two such reports show up to where two logs are equal (`consensus::log_probe`).

/// Consecutive entries of one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermRun {
    /// The term of all of these entries.
    pub term: u64,
    /// Index of the first entry.
    pub first: u64,
    /// Index of the last entry.
    pub last: u64,
}

/// The stored vote and the durable end of a log, read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogReport {
    /// The stored vote. `runs` never has an entry of a later leader next to an older vote,
    /// because a vote is stored before the entries that follow it.
    pub vote: Option<Vote>,
    /// The newest runs, oldest first, up to the last durable entry; [`REPORTED_RUNS`] at most.
    pub runs: Vec<TermRun>,
}

/// The most runs in a report. Logs of one ring differ in their newest terms only, and a
/// report travels with an answer.
pub const REPORTED_RUNS: usize = 16;

/// The result of reading entries.
pub type ReadingEntries<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Entry>, io::Error>> + Send + 'a>>;

/// A member's own log for the code outside the engine.
pub trait OwnLog: Send + Sync + 'static {
    /// The vote and the newest runs of one moment; only durable entries. Does no input or output.
    fn report(&self) -> LogReport;

    /// The entries of a range that the log has, from its start on; it may end early. Entries that are not
    /// durable yet are included.
    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_>;

    /// Changes with every append, to the index after the newest entry. From then on that entry can be read, durable or not.
    fn appended(&self) -> watch::Receiver<u64>;
}

// The current capacity of a member's log. Checked before anything is passed to the consensus engine: the log must accept
// all that the engine gets. The engine's only loop, which also answers heartbeats and votes, must not wait for the log.

/// Bytes that still fit on a log's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRoom {
    /// Room for proposals: what the limit and the free space leave without the reserve.
    pub transactions: u64,
    /// Room for entries that others proposed: includes the reserve, except the part kept for the entries
    /// which the ring writes itself.
    pub in_all: u64,
}

/// The approximate size of a transaction on the disk, rounded up: its marker, and a checksum for each event.
pub fn stored_bytes(payload: u64) -> u64 {
    payload.saturating_add(payload / 64).saturating_add(192)
}

/// A wait for a log to have room.
pub type WaitingForLog<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A log for the code that feeds its engine.
pub trait LogIntake: Send + Sync + 'static {
    /// The room on its disk. Reads the disk only where less than `needed` is known to be free.
    fn room(&self, needed: u64) -> LogRoom;

    /// Waits until entries of so many bytes may be passed on: until the pending writes leave room for them in memory,
    /// or nothing is pending. Cancel safe.
    fn queue_room(&self, bytes: u64) -> WaitingForLog<'_>;

    /// True if the log has exactly this entry, so that it takes no room.
    fn has(&self, entry: OpId) -> bool;
}

// A log that may lack entries at its end which it has acknowledged: it had to cut bytes, or was written without syncing when its
// machine stopped. Declared here, because the log detects and stores
// it, and the consensus engine acts on it.

/// A member's record for the next election, stored with the vote: it is read after a restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionNotes {
    /// The lease on which leaders may rely by this member's answered heartbeats; none where an earlier version answered them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Duration>,
    /// The entry that others have committed and this log lacks: the member votes for no log that ends before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elects_from: Option<OpId>,
}

/// A log's record of such a loss until it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtedTail {
    /// The term of the vote stored when the loss was found. A vote is stored, and synced, before the entries that follow
    /// it, so missing acknowledged entries are of this term or an earlier one. Where the vote may be missing as well, the
    /// latest term that others have recorded.
    pub term: u64,
    /// The data directory was restored to an earlier state, so the log's membership may be an earlier one, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub put_back: bool,
}

impl DoubtedTail {
    /// For a log of which only the end may be missing.
    pub fn of_term(term: u64) -> Self {
        Self {
            term,
            put_back: false,
        }
    }

    /// Both doubts combined.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            term: self.term.max(other.term),
            put_back: self.put_back || other.put_back,
        }
    }

    /// A log that ends here or later has all that it may have acknowledged, whatever the others report: it has an entry of a later
    /// term. That term's leader was elected without this member's vote, or by a safe vote. So it
    /// had all that was committed in earlier terms. A log with one of its entries has all before it, too.
    pub fn settled_from(&self) -> OpId {
        OpId::new(self.term + 1, 0)
    }
}

// How far a member has come. Its own log reports it, and others record it: declared here because both are asked.

/// How far a member has durably come. Within the life of a data directory this never decreases: no vote is lost, and
/// a leader never truncates what it had the member acknowledge. A later leader may cut the log; then the term is later.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Display, Serialize, Deserialize,
)]
#[display("term {term}{}", end.map(|end| format!(" and entry {end}")).unwrap_or_default())]
pub struct Standing {
    /// The term of its stored vote; 0 where it never voted. It is compared before the end.
    pub term: u64,
    /// The end of its log, or of the purged part.
    pub end: Option<OpId>,
}

impl Standing {
    /// The part that must be present again. An end of an earlier term need not be: the leader of the vote's term may still cut it.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self {
            end: self.end.filter(|end| end.term == self.term),
            ..self
        }
    }
}

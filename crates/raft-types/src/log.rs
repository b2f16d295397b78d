//! The interfaces of a member's log for the code around the consensus engine. They show where its files begin, its reports, its free room,
//! and whether it had to cut its end. They are declared in this crate, because the log implements them and the consensus crate uses them.

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

// The start of a log file: all data that a log needs to begin there instead of at the first entry. A leader sends it to a member that needs
// purged entries. It replaces a snapshot, because a log has no other state.

/// Where a file begins, and its first bytes, which are the same on every member.
#[derive(Clone, PartialEq, Eq)]
pub struct FileStart {
    /// The last entry before the file. It is committed, and becomes the purge floor of a log that begins here.
    pub before: OpId,
    /// The membership in force at that entry.
    pub membership: StoredMembership,
    /// The file's header: the ring, the file's number, its format description, its previous GTIDs and its time. Only the log reads it.
    pub header: Bytes,
}

/// The content of a snapshot for the engine: where a log can begin instead of at its first entry. `None` if the snapshot only marks up to
/// where a log without files may be purged.
pub type OfferedStart = Option<FileStart>;

impl FileStart {
    /// Returns the file start as a snapshot for the engine.
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

/// Identifies a piece of a closed file of the log, for a member with a damaged copy. The entries before and at the end of the file identify
/// its content.
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

/// The future of an answer that needs disk access.
pub type FileStartAnswer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A log as a sequence of files; another member's log may begin with any of them.
pub trait FileStarts: Send + Sync + 'static {
    /// Returns the first unpurged file start that follows `from` or a later entry. Returns `None` if nothing is purged and `from`
    /// is `None`, because a log then need not begin later than at the first entry.
    ///
    /// # Errors
    /// The file cannot be read.
    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>>;

    /// Checks that a log could begin with this file start: its header is complete, belongs to this ring, and matches the entry before it.
    ///
    /// # Errors
    /// The reason why a log cannot begin with it.
    fn check_start(&self, start: &FileStart) -> io::Result<()>;

    /// Makes the log begin with this file start; durable when it returns. If the log has the entry before the file start, only the entries
    /// up to that entry are dropped. Otherwise all entries of the log are dropped: they are older than the file start, and the ring no
    /// longer needs the committed ones.
    ///
    /// # Errors
    /// The log could not be created again, and accepts no more calls. Repeating the call after a restart completes it.
    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()>;

    /// Returns the doubt that the log may lack entries which it has acknowledged. `None` if there is none, or it is settled.
    fn doubted_tail(&self) -> Option<DoubtedTail>;

    /// Removes [`FileStarts::doubted_tail`] durably if the durable log ends at `from` or later. Returns true if no doubt is left.
    ///
    /// # Errors
    /// The change could not be stored.
    fn settle_tail(&self, from: OpId) -> FileStartAnswer<'_, bool>;

    /// Records durably that the log may lack entries which it has acknowledged, in addition to an existing doubt.
    ///
    /// # Errors
    /// The doubt could not be stored.
    fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()>;

    /// Returns the notes that this member reads after a restart, before it votes.
    fn election_notes(&self) -> ElectionNotes;

    /// Stores [`FileStarts::election_notes`]; durable when it returns.
    ///
    /// # Errors
    /// The notes could not be stored.
    fn note_elections(&self, notes: ElectionNotes) -> FileStartAnswer<'_, ()>;

    /// Returns the durable state of this member: its vote and the end of its log. `None` if the log cannot report it.
    fn standing(&self) -> Option<Standing>;

    /// Returns bytes of a closed file from an offset on, as many as are readily available. All entries of the file must be committed.
    ///
    /// # Errors
    /// `NotFound` if the log does not have exactly that file; `Unsupported` if the log has no files; otherwise the error of the disk.
    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes>;
}

// The report of a member's log, made without the engine: the stored vote and the terms of the durable entries. Two reports show up to where
// two logs are equal (`consensus::log_probe`).

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
    /// The stored vote. A vote is stored before the entries of its leader. So `runs` never has an entry of a later leader than the vote's.
    pub vote: Option<Vote>,
    /// The newest runs, oldest first, up to the last durable entry; [`REPORTED_RUNS`] at most.
    pub runs: Vec<TermRun>,
}

/// The maximum number of runs in a report, which is sent with an answer. Logs of one ring differ only in their newest terms.
pub const REPORTED_RUNS: usize = 16;

/// The result of reading entries.
pub type ReadingEntries<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Entry>, io::Error>> + Send + 'a>>;

/// A member's own log, for code outside the engine.
pub trait OwnLog: Send + Sync + 'static {
    /// Returns the vote and the newest runs of durable entries, read at one moment. Accesses no disk.
    fn report(&self) -> LogReport;

    /// Returns entries of a range, from its start on. The result may end before the range. Entries that are not durable yet are included.
    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_>;

    /// Returns a channel with the index after the newest entry, updated by every append. Entries before that index can be read, durable or
    /// not.
    fn appended(&self) -> watch::Receiver<u64>;
}

// The current capacity of a member's log. It is checked before an entry is passed to the consensus engine, because the log must accept all
// entries of the engine. The engine's only loop also answers heartbeats and votes, so it must not wait for the log.

/// Bytes that still fit on a log's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRoom {
    /// Room for proposals: the limit and the free space, minus the reserve.
    pub transactions: u64,
    /// Room for entries that other members proposed: includes the reserve, except the part that is kept for the ring's own entries.
    pub in_all: u64,
}

/// Returns the approximate size of a transaction on the disk, rounded up. It includes the marker, and a checksum for each event.
pub fn stored_bytes(payload: u64) -> u64 {
    payload.saturating_add(payload / 64).saturating_add(192)
}

/// The future of a wait until a log has room.
pub type WaitingForLog<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A log, for the code that passes entries to its engine.
pub trait LogIntake: Send + Sync + 'static {
    /// Returns the room on the log's disk. Reads the disk only if fewer than `needed` bytes are known to be free.
    fn room(&self, needed: u64) -> LogRoom;

    /// Waits until entries of `bytes` bytes may be passed on: the pending writes leave room in memory for them, or nothing is pending.
    /// Cancel safe.
    fn queue_room(&self, bytes: u64) -> WaitingForLog<'_>;

    /// Returns true if the log has exactly this entry, which then needs no more room.
    fn has(&self, entry: OpId) -> bool;
}

// A log that may lack acknowledged entries at its end. Either it had to cut bytes, or it was written without fsync when its host stopped.
// These types are in this crate, because the log detects and stores the doubt, and the consensus engine acts on it.

/// A member's notes for the next election. They are stored with the vote, and read after a restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionNotes {
    /// The longest lease that this member promises with its heartbeat answers; `None` if an earlier version answered heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Duration>,
    /// The entry that others have committed and this log lacks. The member does not vote for a log that ends before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elects_from: Option<OpId>,
}

/// A log's record that acknowledged entries may be missing, until this is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtedTail {
    /// The term of the vote that was stored when the loss was detected. A vote is stored and synced before the entries that follow it, so
    /// missing acknowledged entries are of this term or an earlier one. If the vote may be missing too, this is the latest term that others
    /// have recorded.
    pub term: u64,
    /// True if the data directory was restored to an earlier state. The log's membership may then be an earlier one, too.
    #[serde(rename = "put_back")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
}

impl DoubtedTail {
    /// Returns the doubt about a log in which only the end may be missing.
    pub fn of_term(term: u64) -> Self {
        Self {
            term,
            restored: false,
        }
    }

    /// Returns the combination of both doubts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            term: self.term.max(other.term),
            restored: self.restored || other.restored,
        }
    }

    /// Returns an end that settles this doubt: a log that ends there or later has all entries that it may have acknowledged. It has an
    /// entry of a later term. That term's leader was elected without this member's vote, or with a safe vote. So that leader had all
    /// entries that were committed in earlier terms. A log with one of its entries has all entries before it, too.
    pub fn settled_from(&self) -> OpId {
        OpId::new(self.term + 1, 0)
    }
}

// The state that a member has reached. Its own log reports it, and other members record it, so it is declared in this crate.

/// The durable state that a member has reached. While a data directory is in use, this never decreases: no vote is lost, and a leader never
/// truncates entries that the member acknowledged to it. A later leader may truncate the log; then the term is later.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Display, Serialize, Deserialize,
)]
#[display("term {term}{}", end.map(|end| format!(" and entry {end}")).unwrap_or_default())]
pub struct Standing {
    /// The term of the stored vote; 0 if the member never voted. It is compared before the end.
    pub term: u64,
    /// The end of the member's log, or of the purged part.
    pub end: Option<OpId>,
}

impl Standing {
    /// Returns the part that must never get lost. An end of an earlier term is not included, because the leader of the vote's term may
    /// still truncate it.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self {
            end: self.end.filter(|end| end.term == self.term),
            ..self
        }
    }
}

//! A member's log as the consensus engine's surroundings see it: where a file of it begins, what it says of itself, what it has
//! room for, and that it had to cut its end. Declared here, because the log answers and the consensus crate carries it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use openraft::type_config::alias::SnapshotOf;
use openraft::{Snapshot, SnapshotMeta};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::entry::{Entry, StoredMembership, TypeConfig, Vote};
use crate::ids::OpId;

// The start of a log file: all that a log needs to begin there instead of at the first entry. It is what a leader sends to a
// member whose entries are purged, in place of a snapshot: a log has no other state.

/// Where a file begins, and the bytes with which it begins on every member.
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

/// What the engine calls the content of a snapshot: where a log can begin instead of at its first entry.
/// None where a snapshot only marks up to where a log without files may be purged.
pub type OfferedStart = Option<FileStart>;

impl FileStart {
    /// The start as the engine takes it.
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
        write!(
            f,
            "FileStart(behind {}, header of {} bytes)",
            self.before,
            self.header.len()
        )
    }
}

/// A piece of a closed file of the log, for a member whose own copy is damaged. The entries around it say which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The number in the file's name.
    pub file: u64,
    /// The entry before the file.
    pub before: Option<OpId>,
    /// The last entry of that file.
    pub last: OpId,
    /// Where in it the piece begins.
    pub offset: u64,
}

/// A log's answer that takes time.
pub type FileStartAnswer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A log as a row of files, of which another member's log may begin with any.
pub trait FileStarts: Send + Sync + 'static {
    /// The first file start that the log has whose last entry before it is `from` or a later one, and
    /// that is not purged away. None when nothing is purged and `from` is not given: then there is no
    /// need to begin later than at the first entry.
    ///
    /// # Errors
    /// The file cannot be read.
    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>>;

    /// Whether a log could begin with this start: its header is whole, of this ring, and says the same.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check_start(&self, start: &FileStart) -> io::Result<()>;

    /// Lets the log begin with this start; durable when it returns. A log that has the entry before the
    /// start only forgets what comes up to there. Any other log loses all its entries: they are older
    /// than the start, and what the ring committed of them it has seen off.
    ///
    /// # Errors
    /// The log could not be made anew, and does nothing more. Asking again after a restart completes it.
    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()>;

    /// That the log may lack entries which it has acknowledged, until that is settled.
    fn doubted_tail(&self) -> Option<DoubtedTail> {
        None
    }

    /// Forgets [`FileStarts::doubted_tail`], durably, if the durable log ends at `from` or behind it; whether it is
    /// settled now.
    ///
    /// # Errors
    /// It could not be stored.
    fn settle_tail(&self, _from: OpId) -> FileStartAnswer<'_, bool> {
        Box::pin(async { Ok(true) })
    }

    /// Notes, durably, that the log may lack entries which it has acknowledged, besides what is in doubt already.
    ///
    /// # Errors
    /// It could not be stored.
    fn note_doubt(&self, _doubt: DoubtedTail) -> FileStartAnswer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// The record that this member reads after a restart, before it votes.
    fn election_notes(&self) -> ElectionNotes {
        ElectionNotes::default()
    }

    /// Stores [`FileStarts::election_notes`]; durable when it returns.
    ///
    /// # Errors
    /// They could not be stored.
    fn note_elections(&self, _notes: ElectionNotes) -> FileStartAnswer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// How far this member has come, durably and now. Nothing where the log cannot say.
    fn standing(&self) -> Option<Standing> {
        None
    }

    /// Bytes of a closed file whose entries are all committed, from an offset on; as many as are handy.
    ///
    /// # Errors
    /// `NotFound` when the log does not have that very file; `Unsupported` when it has none; what the disk reports.
    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes> {
        let _ = part;
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}

// What a member's log says of itself without the engine: which vote is stored and which terms its
// durable entries have. Two such reports tell up to where two logs are equal (`consensus::matching`).

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
    /// The stored vote. An entry that a later leader made is never in `runs` beside an older vote,
    /// because a vote is stored before the entries that follow it.
    pub vote: Option<Vote>,
    /// The newest runs, oldest first, up to the last durable entry; [`REPORTED_RUNS`] at most.
    pub runs: Vec<TermRun>,
}

/// How many runs a report has at most. Logs of one ring differ in their newest terms only, and a
/// report travels with an answer.
pub const REPORTED_RUNS: usize = 16;

/// What reading entries leads to.
pub type ReadingEntries<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Entry>, io::Error>> + Send + 'a>>;

/// A member's own log, as the parts beside the engine see it.
pub trait OwnLog: Send + Sync + 'static {
    /// The vote and the newest runs of one moment; only what is durable. Does no input or output.
    fn report(&self) -> LogReport;

    /// The entries of a range that the log has, from its start on; it may end early. What is not
    /// durable yet is included.
    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_>;

    /// Changes with every append, to the index behind the newest entry: it can be read from then on, durable or not.
    fn appended(&self) -> watch::Receiver<u64>;
}

// What a member's log can take at the moment. Asked before anything is given to the consensus engine: whatever the engine
// is given, the log has to take, and the engine's one loop, which also answers heartbeats and votes, must not wait for it.

/// Bytes that still fit on a log's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRoom {
    /// What may be proposed: what the limit and the free space leave beside the reserve.
    pub transactions: u64,
    /// What may be taken of what others proposed: the reserve as well, but for the part that is kept for the entries
    /// which the ring writes itself.
    pub in_all: u64,
}

impl LogRoom {
    /// The room of a log without a bound.
    pub const ENDLESS: Self = Self {
        transactions: u64::MAX,
        in_all: u64::MAX,
    };
}

/// About what a transaction of so many bytes takes on the disk, rather more: its marker, and a checksum for each event.
pub fn stored_bytes(payload: u64) -> u64 {
    payload.saturating_add(payload / 64).saturating_add(192)
}

/// A wait for a log to have room.
pub type WaitingForLog<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A log, as whoever feeds its engine sees it.
pub trait LogIntake: Send + Sync + 'static {
    /// The room on its disk. Looks at the disk only where less is known to be there than `needed`.
    fn room(&self, needed: u64) -> LogRoom;

    /// Waits until entries of so many bytes may be handed over: until what waits to be written leaves room for them in memory,
    /// or nothing waits any more. Cancel safe.
    fn queue_room(&self, bytes: u64) -> WaitingForLog<'_>;

    /// Whether the log has this very entry, so that it takes no room.
    fn has(&self, entry: OpId) -> bool;
}

// A log that may lack entries at its end which it has acknowledged: it had to cut bytes off, or was written without syncing when its
// machine stopped. Declared here, because the log finds it out
// and keeps it, and the consensus engine acts on it.

/// A member's record for the next election, stored with the vote: it is read after a restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionNotes {
    /// The lease that leaders may count on by the heartbeats that this member has answered; none where an earlier version answered them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Duration>,
    /// The entry that others have committed and this log lacks: the member votes for no log that ends before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elects_from: Option<OpId>,
}

/// What a log remembers of such a loss until it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtedTail {
    /// The term of the vote that was stored when that was found. A vote is stored, and synced, before the entries that follow
    /// it, so whatever was acknowledged and is missing is of this term or an earlier one. Where the vote may be missing as well, the
    /// latest term that others know of.
    pub term: u64,
    /// The data directory was put back to an earlier state, so that the log's membership may be one from before, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub put_back: bool,
}

impl DoubtedTail {
    /// Of a log whose end, and nothing else, may be missing.
    pub fn of_term(term: u64) -> Self {
        Self {
            term,
            put_back: false,
        }
    }

    /// Both doubts in one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            term: self.term.max(other.term),
            put_back: self.put_back || other.put_back,
        }
    }

    /// From this end on a log has everything that it may have acknowledged, whatever the others say: an entry of a later
    /// term is there. The leader of that term was elected without this member's vote, or by a vote that was safe, so it
    /// had all that was committed in earlier terms; and who has one of its entries has all before it, too.
    pub fn settled_from(&self) -> OpId {
        OpId::new(self.term + 1, 0)
    }
}

// How far a member has come. Its own log says it, and others remember it: declared here because both are asked.

/// How far a member has come, durably. Within the life of a data directory this never goes back: no vote is forgotten, and
/// of what one leader had it acknowledge, that leader takes nothing back. A later leader may cut the log; then the term is later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Standing {
    /// The term of its stored vote; 0 where it never voted. It counts before the end does.
    pub term: u64,
    /// The end of its log, or of what was purged of it.
    pub end: Option<OpId>,
}

impl Standing {
    /// What of it must be found again. An end of an earlier term does not have to: the leader of the vote's term may still cut it.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self {
            end: self.end.filter(|end| end.term == self.term),
            ..self
        }
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.end {
            Some(end) => write!(f, "term {} and entry {end}", self.term),
            None => write!(f, "term {}", self.term),
        }
    }
}

//! The types that all other crates share: member identities, the content of entries, and
//! openraft's parameters. It imports none of the other crates and does no input or output.

mod entry;
mod format;
mod history;
mod ids;
mod log;
mod member_record;
mod proposal;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crate::entry::{
    AppEntry, AssemblyError, CommittedLeaderId, Entry, EntryPayload, LogId, MAX_MESSAGE_BYTES,
    MAX_TRANSACTION_BYTES, Membership, MembershipPayload, PayloadAssembly, PayloadChecksumError,
    ProposalListener, ProposalResponder, ProposalSequence, REPLICATION_WINDOW_BYTES, Rotate,
    SLOWEST_DISK_BYTES_PER_S, StoredMembership, TransactionPayload, TypeConfig, Vote,
};
pub use crate::format::{FormatMismatch, FormatRange, FormatVersion, NoFormatRange, Program};
pub use crate::history::{HistoryEntry, HistoryEvent, Named};
pub use crate::ids::{Incarnation, MemberId, NotAnOpId, OpId, Region, RingId, Term};
pub use crate::log::{
    DoubtedTail, ElectionNotes, FilePart, FileStart, FileStartAnswer, FileStarts, LogIntake,
    LogReport, LogRoom, OfferedStart, OwnLog, REPORTED_RUNS, ReadingEntries, Standing, TermRun,
    WaitingForLog, stored_bytes,
};
pub use crate::member_record::{
    AddressMistake, Extras, MemberKind, MemberRecord, Pause, UnixSeconds, host_and_port,
};
pub use crate::proposal::{Outcome, Refusal, Ticket, Unknown};

/// Locks a value, and ignores a panic of an earlier holder. The value must be consistent at all times: each change is one assignment, or
/// cannot panic.
pub fn lock<T: ?Sized>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

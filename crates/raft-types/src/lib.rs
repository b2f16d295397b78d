//! The vocabulary that every other crate shares: who a member is, what an entry carries, and how
//! openraft is parameterised. It imports none of the other crates and does no input or output.

mod bounds;
mod doubted_tail;
mod entry;
mod extras;
mod file_start;
mod ids;
mod log_intake;
mod log_report;
mod member_record;
mod op_id;
mod pause;
mod payload;
mod proposal;
mod type_config;

pub use bounds::{MAX_MESSAGE_BYTES, MAX_TRANSACTION_BYTES, REPLICATION_WINDOW_BYTES};
pub use doubted_tail::DoubtedTail;
pub use entry::{AppEntry, PayloadAssembly, PayloadChecksumError, Rotate, TransactionPayload};
pub use extras::Extras;
pub use file_start::{FilePart, FileStart, FileStartAnswer, FileStarts, OfferedStart};
pub use ids::{Incarnation, MemberId, Region, RingId};
pub use log_intake::{LogIntake, LogRoom, WaitingForLog, stored_bytes};
pub use log_report::{LogReport, OwnLog, REPORTED_RUNS, ReadingEntries, TermRun};
pub use member_record::{MemberKind, MemberRecord};
pub use op_id::OpId;
pub use pause::{Pause, PauseMark, UnixSeconds};
pub use payload::{EntryPayload, MembershipPayload};
pub use proposal::{ProposalListener, ProposalResponder};
pub use type_config::{
    CommittedLeaderId, Entry, LogId, Membership, StoredMembership, TypeConfig, Vote,
};

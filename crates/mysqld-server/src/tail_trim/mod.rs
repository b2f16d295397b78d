//! Rejoin by tail trim. In recovery, a stock mysqld commits every transaction of its last binlog file, acknowledged or not. So before each
//! start, the member asks the ring which transactions are committed, and cuts the file at the first transaction that the ring lacks. The
//! storage engines then roll that transaction and all later ones back. The member's data directory keeps the tail. Transactions that the
//! engines had committed nevertheless are restored.
//!
//! The pure `plan` decides. Without proof that a cut is correct, nothing is cut.

mod cut;
#[cfg(feature = "fuzzing")]
#[path = "../../../../lab/fuzz/inside/mysqld_server_tail_trim.rs"]
pub(crate) mod fuzzing;
mod last_file;
mod plan;
mod restore;
mod trim;
mod undo;

pub use crate::tail_trim::cut::{ErrantFile, ErrantFiles, TrimmedTail, errant_files, lock_data};
pub use crate::tail_trim::plan::{FileOffset, Keep, Plan, Refusal, of_source};
pub use crate::tail_trim::restore::{CheckStartError, check_start, restore};
pub use crate::tail_trim::trim::{
    EncryptedInUse, StartRecord, TailTrimOptions, Trimmed, last_written, record_after_rotation,
    record_in_use, record_start, survey, trim_last,
};
pub use crate::tail_trim::undo::{NotUndone, changes_no_data};

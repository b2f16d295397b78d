//! Rejoin by tail trim. A stock mysqld commits at its recovery what stands in its last binlog file,
//! acknowledged or not. So before each of its starts the ring is asked what it has committed, and the
//! file is cut at the first transaction that it has not; the storage engines then roll it back. What
//! is cut is kept beside the member's data. Transactions that the engines had committed all the same are restored. What to do is decided in `plan`, pure; where it cannot be
//! proved right, nothing is cut.

mod cut;
#[cfg(feature = "fuzzing")]
#[path = "../../../../lab/fuzz/inside/mysqld_controller_tail_trim.rs"]
pub(crate) mod fuzzing;
mod guard;
mod history;
mod last_file;
mod plan;
mod restore;
mod undo;

pub use crate::tail_trim::cut::{ErrantFile, ErrantFiles, TrimmedTail, errant_files};
pub use crate::tail_trim::guard::{ProtectionStart, TailTrim, TailTrimOptions, lock_data};
pub use crate::tail_trim::plan::{FileOffset, Keep, Plan, Refusal};
pub(crate) use crate::tail_trim::undo::changes_no_data;

//! Rejoin by tail trim. A stock mysqld commits at its recovery what stands in its last binlog file,
//! acknowledged or not. So before each of its starts the ring is asked what it has committed, and the
//! file is cut at the first transaction that it has not; the storage engines then roll it back. What
//! is cut is kept beside the member's data. What to do is decided in `plan`, pure; where it cannot be
//! proved right, nothing is cut.

mod carrier;
mod errant_files;
mod guard;
mod history;
mod kept_tail;
mod last_file;
mod open_transaction;
mod plan;
mod protection_start;
mod undo;

pub use errant_files::{ErrantFile, errant_files};
pub use guard::{TailTrim, TailTrimOptions};
pub use kept_tail::TrimmedTail;
pub use plan::{FileOffset, Keep, Plan, Refusal};
pub use protection_start::ProtectionStart;

//! The log as a backup: which parts of a ring's log are in object storage, what each of them holds, and whether they are one
//! chain without a gap.
//!
//! The log is archived in **pieces**, ranges of bytes of its files that begin and end between entries. A piece is two objects,
//! its bytes (compressed) and a manifest, which is written last: what has no manifest is not in the archive. Pieces are never
//! changed. The bytes of committed entries are the same on every member, so that two members that archive at the same moment
//! write the same, and whoever goes on begins where the names say that the one before has stopped. What is deleted again is either
//! replaced by a whole file or lies before the archive's begin, which a name says, too.

pub mod archiver;
pub mod base_backup;
pub mod chain;
mod cloud;
pub mod contents;
pub mod encryption;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/archive.rs"]
pub mod fuzzing;
pub mod manifest;
pub mod name;
pub mod next_piece;
pub mod pruning;
pub mod reading;
pub mod retention;
pub mod sealed;
pub mod serving;
pub mod storage;

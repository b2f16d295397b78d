//! The log as a backup: lists which parts of a ring's log are in object storage and what they contain, and whether they form one gapless
//! chain.
//!
//! The log is archived in **pieces**: byte ranges of its files, from one entry boundary to another. A piece is two objects: its compressed
//! bytes, and a manifest, which is written last. A piece without a manifest is not in the archive. Pieces never change. Bytes of committed
//! entries are the same on every member, so concurrent archivers write the same objects. The names of the pieces show where the previous
//! archiver stopped, and the next one continues there. A piece is deleted only if a whole file replaces it, or if it is before the
//! archive's begin, which another object's name records.

pub mod archiver;
pub mod base_backup;
pub mod chain;
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
pub mod restore;
pub mod retention;
pub mod sealed;
pub mod serving;
pub mod storage;
mod storage_settings;

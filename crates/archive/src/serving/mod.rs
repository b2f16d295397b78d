//! Serves files of the log that only the archive still has: which these are, and each of them on a disk, whole and verified, for as
//! long as somebody reads it.
//!
//! What is served is what goes on without a gap up to the first file of a member's own log: whole files of the archive's newest
//! history, the last one of which ends with the entry and the GTIDs that the member's first file names. What lies before a gap is
//! not there.

mod cache;
mod error;
mod older_files;
mod served_archive;

pub use self::cache::{CacheOptions, Held};
pub use self::error::ServingError;
pub use self::older_files::{ArchivedFile, OlderFiles, Stops};
pub use self::served_archive::{Opens, ServedArchive, ServingFigures};

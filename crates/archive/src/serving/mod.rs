//! Serves log files that only the archive still has: lists them, and keeps each one whole and verified on disk while it is read.
//!
//! The served files precede a member's log without a gap. They are whole files of the archive's newest history, and the last ends with the
//! entry and the GTIDs that the member's first file names. Files before a gap are not served.

mod cache;
mod error;
mod older_files;
mod served_archive;

pub use self::cache::{CacheOptions, Held};
pub use self::error::ServingError;
pub use self::older_files::{ArchivedFile, OlderFiles, Stops};
pub use self::served_archive::{Opens, ServedArchive, ServingFigures};

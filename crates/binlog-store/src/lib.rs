//! The durable Raft log in MySQL binlog files: openraft's log storage over them, recovery, truncation and purge. A member opens a
//! [`BinlogStore`], passes it to the engine, and keeps a [`LogHandle`].
//!
//! All disk access goes through two interfaces, [`FileSystem`] and [`MetaStore`]. The invariants: an acknowledged entry or vote survives
//! any crash, the log never has a gap, equal logs are byte-identical, and damage is always reported.

mod cut_tail;
mod directory;
mod disk_space;
mod error;
mod file_system;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/binlog_store.rs"]
pub mod fuzzing;
mod handle;
mod hard_state;
mod log;
mod options;
mod purge;
mod read_faults;
mod reader;
mod recovery;
mod scan;
mod scrub;
mod shared;
mod stats;
mod store;
mod writer;

pub use crate::cut_tail::{CutPart, CutTail};
pub use crate::directory::{
    DirectoryError, EntryCursor, EntryRecord, FileDifference, FileListing, Followed, Follower,
    LogDirectory, Side, Sought, VerifyReport,
};
pub use crate::error::{CutBackError, DiskError, OpenError, StoreError};
pub use crate::file_system::{DiskFileSystem, FileSystem, StorageFile};
pub use crate::format::{
    ContentFault, FileHeader, FileNumber, InvalidEntry, InvalidFileNumber, MARKER_BODY_LEN,
    MARKER_LAYOUTS, MARKER_MAGIC, Marker, MarkerError, MarkerKind,
};
pub use crate::handle::{CurrentFile, FileSize, FileWithin, LogBegin, LogHandle};
pub use crate::hard_state::{MetaStore, SledMeta};
pub use crate::log::LogPlace;
pub use crate::options::{
    Durability, ProgressCallback, StoreOptions, VerifyAtStart, VerifyProgress, WriterMode,
};
pub use crate::purge::{NotArchived, PurgeHold, PurgeLimit, PurgePlan, PurgePolicy, StillNeeded};
pub use crate::read_faults::ReadFault;
pub use crate::reader::LogReader;
pub use crate::recovery::{
    IndexState, MetaState, RECOVERY_CASES, RecoveryCase, RecoveryReport, TailCut, TailState,
    Verdict, boot_id, judge,
};
pub use crate::scan::{Corruption, Fault, FaultKind};
pub use crate::scrub::{FileRepair, ScrubProgress, ScrubStep};
pub use crate::stats::{FlushSample, StoreObserver, StoreStats};
pub use crate::store::BinlogStore;

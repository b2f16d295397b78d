//! The durable Raft log in MySQL binlog files: openraft's log storage over them, recovery, truncation
//! and purge. A member opens a [`BinlogStore`], hands it to the engine, and keeps a [`LogHandle`].
//!
//! Below are two seams, [`FileSystem`] and [`MetaStore`]; nothing else here touches a disk. What must
//! hold: an acknowledged entry or vote survives any crash, the log never has a gap, equal logs are
//! equal files byte for byte, and damage is never silent.

mod committed_files;
mod cut_tail;
mod directory;
mod disk_budget;
mod disk_file_system;
mod disk_space;
mod error;
mod file_handles;
mod file_repair;
mod file_starts;
mod file_system;
mod format;
mod handle;
mod hard_state;
mod log;
mod meta_store;
mod options;
mod purge;
mod read_faults;
mod reader;
mod recovery;
mod scan;
mod scrub;
mod shared;
mod sled_meta;
mod stats;
mod store;
mod writer;

pub use committed_files::{FileSize, FileWithin};
pub use cut_tail::{CutPart, CutTail};
pub use directory::{
    DirectoryError, EntryCursor, EntryRecord, FileDifference, FileListing, Followed, Follower,
    LogDirectory, Side, Sought, VerifyReport,
};
pub use disk_file_system::DiskFileSystem;
pub use error::{CutBackError, OpenError, StoreError};
pub use file_repair::FileRepair;
pub use file_system::{FileSystem, StorageFile};
pub use format::{
    FileHeader, FileNumber, IndexDamage, InvalidEntry, MARKER_BODY_LEN, MARKER_MAGIC,
    MARKER_VERSION, Marker, MarkerError, MarkerKind,
};
pub use handle::{CurrentFile, LogHandle};
pub use log::LogPlace;
pub use meta_store::MetaStore;
pub use options::{
    Durability, OptionsError, ProgressCallback, StoreOptions, VerifyAtStart, VerifyProgress,
    WriterMode,
};
pub use purge::{PurgeHold, PurgeLimit, PurgePlan, PurgePolicy, StillNeeded};
pub use read_faults::ReadFault;
pub use reader::LogReader;
pub use recovery::{
    INDEX_CASES, IndexCase, IndexState, MetaState, RECOVERY_CASES, RecoveryCase, RecoveryReport,
    TailCut, TailState, Verdict, judge,
};
pub use scan::{Corruption, Fault, FaultKind};
pub use scrub::{ScrubProgress, ScrubStep};
pub use sled_meta::SledMeta;
pub use stats::{FlushSample, StoreObserver, StoreStats};
pub use store::BinlogStore;

//! The durable Raft log in MySQL binlog files: openraft's log storage over them, recovery, truncation and purge.

mod disk_file_system;
mod file_system;
mod meta_store;
mod sled_meta;

pub use disk_file_system::DiskFileSystem;
pub use file_system::{FileSystem, StorageFile};
pub use meta_store::MetaStore;
pub use sled_meta::SledMeta;

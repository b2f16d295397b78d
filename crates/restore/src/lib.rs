//! Point-in-time recovery: a new data directory for mysqld, from a base backup and the log after it, both from the archive.
//!
//! ```text
//!  target ► point ► plan ► base backup into the directory ► log next to it ► mysqld, to which the log is applied ► verified
//!  └ pure, over manifests; one piece of the log is read   └ everything that is read is verified
//! ```
//!
//! A *target* is the operator's request: a time, transactions, or the whole archive. The *point* is its position in the log: exactly
//! these transactions, which the restored server has at the end.

pub mod plan;
pub mod point;
pub mod restoring;
pub mod scratch_server;
pub mod unread;

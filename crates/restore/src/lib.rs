//! Point-in-time recovery: a new data directory for mysqld, made of a base backup and the log behind it, both from the archive.
//!
//! ```text
//!  target ► point ► plan ► base backup into the directory ► log beside it ► mysqld, to which the log is applied ► verified
//!  └ pure, over manifests; one piece of the log is read   └ everything that is read is verified
//! ```
//!
//! A *target* is what an operator asks for: a time, transactions, or all that there is. The *point* is what the log has there: exactly
//! these transactions, which the restored server has at the end, no more and no fewer.

pub mod plan;
pub mod point;
pub mod restoring;
pub mod scratch_server;
pub mod unread;

//! Serves a member's log over MySQL's protocol, so that any stock replica, `mysqlbinlog` or change-data consumer can attach to it. Only
//! committed events are served. The crate does not depend on the consensus code: it reads a [`CommittedFiles`], and passes two statements
//! to [`LogCommands`].
//!
//! Clients are not trusted. Every packet, statement and wait has a limit. A client that does not read costs only its own queue.

mod answers;
mod committed_files;
mod consumers;
mod dump;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/binlog_server.rs"]
pub mod fuzzing;
mod options;
mod server;
mod session;
mod statement;

pub use crate::committed_files::{
    CatchUpError, CommandError, CommittedFiles, FileNumber, KeptFile, LogCommands, LogFile,
    Position, PurgeTo, ReadError,
};
pub use crate::consumers::{ConsumerView, Consumers, DumpKind};
pub use crate::options::{Account, ServerIdentity, ServerOptions, ServerTls};
pub use crate::server::BinlogServer;

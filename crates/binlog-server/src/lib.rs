//! A member's log over MySQL's protocol: any stock replica, `mysqlbinlog` or change-data consumer attaches to it.
//! Only what is committed is served. The crate knows nothing of consensus: it reads a [`CommittedFiles`] and hands two
//! orders on to [`LogCommands`].
//!
//! What to fear: clients are not trusted. Every packet, statement and wait has a bound, and a client that does not read
//! costs its queue and nothing else.

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

//! A member's log over MySQL's protocol: any stock replica, `mysqlbinlog` or change-data consumer attaches to it.
//! Only what is committed is served. The crate knows nothing of consensus: it reads a [`CommittedLog`] and hands two
//! orders on to [`LogCommands`].
//!
//! What to fear: clients are not trusted. Every packet, statement and wait has a bound, and a client that does not read
//! costs its queue and nothing else.

mod answers;
mod committed_log;
mod consumers;
mod dump;
mod log_commands;
mod options;
mod server;
mod session;
mod statement;
mod tls;

pub use committed_log::{CommittedLog, FileNumber, KeptFile, LogFile, Position, ReadError};
pub use consumers::{ConsumerView, Consumers, DumpKind};
pub use log_commands::{LogCommands, PurgeTo};
pub use options::{Account, OptionsError, ServerCertificate, ServerIdentity, ServerOptions};
pub use server::{BinlogServer, ServerError};
pub use tls::TlsError;

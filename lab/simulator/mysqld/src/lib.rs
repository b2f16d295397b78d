//! A model of mysqld: one server in this process, without its own threads, clocks or randomness, with MySQL's protocol over any byte
//! stream. Its behaviour follows `docs/mysqld-facts.md`; the tests run the same scenarios on both.
//!
//! Its data are lists of numbers: a transaction appends to lists, and reads them. Everything else is modelled as far as members use it: the
//! binlog in real files, semi-synchronous commits, dumps, replica threads, `super_read_only`, sessions, and a crash at any moment.
//!
//! ```text
//! connection, dump     the protocol, one future for each connection
//! statement            SQL into statements
//! execution, tables    statements into answers
//! writing, commits     row locks, the binlog's commit queue, and the wait for an ACK
//! copying, accounts    another server's data in the place of its own
//! replica, plain_source   replica threads, and another server as their source
//! engine, binlog       what outlives the process
//! ```

mod accounts;
mod answers;
mod binlog;
mod client;
mod commits;
mod connection;
mod copying;
mod dump;
mod engine;
mod execution;
mod lists;
mod options;
mod plain_source;
mod process;
mod replica;
mod server;
mod sessions;
mod statement;
mod tables;
mod variables;
mod writing;

pub use crate::answers::SqlError;
pub use crate::client::{ClientSession, Reads, Transaction};
pub use crate::lists::{Lists, SCHEMA, TABLE, appends_of, table_statements};
pub use crate::options::{Account, FindServer, MysqldOptions, Rights};
pub use crate::process::{LostTail, Mysqld};
pub use crate::replica::ReplicaSource;

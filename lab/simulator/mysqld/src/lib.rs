//! A model of mysqld: one server within this process that supports MySQL's protocol over any byte stream. It has no threads, clocks or
//! random numbers of its own. Its behaviour follows `docs/mysqld-facts.md`. The tests run the same scenarios on the model and on a real
//! mysqld.
//!
//! The data of the model are lists of numbers. Transactions append to lists and read lists. The model also covers what members use of
//! mysqld: the binlog in real files, semi-synchronous commits, dumps, replica threads, `super_read_only`, sessions, and a crash at any
//! moment.
//!
//! ```text
//! connection, dump     the protocol, with one future for each connection
//! statement            parses SQL
//! execution, tables    execute statements and return answers
//! writing, commits     row locks, the binlog's commit queue, and the wait for an ACK
//! copying, accounts    clones of another server's data, and accounts
//! replica, plain_source   replica threads, and another server as their source
//! engine, binlog       the data that survives the process
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

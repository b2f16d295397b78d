//! A stock MySQL server: transactions reach it over ordinary connections.
//!
//! ```text
//! BINLOG '<table maps and rows in base64>' ; UPDATE witness_applier.checkpoint … ; COMMIT     a batch, as one transaction
//! SET gtid_next='…' ; BINLOG '…' ; COMMIT                                                     one by one
//! ```
//!
//! `BINLOG` is the server's own row applier, without SQL to parse and exact in every type; `gtid_next` keeps the identifier.
//! All of it goes as statements of one packet, because the server stops at the first failure: a COMMIT in a packet of its
//! own would commit the partial result of a failed BINLOG (`docs/mysqld-facts.md`).

mod backend;
mod barrier;
mod checkpoint;
mod culprit;
mod for_good;
mod foreign_keys;
#[cfg(feature = "fuzzing")]
#[path = "../../../../lab/fuzz/inside/applier_mysql.rs"]
pub(crate) mod fuzzing;
mod invoker;
mod lock_holders;
mod options;
mod outcome;
mod patience;
mod preparation;
mod publishing;
mod row_run;
mod session;
mod statement_context;
mod table_shape;

pub use crate::mysql::backend::MysqlBackend;
pub use crate::mysql::options::{MysqlOptions, lacks_for_rows};
pub use crate::mysql::publishing::complete_gtid_executed;
pub use crate::mysql::session::MysqlSession;

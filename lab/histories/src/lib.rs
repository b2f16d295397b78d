//! Checks the results that clients got against a database's promises. Clients append numbers to lists, and read lists, in transactions. A
//! read list shows the order of its appends, so that the order of the transactions follows from the reads. The idea is Elle's: Kingsbury
//! and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020. [`check()`] finds anomalies that no serial
//! order explains.
//!
//! # Promises
//! * Transactions at the primary, at MySQL's isolation level `SERIALIZABLE`, are strictly serializable: they take effect sequentially, each
//!   between its begin and its answer.
//! * Reads at a follower see a prefix of that order, however old, and never go back at the same server.
//! * Acknowledged appends are present once, and refused ones are absent.

mod check;
mod graph;
mod history;

pub use crate::check::{Anomaly, Circle, check, check_in_words};
pub use crate::history::{Access, List, Operation, Outcome, Transaction, Value};

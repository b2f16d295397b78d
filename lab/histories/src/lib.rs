//! Checks whether a database kept its promises, from the results that its clients received. In their transactions, the clients append
//! numbers to lists and read lists. A read list shows the order of its appends, and so the order of the transactions. The method is Elle's:
//! Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020. [`check()`] finds anomalies that
//! no serial order explains.
//!
//! # Promises
//! * Transactions at the primary, at MySQL's isolation level `SERIALIZABLE`, are strictly serializable: they take effect sequentially, each
//!   between its begin and its answer.
//! * Reads at a follower return a prefix of that order, of any age. Later reads at the same follower never return a shorter prefix.
//! * Acknowledged appends are present once. Appends of failed transactions are absent.

mod check;
mod graph;
mod history;

pub use crate::check::{Anomaly, Circle, check, check_in_words};
pub use crate::history::{Access, List, Operation, Outcome, Transaction, Value};

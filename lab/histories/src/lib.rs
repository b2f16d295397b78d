//! What clients were told, held against what a database promises. Clients append numbers to lists, and read lists, in transactions;
//! a list that is read says which appends came before which others, so that the order of the transactions can be told from what
//! was read (the idea is that of Elle: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations",
//! VLDB 2020). [`check()`] finds what no serial order explains.
//!
//! # What is promised
//! * Transactions at the primary, at MySQL's isolation level `SERIALIZABLE`, are strictly serializable: they take effect one
//!   after the other, each between its begin and its answer.
//! * Reads at a follower see a prefix of that order, as old as it may be, and never go back at the same server.
//! * What was acknowledged is there, once, and what was refused is not.

mod check;
mod graph;
mod history;

pub use crate::check::{Anomaly, Circle, check, check_in_words};
pub use crate::history::{Access, List, Operation, Outcome, Transaction, Value};

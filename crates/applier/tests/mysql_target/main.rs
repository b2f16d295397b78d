//! Applies the log of one real mysqld to another one through the backend, and checks that both are equal.

#![allow(clippy::unwrap_used, reason = "all of this is test")]

mod answers_of_a_barrier;
mod blockers;
mod chained_targets;
mod columns_of_every_type;
mod commits_as_one;
mod foreign_keys;
mod interruptions;
mod keys_and_statements;
mod pair;
mod refusals;
mod rights;
mod session_variables;
mod sizes;
mod table_shapes;
mod what_mysqld_does;
mod without_transactions;

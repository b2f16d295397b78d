//! Tests the facts in `docs/mysqld-facts.md` that the model relies on. Each fact is a scenario, which runs on the model and on a real
//! mysqld.

#![allow(clippy::unwrap_used, reason = "all of this is test")]

mod commits;
mod copies;
mod dumps;
mod ends;
mod plain_replication;
#[path = "../../../../../crates/mysqld-controller/tests/beside_a_mysqld/ring_in_memory.rs"]
#[allow(dead_code, reason = "shared with the tests of a mysqld")]
mod ring_in_memory;
mod sessions;
mod stage;
mod the_model_alone;
mod the_product;
mod waiting_commits;

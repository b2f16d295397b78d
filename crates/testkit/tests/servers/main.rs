//! Tests of the fixtures for a real mysqld.

mod mysqld_lifecycle;
mod mysqld_load_and_replication;

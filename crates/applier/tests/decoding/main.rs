//! Tests the decoder and the keys of rows, alone and against the logs and comparisons of a real mysqld.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod any_bytes;
mod collations_of_a_mysqld;
mod conflicts_share_keys;
mod images;
mod keys_of_rows;
mod shapes;
mod synthesised_transactions;
mod transactions_of_a_mysqld;

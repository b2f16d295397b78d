//! The decoder and the keys of rows: by themselves, and compared with a real mysqld's logs and comparisons.
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

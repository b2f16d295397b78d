//! Synthesized transactions equal a server's, and a server applies them.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod event_bytes;
mod own_transactions;
mod stock_mysqld;

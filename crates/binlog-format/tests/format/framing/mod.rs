//! Tests which events form a transaction, which are separate items, and which are refused.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod refusals;
mod shapes;
mod source;

//! Which events make a transaction, which come out by themselves, and what is refused.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod refusals;
mod shapes;
mod source;

//! Tests of both ends, the leader's and the proxy's, over a network in memory. The clock advances only when no task can continue.

#![allow(clippy::unwrap_used, reason = "these are tests, their helpers too")]

mod support;

mod carried;
mod dropped;
mod failing;
mod hops;
mod refused;
mod waiting;
mod window;

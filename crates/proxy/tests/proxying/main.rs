//! The leader's and the proxy's ends together, over a network in memory and with a clock that only advances when nothing else
//! happens.

#![allow(clippy::unwrap_used, reason = "these are tests, their helpers too")]

mod support;

mod carried;
mod dropped;
mod failing;
mod hops;
mod refused;
mod waiting;
mod window;

//! How a new leader finds each follower's matching point from one real exchange.
//!
//! The engine searches it by bisection, one round trip a step, so that a crash failover across regions
//! would last the longer the longer the log is. Here a network stands in front of the real one: an
//! answer brings the follower's [`raft_types::LogReport`], two reports tell where the logs part
//! (`common_run`), and the steps of the search are answered from that (`knowledge`, which has the two
//! rules that make it sound). What must go out goes out with the rest of the log (`widening`), and a new
//! leader sends its newest entries before it is asked (`tail_push`).
//!
//! [`LogProbe`] is put around the factory with which a member is started. For that the network has to be
//! a [`ReportingNetwork`]: the sending end hands on which requests want a report and gives it back with the
//! answer, the receiving end reads [`raft_types::OwnLog::report`] when its engine has answered. Heartbeats
//! go past it.

mod client;
mod common_run;
pub(crate) mod divergence;
mod knowledge;
mod reporting;
mod shared;
mod tail_push;
mod widening;

pub use client::{LogProbe, LogProbeClient};
pub use reporting::{Answered, Asked, ReportingNetwork, RpcResult};

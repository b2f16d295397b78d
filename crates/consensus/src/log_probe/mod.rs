//! How a new leader finds each follower's matching point from one real exchange.
//!
//! The engine searches for it by bisection, one round trip a step. So the time of a crash failover across regions
//! would grow with the log's length. This network wraps the real one. An
//! answer carries the follower's [`raft_types::LogReport`], and two reports show the matching point
//! (`last_in_common`). The steps of the search are answered from that (`knowledge`, with the two
//! rules that make it sound). Requests that must be sent carry the rest of the log (`widen`). A new
//! leader sends its newest entries before it is asked (`tail_push`).
//!
//! [`LogProbe`] wraps the factory with which a member is started. The network must be
//! a [`ReportingNetwork`]: the sending end passes on which requests want a report and returns it with the
//! answer; the receiving end reads [`raft_types::OwnLog::report`] when its engine has answered. Heartbeats
//! bypass it; only a conflict in their answers is used.

mod client;
mod knowledge;
mod shared;
mod tail_push;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use openraft::errors::RPCError;
use openraft::network::{
    NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use raft_types::{LogReport, OfferedStart, TypeConfig};

pub use crate::log_probe::client::{LogProbe, LogProbeClient};

// The interface to the real network: what [`super::LogProbe`] needs beyond the engine's traits.

/// The result of a call of the engine's network.
pub type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// A request, and whether its answer should bring the follower's report.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The engine's request, unchanged.
    pub request: AppendEntriesRequest<TypeConfig>,
    /// Set on few requests: the first of a stream.
    pub wants_report: bool,
    /// How much of it has been sent, for an observer.
    pub departure: Departure,
}

impl Asked {
    /// A request without an observer of its departure.
    pub fn new(request: AppendEntriesRequest<TypeConfig>, wants_report: bool) -> Self {
        Self {
            request,
            wants_report,
            departure: Departure::default(),
        }
    }
}

/// How much of a request that travels in pieces has been sent. The creator of the request may read it. A sending network
/// may count or not; without a count nothing seems to have left. The default is not observed.
#[derive(Debug, Clone, Default)]
pub struct Departure(Option<Arc<Departed>>);

#[derive(Debug, Default)]
struct Departed {
    pieces: AtomicU64,
    all: AtomicBool,
}

impl Departure {
    /// A departure that is observed.
    pub fn watched() -> Self {
        Self(Some(Arc::default()))
    }

    /// A piece of the request was handed to the connection; `last` for the last one.
    pub fn piece_left(&self, last: bool) {
        // No other memory is read based on it.
        if let Some(departed) = &self.0 {
            departed.pieces.fetch_add(1, Ordering::Relaxed);
            departed.all.fetch_or(last, Ordering::Relaxed);
        }
    }

    /// How many pieces have left.
    pub fn pieces(&self) -> u64 {
        let departed = self.0.as_ref();
        departed.map_or(0, |departed| departed.pieces.load(Ordering::Relaxed))
    }

    /// True if the last piece has left.
    pub fn is_over(&self) -> bool {
        let departed = self.0.as_ref();
        departed.is_some_and(|departed| departed.all.load(Ordering::Relaxed))
    }
}

/// An answer, and the report if one was asked for and given.
#[derive(Debug, Clone)]
pub struct Answered {
    /// What the follower's engine answered.
    pub result: StreamAppendResult<TypeConfig>,
    /// [`raft_types::OwnLog::report`] of the follower, read *after* its engine had answered.
    pub report: Option<LogReport>,
}

/// A network that delivers reports.
///
/// A follower's end reads its log's report after the engine's answer to a request that wants one, and sends both
/// together. A report may be left out; then the engine searches itself.
/// A request may be cut into several, each with an answer. The answers must come in order, and the
/// last one must be for the request's last entry.
pub trait ReportingNetwork:
    NetBackoff<TypeConfig>
    + NetStreamAppend<TypeConfig>
    + NetVote<TypeConfig>
    + NetSnapshot<TypeConfig, SnapshotData = OfferedStart>
    + NetTransferLeader<TypeConfig>
{
    /// [`NetStreamAppend::stream_append`], whose answers carry the follower's report where a request asks for it.
    fn stream_reported<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static;

    /// [`NetStreamAppend::stream_append`] for a network whose streams are those with reports: it requests none.
    fn stream_without_reports<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        let requests = requests.map(|request| Asked::new(request, false));
        async move {
            let answers = self.stream_reported(requests, option).await?;
            Ok(answers.map_ok(|answered| answered.result).boxed())
        }
        .boxed()
    }
}

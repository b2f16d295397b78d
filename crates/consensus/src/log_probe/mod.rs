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
//! go past it; of their answers only a conflict is heard.

mod client;
pub(crate) mod divergence;
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

// The seam to the real network: what [`super::LogProbe`] asks of it beyond the engine's traits.

/// What a call of the engine's network leads to.
pub type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// A request, and whether its answer should bring the follower's report.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The engine's request, unchanged.
    pub request: AppendEntriesRequest<TypeConfig>,
    /// Set on few requests: the first of a stream.
    pub wants_report: bool,
    /// How much of it has left, for whoever wants to see that.
    pub departure: Departure,
}

impl Asked {
    /// One that nobody watches on its way.
    pub fn new(request: AppendEntriesRequest<TypeConfig>, wants_report: bool) -> Self {
        Self {
            request,
            wants_report,
            departure: Departure::default(),
        }
    }
}

/// How far a request that travels in pieces is on its way out. Whoever made the request may look; the network that sends it counts,
/// or does not, and then nothing of it seems to have left. The default is one that nobody looks at.
#[derive(Debug, Clone, Default)]
pub struct Departure(Option<Arc<Departed>>);

#[derive(Debug, Default)]
struct Departed {
    pieces: AtomicU64,
    all: AtomicBool,
}

impl Departure {
    /// One that is looked at.
    pub fn watched() -> Self {
        Self(Some(Arc::default()))
    }

    /// A piece of the request was handed to the connection; the `last` one, or not.
    pub fn piece_left(&self, last: bool) {
        // Nothing else is read because of it.
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

    /// Whether the last piece has left.
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

/// A network that brings reports.
///
/// A follower's end reads its log's report when the engine's answer to a request that wants one is
/// known, and sends it with that answer. A report may be left out; the search is then the engine's.
/// A request may be cut into several, each with an answer, as long as the answers come in order and the
/// last one is that to the request's last entry.
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

    /// [`NetStreamAppend::stream_append`] for a network whose streams are those with reports: it asks for none.
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

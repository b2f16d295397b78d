//! The seam to the real network: what [`super::LogProbe`] asks of it beyond the engine's traits.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use openraft::errors::RPCError;
use openraft::network::{
    NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use raft_types::{LogReport, OfferedStart, TypeConfig};

/// What a call of the engine's network leads to.
pub type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// A request, and whether its answer should bring the follower's report.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The request.
    pub request: AppendEntriesRequest<TypeConfig>,
    /// Set on few requests: the first of a stream.
    pub wants_report: bool,
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
    /// [`NetStreamAppend::stream_append`] with reports.
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
        let requests = requests.map(|request| Asked {
            request,
            wants_report: false,
        });
        async move {
            let answers = self.stream_reported(requests, option).await?;
            Ok(answers.map_ok(|answered| answered.result).boxed())
        }
        .boxed()
    }
}

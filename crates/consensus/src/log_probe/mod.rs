//! How a new leader finds each follower's matching point from one real exchange.
//!
//! The engine searches for it by bisection, one round trip a step. So the time of a crash failover across regions
//! would grow with the log's length. This network wraps the real one. An
//! answer carries the follower's [`raft_types::LogReport`], and two reports show the matching point
//! (`last_in_common`). The steps of the search are answered from that (`knowledge`, with the two
//! rules that make it sound). Requests that must be sent carry the rest of the log (`widen`). A new
//! leader sends its newest entries before it is asked (`tail_push`).
//!
//! [`LogProbe`] wraps the network with which a member is started. Of a
//! [`MemberClient`], the sending end passes on which requests want a report and returns it with the
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
use openraft::errors::RPCError;
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{LogReport, MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

pub use crate::log_probe::client::LogProbe;

// The interface to the real network. Its types are dynamic, so that openraft and all that is in front of the network are compiled once.

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

/// What a client carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Entries, and whatever else the engine sends one member.
    Entries,
    /// Heartbeats.
    Heartbeats,
    /// Starts of the log, of which nothing is recorded.
    Starts,
}

/// A call of a [`MemberClient`].
pub type Call<'a, T> = BoxFuture<'a, RpcResult<T>>;
/// The answers to a stream of requests, in their order.
pub type AnswerStream<'a> = BoxStream<'a, RpcResult<Answered>>;

/// A network over which a member calls the others.
pub trait MemberNetwork: Send + Sync + 'static {
    /// A client for one member.
    fn client(&self, lane: Lane, to: MemberId, record: &MemberRecord) -> Box<dyn MemberClient>;
}

/// Calls one member. Its streams deliver reports.
///
/// A follower's end reads its log's report after the engine's answer to a request that wants one, and sends both
/// together. A report may be left out; then the engine searches itself.
/// A request may be cut into several, each with an answer. The answers must come in order, and the
/// last one must be for the request's last entry.
pub trait MemberClient: Send + Sync {
    /// Sends requests. The engine's pause before another attempt is inside this stream: it is polled before anything can fail.
    fn stream(
        &mut self,
        requests: BoxStream<'static, Asked>,
        option: RPCOption,
    ) -> Call<'_, AnswerStream<'_>>;

    /// Asks for a vote, or whether it would be given.
    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        is_pre_vote: bool,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>>;

    /// Announces that the leadership is transferred.
    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>>;

    /// Makes the member's log begin with a file of this one's.
    fn begin(
        &mut self,
        vote: Vote,
        start: OfferedStart,
        option: RPCOption,
    ) -> Call<'_, SnapshotResponse<TypeConfig>>;
}

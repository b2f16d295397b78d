//! Finds each follower's matching point for a new leader, from one real exchange.
//!
//! The engine searches for the matching point by bisection, with one round trip per step. So the time of a crash failover across regions
//! would grow with the length of the log. This network wraps the real one and shortens the search. An answer carries the follower's
//! [`raft_types::LogReport`]. Two reports, the follower's and the own one, show the matching point (`last_in_common`). The steps of the
//! search are then answered from it (`knowledge`, with the two rules that make this safe). Requests that must be sent carry the rest of the
//! log (`widen`). A new leader sends its newest entries before the engine asks for them (`tail_push`).
//!
//! [`LogProbe`] wraps the network with which a member is started. A [`MemberClient`] marks the requests that want a report, and returns the
//! report with the answer. The receiving end reads [`raft_types::OwnLog::report`] after its engine has answered. Heartbeats bypass this
//! network; only a conflict in their answers is used.

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

// The interface to the real network. Its types are dynamic, so that openraft and everything above the network are compiled once.

/// The result of a call of the engine's network.
pub type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// A request, and whether its answer should include the follower's report.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The engine's request, unchanged.
    pub request: AppendEntriesRequest<TypeConfig>,
    /// True only for the first request of a stream.
    pub wants_report: bool,
    /// How much of the request has been sent, for an observer.
    pub departure: Departure,
}

impl Asked {
    /// Creates a request without an observer of its departure.
    pub fn new(request: AppendEntriesRequest<TypeConfig>, wants_report: bool) -> Self {
        Self {
            request,
            wants_report,
            departure: Departure::default(),
        }
    }
}

/// How much of a request has been sent, if it is sent in pieces. The creator of the request may read the count. A network may count or not;
/// without a count, no piece seems to be sent. The default is not observed.
#[derive(Debug, Clone, Default)]
pub struct Departure(Option<Arc<Departed>>);

#[derive(Debug, Default)]
struct Departed {
    pieces: AtomicU64,
    all: AtomicBool,
}

impl Departure {
    /// Creates a departure that is observed.
    pub fn watched() -> Self {
        Self(Some(Arc::default()))
    }

    /// Records that a piece of the request was handed to the connection. `last` is true for the last piece.
    pub fn piece_left(&self, last: bool) {
        // Relaxed ordering is enough: no other memory is read because of these values.
        if let Some(departed) = &self.0 {
            departed.pieces.fetch_add(1, Ordering::Relaxed);
            departed.all.fetch_or(last, Ordering::Relaxed);
        }
    }

    /// Returns how many pieces were handed to the connection.
    pub fn pieces(&self) -> u64 {
        let departed = self.0.as_ref();
        departed.map_or(0, |departed| departed.pieces.load(Ordering::Relaxed))
    }

    /// Returns true if the last piece was handed to the connection.
    pub fn is_over(&self) -> bool {
        let departed = self.0.as_ref();
        departed.is_some_and(|departed| departed.all.load(Ordering::Relaxed))
    }
}

/// An answer, with the follower's report if it was requested and given.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The answer of the follower's engine.
    pub result: StreamAppendResult<TypeConfig>,
    /// [`raft_types::OwnLog::report`] of the follower, read *after* its engine had answered.
    pub report: Option<LogReport>,
}

/// The type of requests that a client carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Entries, and all other requests of the engine to one member.
    Entries,
    /// Heartbeats.
    Heartbeats,
    /// File starts, with which a log can begin. Nothing is recorded about these requests.
    Starts,
}

/// A call of a [`MemberClient`].
pub type Call<'a, T> = BoxFuture<'a, RpcResult<T>>;
/// The answers to a stream of requests, in their order.
pub type AnswerStream<'a> = BoxStream<'a, RpcResult<Answered>>;

/// A network over which a member calls the other members.
pub trait MemberNetwork: Send + Sync + 'static {
    /// Returns a client for one member.
    fn client(&self, lane: Lane, to: MemberId, record: &MemberRecord) -> Box<dyn MemberClient>;
}

/// A client that calls one member. Its streams deliver reports.
///
/// If a request wants a report, the follower's end reads its log's report after the engine's answer, and sends both together. The report
/// may be omitted; then the engine searches itself. A request may be cut into several, each with an answer. The answers must arrive in
/// order, and the last one must be for the request's last entry.
pub trait MemberClient: Send + Sync {
    /// Sends requests. The engine's pause before another attempt is inside `requests`, so that stream is polled before anything can fail.
    fn stream(
        &mut self,
        requests: BoxStream<'static, Asked>,
        option: RPCOption,
    ) -> Call<'_, AnswerStream<'_>>;

    /// Requests a vote, or asks in a pre-vote whether the vote would be granted.
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

    /// Makes the member's log begin with a file of this member's log.
    fn begin(
        &mut self,
        vote: Vote,
        start: OfferedStart,
        option: RPCOption,
    ) -> Call<'_, SnapshotResponse<TypeConfig>>;
}

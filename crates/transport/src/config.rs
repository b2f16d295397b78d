//! The transport's deadlines and sizes, derived from the ring's timers.

use std::time::Duration;

use consensus::Timers;
use raft_types::{MAX_MESSAGE_BYTES, REPLICATION_WINDOW_BYTES};
use sockets::LOOKUP_LIMIT;

/// Deadlines of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportConfig {
    /// Time to establish a connection after the lookup of its name.
    pub connect_deadline: Duration,
    /// Limit for the name lookup of an operator's call, if no addresses are known yet.
    pub lookup_limit: Duration,
    /// Deadline of calls that do not come from the engine, and of opening a stream.
    pub call_deadline: Duration,
    /// Interval of keepalive pings by the called end of a connection, while an answer is due. An idle connection is not pinged; greetings
    /// detect its failure.
    pub keepalive: Duration,
    /// Interval of pings by the calling end. The answer may wait for entries, so the deadline of the ping is the stall deadline. These
    /// pings only ensure that dead connections are closed eventually.
    pub caller_keepalive: Duration,
    /// Time in which a ping must be answered, before the connection is closed.
    pub keepalive_deadline: Duration,
    /// If the other end's system acknowledges nothing for this time, a connection for entries to another region is closed. Such a
    /// connection is not pinged: after megabytes in flight, a ping would arrive too late, especially with packet loss.
    pub far_deadline: Duration,
    /// Time for entries in flight without progress. The time that a slow disk needs to write them (2 MiB per second) is added. A member
    /// sends nothing while it writes a large transaction. The keepalive detects a dead member; in another region, `far_deadline` does.
    pub stall_deadline: Duration,
}

impl TransportConfig {
    /// Returns the deadlines for a ring's timers.
    pub fn for_timers(timers: &Timers) -> Self {
        let second = Duration::from_secs(1);
        Self {
            connect_deadline: timers.lease.max(second / 2),
            lookup_limit: LOOKUP_LIMIT,
            call_deadline: timers.lease.max(second),
            keepalive: timers.heartbeat.max(second / 4),
            caller_keepalive: (timers.heartbeat * 20).max(second * 5),
            keepalive_deadline: timers.longest_election().max(second),
            far_deadline: (timers.longest_election() * 4).max(second * 10),
            stall_deadline: Duration::from_secs(30),
        }
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self::for_timers(&Timers::default())
    }
}

/// HTTP/2 window of a stream of entries: how many bytes may be unread at the receiver. It limits the memory, and also the throughput of one
/// connection per round trip.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// HTTP/2 window of a connection, for all its streams: the stream of one leader, and the rest of the previous leader's stream.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// Size of HTTP/2 frames in bytes. With larger frames, fewer are needed. Heartbeats never share this connection.
pub(crate) const FRAME_BYTES: u32 = 1 << 18;

const _: () = assert!(MAX_MESSAGE_BYTES <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(STREAM_WINDOW_BYTES as usize <= REPLICATION_WINDOW_BYTES);

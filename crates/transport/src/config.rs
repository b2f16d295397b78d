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
    /// Deadline of calls without one of the engine's, including opening a stream.
    pub call_deadline: Duration,
    /// Interval of keepalive pings from a connection's called end while an answer is due. An idle connection is not pinged: its greetings
    /// detect a failure.
    pub keepalive: Duration,
    /// Ping interval of the calling end. Its deadline is the stall deadline, because the answer may wait for entries. It only ensures that
    /// dead connections are closed eventually.
    pub caller_keepalive: Duration,
    /// Time to answer a ping before the connection is closed.
    pub keepalive_deadline: Duration,
    /// Time without acknowledgements from the other end's system before a long-distance connection is closed. It is not pinged: after
    /// megabytes in flight a ping would arrive too late, especially with packet loss.
    pub far_deadline: Duration,
    /// Time for entries in flight without progress, in addition to a slow disk's time to write them (2 MiB a second): a member sends
    /// nothing while it writes a large transaction. The keepalive detects a dead member, and `far_deadline` one in another region.
    pub stall_deadline: Duration,
}

impl TransportConfig {
    /// The deadlines that go with a ring's timers.
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

/// Unread bytes of a stream's entries at the receiver (HTTP/2 window). It bounds the memory, and the throughput of one connection per round
/// trip.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The same for all streams of a connection: one leader's, and the end of another's.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// Larger frames need fewer of them; heartbeats never share this connection.
pub(crate) const FRAME_BYTES: u32 = 1 << 18;

const _: () = assert!(MAX_MESSAGE_BYTES <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(STREAM_WINDOW_BYTES as usize <= REPLICATION_WINDOW_BYTES);

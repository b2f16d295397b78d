//! The transport's deadlines and sizes, derived from the ring's timers in one place.

use std::time::Duration;

use consensus::Timers;
use raft_types::{MAX_MESSAGE_BYTES, REPLICATION_WINDOW_BYTES};

/// What the transport waits for, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportConfig {
    /// How long a connection may take to come up.
    pub connect_deadline: Duration,
    /// How long a call that the engine gives no deadline may take, opening a stream among them.
    pub call_deadline: Duration,
    /// How often the other end of a connection is asked whether it is there.
    pub keepalive: Duration,
    /// How long it may take to say so before the connection is given up.
    pub keepalive_deadline: Duration,
    /// How long entries may be under way without anything moving, beside the time in which a slow disk (2 MiB a second)
    /// writes them: a member that writes a large transaction is silent for that long. A dead one is found by the keepalive.
    pub stall_deadline: Duration,
}

impl TransportConfig {
    /// The deadlines that go with a ring's timers.
    pub fn for_timers(timers: &Timers) -> Self {
        let second = Duration::from_secs(1);
        Self {
            connect_deadline: timers.lease.max(second / 2),
            call_deadline: timers.lease.max(second),
            keepalive: timers.heartbeat.max(second / 4),
            keepalive_deadline: timers.longest_election().max(second),
            stall_deadline: Duration::from_secs(30),
        }
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self::for_timers(&Timers::default())
    }
}

/// How much of a stream's entries HTTP/2 lets into the receiver before they are taken: more than a
/// few messages would only wait there, and memory is bounded by it.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same for all streams of a connection: one leader's, and the end of another's.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// A large frame costs fewer of them; heartbeats never share its connection.
pub(crate) const FRAME_BYTES: u32 = 1 << 18;

const _: () = assert!(MAX_MESSAGE_BYTES <= STREAM_WINDOW_BYTES as usize);
const _: () = assert!(STREAM_WINDOW_BYTES as usize <= REPLICATION_WINDOW_BYTES);

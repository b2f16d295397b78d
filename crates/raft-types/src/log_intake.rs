//! What a member's log can take at the moment. Asked before anything is given to the consensus engine: whatever the engine
//! is given, the log has to take, and the engine's one loop, which also answers heartbeats and votes, must not wait for it.

use std::future::Future;
use std::pin::Pin;

/// Bytes that still fit on a log's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRoom {
    /// What may be proposed: what the limit and the free space leave beside the reserve.
    pub transactions: u64,
    /// What may be taken of what others proposed: the reserve as well, but for the part that is kept for the entries
    /// which the ring writes itself.
    pub in_all: u64,
}

impl LogRoom {
    /// The room of a log without a bound.
    pub const ENDLESS: Self = Self {
        transactions: u64::MAX,
        in_all: u64::MAX,
    };
}

/// About what a transaction of so many bytes takes on the disk, rather more: its marker, and a checksum for each event.
pub fn stored_bytes(payload: u64) -> u64 {
    payload.saturating_add(payload / 64).saturating_add(192)
}

/// Waits for a log.
pub type WaitingForLog<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A log, as whoever feeds its engine sees it.
pub trait LogIntake: Send + Sync + 'static {
    /// The room on its disk. Looks at the disk only where less is known to be there than `needed`.
    fn room(&self, needed: u64) -> LogRoom;

    /// Waits until entries of so many bytes may be handed over: until what waits to be written leaves room for them in memory,
    /// or nothing waits any more. Cancel safe.
    fn queue_room(&self, bytes: u64) -> WaitingForLog<'_>;
}

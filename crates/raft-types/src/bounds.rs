//! The bounds that more than one crate must agree on.

/// The largest transaction that the ring takes, in bytes of its canonical payload. The primary gets
/// it as `max_binlog_cache_size`, so that a larger one fails there instead of hanging. MySQL caps a
/// single event at 1 GiB, and positions in a binlog file are 32 bits wide.
pub const MAX_TRANSACTION_BYTES: u64 = 1 << 30;

/// The largest gRPC message between members; larger entries travel in pieces of this size. Small
/// enough that a piece never delays a heartbeat on a shared link for long.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// How many bytes of entries may be on their way to one member before the sender waits for
/// answers. The engine itself pipelines without a bound.
pub const REPLICATION_WINDOW_BYTES: usize = 16 << 20;

const _: () = assert!(MAX_MESSAGE_BYTES <= REPLICATION_WINDOW_BYTES);
const _: () = assert!(MAX_TRANSACTION_BYTES <= u32::MAX as u64 / 2);

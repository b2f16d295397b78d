//! Options of ingest, and its limits.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use mysql_link::ConnectOptions;
use mysqld_server::settings::Requirements;
use spilling_bytes::SpillFolder;

use crate::ingest::rotation::FileLimits;

/// Receives in ingest's task how long commits at the primary wait for the ring: keep it short.
pub trait CommitObserver: Debug + Send + Sync {
    /// A transaction was acknowledged `waited` after its last event had arrived.
    fn acknowledged(&self, waited: Duration);
}

/// How ingest attaches to the primary, and its limits.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// The primary and the member's account.
    pub connect: ConnectOptions,
    /// Requirements on the primary, and the member's identity as its replica.
    pub requirements: Requirements,
    /// Interval of the primary's heartbeats while it is idle.
    pub heartbeat: Duration,
    /// Silence after which the attachment is given up.
    pub silence_limit: Duration,
    /// Limits at which the ring's log begins a new file.
    pub file_limits: FileLimits,
    /// Limit of payload bytes that are proposed and not committed. A larger transaction is sent alone.
    pub in_flight_bytes: u64,
    /// The first and the longest wait between attempts.
    pub retry: (Duration, Duration),
    /// The member's host in the primary's `SHOW REPLICAS`.
    pub report_host: String,
    /// Folder for large transactions while they arrive; without one, they stay in memory.
    pub spill: SpillFolder,
    /// Receives how long each transaction waited.
    pub observer: Option<Arc<dyn CommitObserver>>,
}

impl IngestOptions {
    /// The defaults: a heartbeat each second, files of 1 GiB, 64 MiB in flight.
    pub fn new(mut connect: ConnectOptions, requirements: Requirements) -> Self {
        connect.program_name = "witness-ingest".to_owned();
        Self {
            connect,
            requirements,
            heartbeat: Duration::from_secs(1),
            silence_limit: Duration::from_secs(5),
            file_limits: FileLimits {
                bytes: 1 << 30,
                age: None,
            },
            in_flight_bytes: 64 << 20,
            retry: (Duration::from_millis(50), Duration::from_secs(2)),
            report_host: String::new(),
            spill: SpillFolder::default(),
            observer: None,
        }
    }
}

//! How ingest attaches, and the bounds that it keeps.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use mysql_link::ConnectOptions;
use spilling_bytes::SpillFolder;

use crate::ingest::rotation::FileLimits;
use crate::settings::Requirements;

/// Hears in ingest's task how long commits at the primary wait for the ring: keep it short.
pub trait CommitObserver: Debug + Send + Sync {
    /// A transaction was acknowledged, so long after its last event had come.
    fn acknowledged(&self, waited: Duration);
}

/// How ingest attaches to the primary, and its bounds.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// The primary and our account.
    pub connect: ConnectOptions,
    /// What is asked of the primary, and who we are to it.
    pub requirements: Requirements,
    /// How often the primary sends a sign of life while it is idle.
    pub heartbeat: Duration,
    /// Silence after which the attachment is given up.
    pub silence_limit: Duration,
    /// When the ring's log begins a new file.
    pub file_limits: FileLimits,
    /// Payload bytes that may be proposed and not committed. A larger transaction travels alone.
    pub in_flight_bytes: u64,
    /// The first and the longest wait between attempts.
    pub retry: (Duration, Duration),
    /// What the primary's `SHOW REPLICAS` shows as our host.
    pub report_host: String,
    /// Where large transactions are as they come; without a folder in memory.
    pub spill: SpillFolder,
    /// Hears how long each transaction waited.
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

//! Who asks for the binlog, from where on, and how long silence may last.

use std::time::Duration;

use binlog_format::event::MAX_EVENT_BYTES;
use binlog_format::gtid::GtidSet;
use uuid::Uuid;

/// How to ask for a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpOptions {
    /// Our server id: stable, and different from that of every server around. Never 0.
    pub server_id: u32,
    /// Our server UUID: stable. A new dump with the same UUID ends the one before it on the source.
    pub uuid: Uuid,
    /// The transactions that are not wanted. The source takes each of them for acknowledged as soon
    /// as its dump passes it.
    pub have: GtidSet,
    /// Whether to be a semi-sync replica, whose ACKs count.
    pub semi_sync: bool,
    /// Whether `SHOW REPLICAS` is to show us. Nothing else depends on it, and it takes the server's lock on accounts where ours
    /// has no more than single privileges (9.7.4).
    pub register: bool,
    /// How often the source shall send a sign of life while it has nothing else to send.
    pub heartbeat: Duration,
    /// Silence after which the source is given up; several heartbeats.
    pub silence_limit: Duration,
    /// How long the first event may take: the source looks for the right file first.
    pub start_limit: Duration,
    /// How long one ACK may take to be taken over by the operating system.
    pub ack_limit: Duration,
    /// The largest event taken, in bytes.
    pub max_event_bytes: usize,
    /// What `SHOW REPLICAS` on the source shows as our host; empty for nothing.
    pub report_host: String,
}

impl DumpOptions {
    /// Semi-sync options with the default limits: a heartbeat every second, five seconds of silence.
    pub fn new(server_id: u32, uuid: Uuid, have: GtidSet) -> Self {
        Self {
            server_id,
            uuid,
            have,
            semi_sync: true,
            register: true,
            heartbeat: Duration::from_secs(1),
            silence_limit: Duration::from_secs(5),
            start_limit: Duration::from_secs(30),
            ack_limit: Duration::from_secs(5),
            max_event_bytes: MAX_EVENT_BYTES as usize,
            report_host: String::new(),
        }
    }
}

//! The inputs of a member's process.

use binlog_format::gtid::GtidSet;
use consensus::Timers;
use consensus::quorum::RingRules;
use proxy::ProxyOptions;
use raft_types::{MemberId, MemberRecord, RingId};
use testkit::disk::FaultyDisk;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::clock::{Clock, ClockRate};
use super::directory::Directory;
use super::disk_pace::DiskPace;
use super::file_repair::FileRepair;
use super::mysqld::Host;
use super::real_transport::RealTransport;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::tick::Tick;
use crate::workload::Workload;

/// The inputs of a process. They are the same for all its starts.
#[derive(Clone)]
pub(crate) struct ProcessSetup {
    pub(crate) ring: RingId,
    pub(crate) id: MemberId,
    pub(crate) record: MemberRecord,
    pub(crate) timers: Timers,
    pub(crate) rules: RingRules,
    /// If true, the leader's own log probe answers openraft's search for the matching point.
    pub(crate) searches_itself: bool,
    pub(crate) proxies: ProxyOptions,
    /// If true, a starting member first asks the others whether the ring has continued without it.
    pub(crate) returns: bool,
    pub(crate) rate: ClockRate,
    pub(crate) disk: FaultyDisk,
    pub(crate) pace: DiskPace,
    pub(crate) log: LogOptions,
    /// Limit of the bytes queued for the disk. `None`: the product's default.
    pub(crate) queue_bytes: Option<u64>,
    /// How the member handles damaged log files. `None`: no file is damaged while the member runs.
    pub(crate) file_repair: Option<FileRepair>,
    pub(crate) workload: Workload,
    /// The member's host, if servers are simulated. Clients then write at the server.
    pub(crate) host: Option<Host>,
    /// The real transport, if the run uses it instead of messages.
    pub(crate) transport: Option<RealTransport>,
    pub(crate) mutation: Option<Mutation>,
    /// The member's data directory, if the member begins without a ring.
    pub(crate) directory: Option<Directory>,
}

impl ProcessSetup {
    /// Returns the setup with the ring of the data directory, if there is one.
    pub(super) fn in_its_ring(&self) -> Self {
        let ring = self.directory.as_ref().and_then(Directory::ring);
        Self {
            ring: ring.unwrap_or(self.ring),
            ..self.clone()
        }
    }

    /// Returns the GTIDs that precede the ring's log.
    pub(super) fn origin(&self) -> GtidSet {
        let directory = self.directory.as_ref();
        directory.map(Directory::origin).unwrap_or_default()
    }
}

/// The options with which the log is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    pub(crate) cache_bytes: u64,
    pub(crate) read_batch_bytes: u64,
    pub(crate) disk_reserve_bytes: u64,
}

/// The parts of a process that exist before its member runs: setup, record, runtime and clock.
pub(crate) struct Surroundings {
    pub(super) setup: ProcessSetup,
    pub(super) record: Record,
    pub(super) runtime: Runtime,
    pub(super) clock: Clock,
}

impl Surroundings {
    pub(super) fn new(setup: &ProcessSetup, record: &Record, runtime: Runtime, now: Tick) -> Self {
        let origin = runtime.block_on(async { Instant::now() });
        Self {
            clock: Clock::new(setup.rate, now, origin),
            setup: setup.clone(),
            record: record.clone(),
            runtime,
        }
    }

    /// Runs the runtime until `now`.
    pub(super) fn run_until(&self, now: Tick) {
        let until = self.clock.at(now);
        self.runtime
            .block_on(async { tokio::time::sleep_until(until).await });
    }
}

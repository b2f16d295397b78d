//! What a member's process is started with.

use binlog_format::gtid::GtidSet;
use consensus::Timers;
use consensus::quorum::RingRules;
use proxy::ProxyOptions;
use raft_types::{MemberId, MemberRecord, RingId};
use testkit::disk::FaultyDisk;

use super::clock::ClockRate;
use super::directory::Directory;
use super::disk_pace::DiskPace;
use super::file_repair::FileRepair;
use super::mysqld::Host;
use super::real_transport::RealTransport;
use crate::mutation::Mutation;
use crate::workload::Workload;

/// See the module.
#[derive(Clone)]
pub(crate) struct ProcessSetup {
    pub(crate) ring: RingId,
    pub(crate) id: MemberId,
    pub(crate) record: MemberRecord,
    pub(crate) timers: Timers,
    pub(crate) rules: RingRules,
    /// The search for the matching point is answered on the sending side.
    pub(crate) searches_itself: bool,
    pub(crate) proxies: ProxyOptions,
    /// It asks the others whether the ring went on without it, before it takes part.
    pub(crate) returns: bool,
    pub(crate) rate: ClockRate,
    pub(crate) disk: FaultyDisk,
    pub(crate) pace: DiskPace,
    pub(crate) log: LogOptions,
    /// Bytes that may wait for its disk, if not as many as the product lets wait.
    pub(crate) queue_bytes: Option<u64>,
    /// What it does about damaged files of its log; nothing, where none is damaged while it runs.
    pub(crate) file_repair: Option<FileRepair>,
    pub(crate) workload: Workload,
    /// The server beside it, where that is simulated too: then clients write there.
    pub(crate) host: Option<Host>,
    /// What its calls go over in the place of the messages, where that is the real thing.
    pub(crate) transport: Option<RealTransport>,
    pub(crate) mutation: Option<Mutation>,
    /// Where it stands to which ring it belongs, where it begins without one.
    pub(crate) directory: Option<Directory>,
}

impl ProcessSetup {
    /// With the ring that its directory belongs to, or makes.
    pub(super) fn in_its_ring(&self) -> Self {
        let ring = self.directory.as_ref().and_then(Directory::ring);
        Self {
            ring: ring.unwrap_or(self.ring),
            ..self.clone()
        }
    }

    /// What the ring's log begins behind.
    pub(super) fn origin(&self) -> GtidSet {
        let directory = self.directory.as_ref();
        directory.map(Directory::origin).unwrap_or_default()
    }
}

/// How the store is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    pub(crate) cache_bytes: u64,
    pub(crate) read_batch_bytes: u64,
    pub(crate) disk_reserve_bytes: u64,
}

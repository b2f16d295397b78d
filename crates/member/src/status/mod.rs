//! A member's status at one moment. The same plain values are in `/status`, in the admin call, and in `witness status --output json`. In
//! later versions, fields are only added. `answers` draws conclusions from the status.

mod answers;
mod mysql_view;
mod replication_routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use consensus::quorum::{RegionQuorum, RingRules, VoterSetHealth};
use consensus::{RestoredDirectory, RingPause, Timers};
use raft_types::{
    FormatRange, FormatVersion, Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region,
    RingId, UnixSeconds,
};
use ring_admin::{Explanation, ScheduledSwitchover};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::status::mysql_view::with_texts;
pub use mysqld_controller::status::{RoleState, WaitingFor, WriteFenceState};

pub use crate::status::answers::{Answer, NotReady, Question, answer};
pub use crate::status::mysql_view::{ErrantTransactions, MysqlView, MysqldState};
pub use crate::status::replication_routes::{
    FallbackView, LinkView, RelayedView, ReplicationRoutesView, SentView,
};

/// A member's status at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// Name and id of the ring.
    pub ring: RingName,
    /// Identity from the configuration.
    pub member: MemberName,
    /// Version of the program `witness`.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// Client addresses of the member and its mysqld; empty from an older version.
    #[serde(default)]
    pub client_addresses: ClientAddresses,
    /// The member's role in the ring.
    pub role: Role,
    /// True if the member leads with a quorum, so that commits are acknowledged.
    pub serving: bool,
    /// Why the member leads without serving.
    pub not_serving: Option<String>,
    /// Why the member neither votes nor campaigns; `None` if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_out_of_elections: Option<String>,
    /// The members that run on a data directory which was restored to an earlier state, as far as known, this member included. A member is
    /// listed until its next start.
    #[serde(rename = "put_back")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub restored: BTreeMap<MemberId, RestoredDirectory>,
    /// The leader, if known.
    pub leader: Option<MemberId>,
    /// Current term.
    pub term: u64,
    /// The last entry of the member's log.
    pub log_end: Option<OpId>,
    /// The last entry that the member has recorded as committed.
    pub committed: Option<OpId>,
    /// The member's log on disk.
    pub log: LogView,
    /// Counters since the process started.
    pub activity: ActivityView,
    /// Whether commits can proceed.
    pub quorum: QuorumView,
    /// The quorum and candidate rules in the member's log.
    #[serde(default)]
    pub rules: RingRules,
    /// The same rules in the member's configuration. They apply only to a new ring.
    pub configured_rules: Option<RingRules>,
    /// Voter sets in force, from its log; a commit needs a majority of each.
    #[serde(default)]
    pub voter_sets: Vec<BTreeSet<MemberId>>,
    /// The voters of each set, and which of them answer; only the leader knows this.
    #[serde(default)]
    pub voter_set_health: Vec<VoterSetHealth>,
    /// The voters of each region, and their positions; only the leader knows them.
    #[serde(default)]
    pub regions: Vec<RegionQuorum>,
    /// What a commit waits for, and which members could lead; only the leader knows this.
    pub explanation: Option<Explanation>,
    /// All members in the member's log, itself included. Empty before it takes part in the ring.
    #[serde(default)]
    pub members: Vec<LoggedMember>,
    /// The other members as this one sees them.
    pub peers: Vec<PeerView>,
    /// The routes by which entries reach the members; `None` before the member takes part in the ring.
    pub replication_routes: Option<ReplicationRoutesView>,
    /// The member's mysqld; `None` for a witness.
    #[serde(serialize_with = "with_texts")]
    pub mysql: Option<MysqlView>,
    /// The clients of the member's binlog server; `None` without a binlog server.
    pub consumers: Option<Vec<ConsumerView>>,
    /// The progress of the archive; `None` if the member has no archive.
    pub archive: Option<ArchiveView>,
    /// The results of hooks; `None` without hooks.
    pub hooks: Option<HooksView>,
    /// The pause of failover; `None` without a pause, or before the member takes part in the ring.
    pub pause: Option<PauseView>,
    /// The member's timers; `None` before it takes part in the ring, and from an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<TimersView>,
    /// The formats of the member's program and of the ring; `None` from a version without formats.
    pub formats: Option<FormatsView>,
    /// The scheduled switchover, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_switchover: Option<ScheduledSwitchover>,
    /// Why the member has stopped working; `None` while it works.
    pub fault: Option<String>,
}

/// A member's timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimersView {
    /// `raft.heartbeat`, in milliseconds.
    pub heartbeat_ms: u64,
    /// `raft.lease`, in milliseconds.
    pub lease_ms: u64,
}

impl From<Timers> for TimersView {
    fn from(timers: Timers) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            heartbeat_ms: millis(timers.heartbeat),
            lease_ms: millis(timers.lease),
        }
    }
}

/// Name and id of a ring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingName {
    /// The ring's identity; `None` before the ring is bootstrapped.
    pub id: Option<RingId>,
    /// `ring_name` of the configuration.
    pub name: String,
}

/// A member's identity in its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberName {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// Database member or witness.
    pub kind: MemberKind,
    /// Whether it may count in a quorum.
    pub votes: bool,
    /// Address for the other members.
    pub address: String,
    /// Identity of the member's data directory.
    pub incarnation: Incarnation,
}

/// Formats that a member supports, and its ring's format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatsView {
    /// The formats that the member's program supports, such as `1` or `1-2`.
    pub speaks: FormatRange,
    /// The ring's format in the member's log: the newest one that members may use. `None` before the member takes part in the ring.
    pub ring: Option<FormatVersion>,
    /// Why the member rejects entries because of the ring's format, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The programs that the other members last reported to the leader. The leader asks while the ring's format could be raised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ProgramView>,
}

/// The program of another member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramView {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// Version of the program `witness`; empty if not reported.
    pub version: String,
    /// The formats that the program supports.
    pub speaks: FormatRange,
}

/// Client addresses of a member and its mysqld, from its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAddresses {
    /// URL of the member's HTTP endpoint; `None` without one.
    pub api_url: Option<String>,
    /// `HOST:PORT` of the member's mysqld; `None` for a witness.
    pub mysql: Option<String>,
}

/// A member's role in its ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The member waits until it is added to its ring.
    #[default]
    Joining,
    /// The member receives the log, and does not vote at present.
    Learner,
    /// The member receives the log, and votes.
    Follower,
    /// The member requests votes to become the leader.
    Candidate,
    /// The member was elected; [`MemberView::serving`] reports whether it serves.
    Leader,
}

/// Writes the role's name in JSON.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The log on a member's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogView {
    /// The file being written.
    pub file: String,
    /// Size of that file in bytes.
    pub file_bytes: u64,
    /// Every GTID in the log.
    pub gtid_set: GtidText,
    /// When an entry counts as durable: `fsync` or `os`.
    pub durability: String,
    /// Bytes of all files.
    pub log_bytes: u64,
    /// Free bytes on the log's disk at the last check.
    pub disk_free_bytes: u64,
    /// Bytes on the disk that transactions may still use. At 0, transactions are refused.
    pub disk_left_bytes: u64,
    /// The parts of the log that cannot be read, as text. The member replaces them by another member's copy.
    pub unreadable: Vec<String>,
    /// Progress of the scrub of closed files.
    pub scrub: ScrubView,
    /// True if little of the disk limit is left.
    pub disk_alarm: bool,
    /// True if a write was refused because the disk is full. The log waits for free space then.
    pub disk_full: bool,
    /// True if the full disk lacks free inodes instead of space.
    pub disk_has_no_inodes: bool,
    /// Milliseconds since the current write or fsync began; 0 if there is none.
    pub disk_busy_ms: u64,
}

/// If a write or fsync takes longer than this, the disk may hang.
pub const DISK_HANGS: Duration = Duration::from_secs(5);

/// The scrub of a member's log, which reads closed files again and verifies them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubView {
    /// Bytes that were read since the process started.
    pub read_bytes_total: u64,
    /// Files that were found to be damaged since the process started.
    pub damaged_total: u64,
    /// Files that were replaced by another member's copy since the process started.
    pub repaired_total: u64,
    /// Bytes of closed files that were read in the current pass.
    pub turn_bytes: u64,
    /// Bytes of all closed files.
    pub closed_bytes: u64,
    /// Bytes of closed files that were not read again since they were written.
    pub unverified_bytes: u64,
    /// End of the last complete pass, in seconds since 1970.
    pub completed_at: Option<u64>,
    /// Scrub rate in bytes per second; `None` without a scrub.
    pub bytes_per_second: Option<u64>,
}

/// A member's counters since its process started. Values with `_total` never decrease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivityView {
    /// Entries appended to the log.
    pub appended_entries_total: u64,
    /// Bytes appended to the log.
    pub appended_bytes_total: u64,
    /// How often entries were made durable.
    pub flushes_total: u64,
    /// Bytes of entries that wait to be written.
    pub queued_bytes: u64,
    /// Bytes of uncommitted proposals.
    pub proposals_bytes: u64,
    /// Elections won by this member.
    pub elections_won_total: u64,
    /// Leader changes that the member has observed.
    pub leader_changes_total: u64,
    /// How long no leader was known before the present leader, or the last one; `None` if a leader was always known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless_ms: Option<u64>,
}

/// A member in the ring's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedMember {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// True if the member counts in the current quorum.
    pub voter: bool,
    /// Name, region, address and all other data of the member in the log.
    #[serde(flatten)]
    pub record: MemberRecord,
}

/// Whether commits can proceed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuorumView {
    /// True if enough voters answer, as far as this member knows.
    pub ok: bool,
    /// Seconds since enough voters answered last; `None` while they answer.
    pub lost_for_seconds: Option<f64>,
    /// The cause, as text.
    pub cause: Option<String>,
    /// What to do, as text.
    pub fix: Option<String>,
}

/// A pause of failover in the ring's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseView {
    /// The member with the primary, which stays the primary after the pause.
    pub primary: MemberId,
    /// Start, in seconds since 1970, UTC.
    pub since: UnixSeconds,
    /// The end; `None` means until an operator resumes failover.
    pub until: Option<UnixSeconds>,
    /// The operator who ordered the pause.
    pub by: String,
    /// The operator's reason; may be empty.
    pub reason: String,
    /// Age of the pause in seconds.
    pub age_seconds: u64,
}

impl PauseView {
    /// Returns the view of a pause at the time `now`.
    pub fn new(paused: RingPause, now: UnixSeconds) -> Self {
        let RingPause { primary, pause } = paused;
        Self {
            primary,
            age_seconds: pause.since.age(now).as_secs(),
            since: pause.since,
            until: pause.until,
            by: pause.by,
            reason: pause.reason,
        }
    }
}

/// Another member, as this one sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerView {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// Database member or witness.
    pub kind: MemberKind,
    /// Address for the other members.
    pub address: String,
    /// True if the member counts in the current quorum.
    pub voter: bool,
    /// The last entry that its log shares with the leader's log; only the leader knows this.
    pub matched: Option<OpId>,
    /// How many entries the member lags; only the leader knows this.
    pub behind_entries: Option<u64>,
    /// Seconds since the leader sent the last call that the member answered; only the leader knows this.
    pub answered_seconds: Option<f64>,
}

/// The log's archive, as a member has observed it. One member of a ring archives; the others check the archive periodically.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveView {
    /// The archive's URL.
    pub url: String,
    /// True if this member archives.
    pub archives: bool,
    /// The end of the archived log, such as `binlog.000007:1234`; `None` while it is unknown.
    pub archived: Option<String>,
    /// Age in seconds of the oldest committed entry that the archive lacked at the last check. Before the first check, the seconds since
    /// the member's start.
    pub lag_seconds: f64,
    /// Pieces that this member archived since its process started.
    pub pieces_total: u64,
    /// Stored bytes of these pieces.
    pub bytes_total: u64,
    /// How often archiving continued after a gap, because the log was purged before it was archived.
    pub gaps_total: u64,
    /// How often archiving failed and was started again.
    pub failures_total: u64,
    /// The current failure, if any.
    pub error: Option<String>,
    /// True if the member encrypts the pieces that it archives.
    pub encrypts: bool,
    /// The first file of the pruned archive, as this member last observed it; `None` if the archive was never pruned.
    pub begins: Option<String>,
    /// Objects that this member deleted from the archive since its process started.
    pub pruned_objects_total: u64,
    /// How often the prunable objects could not be determined or deleted.
    pub prune_failures_total: u64,
    /// Why pruning currently fails, if it does.
    pub prune_error: Option<String>,
    /// The first archived file before this member's log that its binlog server can serve; `None` if the archive adds nothing to the log.
    pub serves_from: Option<String>,
    /// Files that were fetched for clients of the binlog server since the process started.
    pub served_files_total: u64,
    /// Bytes of these files.
    pub served_bytes_total: u64,
    /// How often, for clients, the archive could not be checked or a file could not be fetched.
    pub serve_failures_total: u64,
    /// The reason of the last such failure; `None` after the next success.
    pub serve_error: Option<String>,
    /// Bytes of fetched files on this member's disk.
    pub serve_disk_bytes: u64,
}

/// Hook results since the member started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksView {
    /// Commands that were run, successfully or not.
    pub runs_total: u64,
    /// Commands that failed or were killed.
    pub failures_total: u64,
    /// Always 0; it exists for programs that require the field. Each state is retried until its hook succeeds.
    pub dropped_total: u64,
    /// Hooks whose last run failed; they are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingHook>,
}

/// A hook that has not succeeded yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingHook {
    /// The hook's key in `[hooks]`.
    pub hook: String,
    /// Number of failed runs for the current state.
    pub failures: u64,
    /// Reason of the last failure.
    pub why: String,
}

/// Provides a member's view.
pub trait ViewSource: Send + Sync + 'static {
    /// Returns the current view. Cheap, and never waits.
    fn view(&self) -> MemberView;
}

// Clients of the binlog server.

/// A replica or another client of the binlog server, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerView {
    /// The client's registered name; without a name, its server id; without an id, its address.
    pub name: String,
    /// The address from which the client is connected.
    pub address: String,
    /// The client's server id; 0 if it has none.
    pub server_id: u32,
    /// The client's server UUID, if it reported one.
    pub server_uuid: Option<Uuid>,
    /// How the client specified its position: `gtids` or `position`.
    pub asked_by: String,
    /// The file up to which the log was read for the client.
    pub file: String,
    /// The position in that file.
    pub position: u64,
    /// Committed bytes of the log after that position.
    pub behind_bytes: u64,
    /// Bytes that wait to be sent to the client.
    pub queued_bytes: u64,
    /// How long the client has been attached.
    pub attached_seconds: f64,
}

/// A GTID set that becomes text only when it is serialized. Health checks and members read the view every second for other fields. The text
/// of a set with a million intervals has ten megabytes or more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidText(pub GtidSet);

impl fmt::Display for GtidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for GtidText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for GtidText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

/// Returns advice for members that do not run, for any way in which they are started.
#[must_use]
pub fn start_advice(named: &str) -> String {
    format!("start witness on {named} (`systemctl start witness`, or `witness run`)")
}

#[cfg(any(test, feature = "samples"))]
#[path = "tests/sample.rs"]
pub mod sample;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_text_in_json() {
        let text = "\"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-40:50\"";
        let read: GtidText = serde_json::from_str(text).unwrap();
        assert_eq!(read.0.count(), 41);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert!(serde_json::from_str::<GtidText>("\"no set\"").is_err());
    }
}

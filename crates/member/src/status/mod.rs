//! A member's status at one moment: the same plain values in `/status`, over the admin call and in `witness status --output json`. Fields
//! are only ever added. `answers` has conclusions from it.

mod answers;
mod mysql_view;
mod replication_routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use consensus::quorum::{RegionQuorum, RingRules, VoterSetHealth};
use consensus::{PutBack, RingPause, Timers};
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
    /// Client addresses of the member and its mysqld; none from an older version.
    #[serde(default)]
    pub client_addresses: ClientAddresses,
    /// Role in the ring.
    pub role: Role,
    /// Whether it leads with a quorum, so that commits are acknowledged.
    pub serving: bool,
    /// Why it leads without serving.
    pub not_serving: Option<String>,
    /// Why it neither votes nor campaigns; none if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_out_of_elections: Option<String>,
    /// Members known to run on a data directory restored to an earlier state, this one included; each until its next start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub put_back: BTreeMap<MemberId, PutBack>,
    /// The leader, if known.
    pub leader: Option<MemberId>,
    /// Current term.
    pub term: u64,
    /// Last entry of its log.
    pub log_end: Option<OpId>,
    /// Last entry that it knows to be committed.
    pub committed: Option<OpId>,
    /// Its log on disk.
    pub log: LogView,
    /// Counters since the process started.
    pub activity: ActivityView,
    /// Whether commits can proceed.
    pub quorum: QuorumView,
    /// Quorum and candidate rules in its log.
    #[serde(default)]
    pub rules: RingRules,
    /// The same rules in its configuration; they apply only to a new ring.
    pub configured_rules: Option<RingRules>,
    /// Voter sets in force, from its log; a commit needs a majority of each.
    #[serde(default)]
    pub voter_sets: Vec<BTreeSet<MemberId>>,
    /// Reachable voters of each set; only the leader knows.
    #[serde(default)]
    pub voter_set_health: Vec<VoterSetHealth>,
    /// Each region's voters and their positions; only the leader knows.
    #[serde(default)]
    pub regions: Vec<RegionQuorum>,
    /// What a commit waits for, and which members could lead; only the leader knows.
    pub explanation: Option<Explanation>,
    /// All members in its log, itself included; empty before it takes part.
    #[serde(default)]
    pub members: Vec<LoggedMember>,
    /// The other members as this one sees them.
    pub peers: Vec<PeerView>,
    /// Routes by which entries reach the members; none before it takes part.
    pub replication_routes: Option<ReplicationRoutesView>,
    /// Its mysqld; none for a witness.
    #[serde(serialize_with = "with_texts")]
    pub mysql: Option<MysqlView>,
    /// Clients of its binlog server; none without that server.
    pub consumers: Option<Vec<ConsumerView>>,
    /// Archive progress; none where the member has no archive.
    pub archive: Option<ArchiveView>,
    /// Hook results; none without hooks.
    pub hooks: Option<HooksView>,
    /// The pause of failover; none without a pause or before the member takes part.
    pub pause: Option<PauseView>,
    /// Its timers; none before it takes part, and from an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<TimersView>,
    /// Formats of its program and of the ring; none from a version without formats.
    pub formats: Option<FormatsView>,
    /// The scheduled switchover, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_switchover: Option<ScheduledSwitchover>,
    /// Why it has stopped working; none while it works.
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
    /// Its identity; none before the ring is bootstrapped.
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
    /// Identity of its data directory.
    pub incarnation: Incarnation,
}

/// Formats that a member supports, and its ring's format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatsView {
    /// Formats that its program supports, such as `1` or `1-2`.
    pub speaks: FormatRange,
    /// The ring's format in its log: the newest that members may use. None before it takes part.
    pub ring: Option<FormatVersion>,
    /// Why it rejects entries because of the ring's format, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Programs that the other members last reported to the leader, which asks while the ring's format could rise.
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
    /// Formats that it supports.
    pub speaks: FormatRange,
}

/// Client addresses of a member and its mysqld, from its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAddresses {
    /// URL of its HTTP endpoint; none without one.
    pub api_url: Option<String>,
    /// `HOST:PORT` of its mysqld; none for a witness.
    pub mysql: Option<String>,
}

/// A member's role in its ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It waits to be added to its ring.
    #[default]
    Joining,
    /// It receives the log and does not currently vote.
    Learner,
    /// It receives the log and votes.
    Follower,
    /// It requests votes to become the leader.
    Candidate,
    /// It was elected; [`MemberView::serving`] reports whether it serves.
    Leader,
}

/// Its name in JSON.
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
    /// Bytes left for transactions on the disk; at 0 they are refused.
    pub disk_left_bytes: u64,
    /// Unreadable parts of the log, for which another member waits, as text.
    pub unreadable: Vec<String>,
    /// Progress of the scrub of closed files.
    pub scrub: ScrubView,
    /// True if the disk budget is nearly used up.
    pub disk_alarm: bool,
    /// True if a write was refused because the disk is full, and the log waits for free space.
    pub disk_full: bool,
    /// Whether the file system then lacks free inodes, not space.
    pub disk_has_no_inodes: bool,
    /// Milliseconds since the current write or fsync began; 0 without one.
    pub disk_busy_ms: u64,
}

/// Age of one write or fsync from which the disk may hang indefinitely.
pub const DISK_HANGS: Duration = Duration::from_secs(5);

/// The scrub of a member's log, which reads closed files back and verifies them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubView {
    /// Bytes read back since the process started.
    pub read_bytes_total: u64,
    /// Files found damaged since then.
    pub damaged_total: u64,
    /// Files replaced by another member's copy since then.
    pub repaired_total: u64,
    /// Bytes of closed files read in the current pass.
    pub turn_bytes: u64,
    /// Bytes of all closed files.
    pub closed_bytes: u64,
    /// Bytes of closed files not read back since they were written.
    pub unverified_bytes: u64,
    /// End of the last complete pass, in seconds since 1970.
    pub completed_at: Option<u64>,
    /// Scrub rate in bytes a second; none without a scrub.
    pub bytes_per_second: Option<u64>,
}

/// A member's counters since its process started. `_total` values only grow.
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
    /// Leader changes that it saw.
    pub leader_changes_total: u64,
    /// How long it knew of no leader before the current or last one; none if it always knew one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless_ms: Option<u64>,
}

/// A member in the ring's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedMember {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// Whether it counts in the quorum now.
    pub voter: bool,
    /// Name, region, address and all else in the log.
    #[serde(flatten)]
    pub record: MemberRecord,
}

/// Whether commits can proceed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuorumView {
    /// Whether enough voters answer, as far as this member can tell.
    pub ok: bool,
    /// Seconds since they stopped answering.
    pub lost_for_seconds: Option<f64>,
    /// Cause, as text.
    pub cause: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
}

/// A pause of failover in the ring's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseView {
    /// The member with the primary, also after the pause.
    pub primary: MemberId,
    /// Start, in seconds since 1970, UTC.
    pub since: UnixSeconds,
    /// End; none: until an operator resumes.
    pub until: Option<UnixSeconds>,
    /// The operator who ordered it.
    pub by: String,
    /// The operator's reason; may be empty.
    pub reason: String,
    /// Age of the pause.
    pub age_seconds: u64,
}

impl PauseView {
    /// A pause at this moment.
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
    /// Whether it counts in the quorum now.
    pub voter: bool,
    /// Position up to which its log equals the leader's; only the leader knows.
    pub matched: Option<OpId>,
    /// Lag in entries; only the leader knows.
    pub behind_entries: Option<u64>,
    /// Seconds since the leader sent the last call that it answered; only the leader knows.
    pub answered_seconds: Option<f64>,
}

/// The log's archive, as a member has seen it. One member of a ring archives; the others check periodically.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveView {
    /// Its URL.
    pub url: String,
    /// Whether this member archives.
    pub archives: bool,
    /// End of the archived log, such as `binlog.000007:1234`; none while unknown.
    pub archived: Option<String>,
    /// Age in seconds of the oldest committed entry that the archive lacks, at the last check; before it, since the member's start.
    pub lag_seconds: f64,
    /// Pieces archived by this member since its process started.
    pub pieces_total: u64,
    /// Stored bytes of those pieces.
    pub bytes_total: u64,
    /// How often it continued after a gap, the log having been purged before it was archived.
    pub gaps_total: u64,
    /// How often it failed and restarted.
    pub failures_total: u64,
    /// Current failure, if any.
    pub error: Option<String>,
    /// Whether it encrypts archived pieces.
    pub encrypts: bool,
    /// First file of the pruned archive, as last seen by this member; none if never pruned.
    pub begins: Option<String>,
    /// Objects deleted from the archive by this member since its process started.
    pub pruned_objects_total: u64,
    /// How often it could not determine or delete prunable objects.
    pub prune_failures_total: u64,
    /// Why pruning currently fails, if it does.
    pub prune_error: Option<String>,
    /// First archived file before this member's log that its binlog server can serve; none where the archive adds nothing to the log.
    pub serves_from: Option<String>,
    /// Files fetched for binlog server clients since the process started.
    pub served_files_total: u64,
    /// Bytes of those files.
    pub served_bytes_total: u64,
    /// How often the archive could not be checked, or a file fetched, for clients.
    pub serve_failures_total: u64,
    /// The reason, until it succeeds again.
    pub serve_error: Option<String>,
    /// Bytes of such files on this member's disk.
    pub serve_disk_bytes: u64,
}

/// Hook results since the member started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksView {
    /// Commands run, successfully or not.
    pub runs_total: u64,
    /// Commands that failed or were killed.
    pub failures_total: u64,
    /// Always 0, for programs that require it: each state is retried until its hook succeeds.
    pub dropped_total: u64,
    /// Hooks whose last run failed; they are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingHook>,
}

/// A hook that has not succeeded yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingHook {
    /// Its key in `[hooks]`.
    pub hook: String,
    /// Failed runs for the current state.
    pub failures: u64,
    /// Reason of the last failure.
    pub why: String,
}

/// Provides a member's view.
pub trait ViewSource: Send + Sync + 'static {
    /// The current view. Cheap, and never waits.
    fn view(&self) -> MemberView;
}

// Clients of the binlog server.

/// A replica or another client of the binlog server at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerView {
    /// Its registered name, else its server id, else its address.
    pub name: String,
    /// Address from which it is connected.
    pub address: String,
    /// Its server id; 0 for none.
    pub server_id: u32,
    /// Its server UUID, if reported.
    pub server_uuid: Option<Uuid>,
    /// How the client specified its position: `gtids` or `position`.
    pub asked_by: String,
    /// File up to which the log was read for it.
    pub file: String,
    /// The position in that file.
    pub position: u64,
    /// Committed bytes of the log after that position.
    pub behind_bytes: u64,
    /// Bytes that wait to be sent to it.
    pub queued_bytes: u64,
    /// How long it has been attached.
    pub attached_seconds: f64,
}

/// A set of GTIDs that is formatted only when written. Health checks and members read the view every second for other fields, and a set of
/// a million intervals is ten megabytes of text or more.
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

/// Advice for members that do not run, however they are started.
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

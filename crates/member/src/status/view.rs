//! What one member says of itself at one moment: plain values, the same in `/status`, over the admin
//! call and in `witness status --output json`. Fields are only ever added.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::quorum::{RegionQuorum, RingRules, VoterSetHealth};
use consensus::{DatabaseState, Explanation, PutBack, ScheduledSwitchover, Timers};
use raft_types::{
    FormatRange, FormatVersion, Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region,
    RingId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::status::gtid_text::GtidText;
use crate::status::pause::PauseView;
use crate::status::replication_routes::ReplicationRoutesView;

/// One member at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// Name and id of the ring.
    pub ring: RingName,
    /// Who the member is, as its configuration says.
    pub member: MemberName,
    /// Version of the program `witness`.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// Where clients reach it and its mysqld; nothing from a member of an older version.
    #[serde(default)]
    pub client_addresses: ClientAddresses,
    /// What it is in the ring.
    pub role: Role,
    /// Whether it leads with a quorum behind it, so that commits are acknowledged.
    pub serving: bool,
    /// Why it leads without serving.
    pub not_serving: Option<String>,
    /// Why it neither votes nor campaigns, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_out_of_elections: Option<String>,
    /// The members whose data directories were put back to an earlier state, as far as it was told, itself included; each until it is
    /// started again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub put_back: BTreeMap<MemberId, PutBack>,
    /// Who leads, as far as it knows.
    pub leader: Option<MemberId>,
    /// The term in which it is.
    pub term: u64,
    /// The last entry of its log.
    pub log_end: Option<OpId>,
    /// The last entry that it knows to be committed.
    pub committed: Option<OpId>,
    /// The log on its disk.
    pub log: LogView,
    /// What it did since its process started.
    pub activity: ActivityView,
    /// Whether commits can go on.
    pub quorum: QuorumView,
    /// What commits wait for, and where a leader is looked for, as its log says it.
    #[serde(default)]
    pub rules: RingRules,
    /// What its configuration says of that, which only a new ring begins with.
    #[serde(default)]
    pub configured_rules: Option<RingRules>,
    /// The voter sets in force, as its log says; a commit needs a majority of each.
    #[serde(default)]
    pub voter_sets: Vec<BTreeSet<MemberId>>,
    /// Who of each voter set answers; only the leader knows.
    #[serde(default)]
    pub voter_set_health: Vec<VoterSetHealth>,
    /// Each region's voting members and how far they are; only the leader knows.
    #[serde(default)]
    pub regions: Vec<RegionQuorum>,
    /// What a commit waits for, and who could lead; only the leader knows.
    #[serde(default)]
    pub explanation: Option<Explanation>,
    /// All members of the ring, itself included, as its log says; empty before it takes part.
    #[serde(default)]
    pub members: Vec<LoggedMember>,
    /// The other members, as far as it sees them.
    pub peers: Vec<PeerView>,
    /// By which routes entries reach the members; nothing before it takes part.
    #[serde(default)]
    pub replication_routes: Option<ReplicationRoutesView>,
    /// The mysqld beside it; none for a witness.
    pub mysql: Option<MysqlView>,
    /// Who reads its binlog server; none when it has no such server.
    #[serde(default)]
    pub consumers: Option<Vec<ConsumerView>>,
    /// How far its log is archived; nothing where it does not archive.
    #[serde(default)]
    pub archive: Option<ArchiveView>,
    /// How the hooks did; nothing without hooks.
    #[serde(default)]
    pub hooks: Option<HooksView>,
    /// The pause of failover, if one stands; nothing where the member does not take part in its ring yet.
    #[serde(default)]
    pub pause: Option<PauseView>,
    /// With which timers it takes part; nothing before it does, and from a member of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<TimersView>,
    /// The formats of its program and of the ring; nothing from a member of a version that does not know them.
    #[serde(default)]
    pub formats: Option<FormatsView>,
    /// The switchover that is scheduled, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_switchover: Option<ScheduledSwitchover>,
    /// Why it has stopped working, if it has.
    pub fault: Option<String>,
}

/// The timers of one member.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingName {
    /// Its identity; none before the ring is bootstrapped.
    pub id: Option<RingId>,
    /// `ring_name` of the configuration.
    pub name: String,
}

/// Who a member is, as its configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberName {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// With a mysqld or without.
    pub kind: MemberKind,
    /// Whether it may count in a quorum.
    pub votes: bool,
    /// Where the others reach it.
    pub address: String,
    /// Identity of its data directory.
    pub incarnation: Incarnation,
}

/// The formats that a member speaks, and that of its ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatsView {
    /// What its program speaks, such as `1` or `1-2`.
    pub speaks: FormatRange,
    /// The ring's format, as its log says it: the newest that members may use. Nothing before it takes part.
    pub ring: Option<FormatVersion>,
    /// Why it takes no entries, if the ring's format is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What the other members run, as they told the leader last; it asks while the ring's format could rise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ProgramView>,
}

/// The program of another member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramView {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// Version of the program `witness`; empty where it did not say.
    pub version: String,
    /// The formats that it speaks.
    pub speaks: FormatRange,
}

/// Where clients reach a member and its mysqld, as its configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAddresses {
    /// Where it answers HTTP, as a URL; none where it does not.
    pub api_url: Option<String>,
    /// `HOST:PORT` of its mysqld; none for a witness.
    pub mysql: Option<String>,
}

/// What a member is in its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It waits to be made a part of its ring.
    Joining,
    /// It receives the log and does not vote at the moment.
    Learner,
    /// It receives the log and votes.
    Follower,
    /// It asks for votes, to become the leader.
    Candidate,
    /// It was elected; whether it serves says [`MemberView::serving`].
    Leader,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Learner => "learner",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
        })
    }
}

/// The log on a member's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogView {
    /// The file that is written.
    pub file: String,
    /// Size of that file in bytes.
    pub file_bytes: u64,
    /// Every GTID in the log.
    pub gtid_set: GtidText,
    /// When an entry counts as durable here: `fsync` or `os`.
    pub durability: String,
    /// Bytes that all files take together.
    pub log_bytes: u64,
    /// Free space of the log's disk when it was last asked.
    pub disk_free_bytes: u64,
    /// Bytes that transactions may still take of the disk; none left: they are refused.
    #[serde(default)]
    pub disk_left_bytes: u64,
    /// What of the log cannot be read, so that another member waits for it, in words.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// How the reading back of closed files is getting on.
    #[serde(default)]
    pub scrub: ScrubView,
    /// Whether the disk budget is nearly used up.
    pub disk_alarm: bool,
    /// Whether the disk is full, so that a write was refused, and the log waits for free space.
    #[serde(default)]
    pub disk_full: bool,
    /// Whether its file system lacks free inodes then, and not space.
    #[serde(default)]
    pub disk_has_no_inodes: bool,
    /// For how many milliseconds the disk has been at the write or fsync that is under way; 0 while none is.
    #[serde(default)]
    pub disk_busy_ms: u64,
}

/// A disk that has been at one write or fsync for this long may hang for ever.
pub const DISK_HANGS: Duration = Duration::from_secs(5);

/// The scrub of a member's log: closed files are read back and verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubView {
    /// Bytes that were read back since the process started.
    pub read_bytes_total: u64,
    /// How often a file was found damaged since then.
    pub damaged_total: u64,
    /// Files that were replaced by another member's since then.
    pub repaired_total: u64,
    /// Bytes of closed files that the present pass has read.
    pub turn_bytes: u64,
    /// Bytes of all closed files.
    pub closed_bytes: u64,
    /// Bytes of closed files that were never read back since they were written.
    pub unverified_bytes: u64,
    /// When the last pass over all of them ended, in seconds since 1970.
    pub completed_at: Option<u64>,
    /// Bytes a second at which they are read; none where nothing is read for its own sake.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
}

/// What a member did since its process started; numbers only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivityView {
    /// Entries appended to the log.
    pub appended_entries_total: u64,
    /// Bytes appended to the log.
    pub appended_bytes_total: u64,
    /// How often entries were made durable.
    pub flushes_total: u64,
    /// Bytes of entries that wait to be written now.
    pub queued_bytes: u64,
    /// Bytes of proposals that are not committed now.
    pub proposals_bytes: u64,
    /// Elections that this member won.
    pub elections_won_total: u64,
    /// How often it saw the leader change.
    pub leader_changes_total: u64,
    /// For how long it knew of no leader before the present one, or the last one; nothing where it knew of one all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless_ms: Option<u64>,
}

/// A member as the ring's log describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedMember {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// Whether it counts in the quorum now.
    pub voter: bool,
    /// Name, region, address and whatever else the log says of it.
    #[serde(flatten)]
    pub record: MemberRecord,
}

/// Whether commits can go on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuorumView {
    /// Whether enough voters answer, as far as this member can tell.
    pub ok: bool,
    /// For how long they have not.
    pub lost_for_seconds: Option<f64>,
    /// What is missing, in words.
    pub cause: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
}

/// Another member of the ring, as this one sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerView {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// With a mysqld or without.
    pub kind: MemberKind,
    /// Where the others reach it.
    pub address: String,
    /// Whether it counts in the quorum now.
    pub voter: bool,
    /// Up to where its log equals the leader's; only the leader knows.
    pub matched: Option<OpId>,
    /// How many entries it is behind; only the leader knows.
    pub behind_entries: Option<u64>,
    /// How long ago the last call was sent that it answered; only the leader knows.
    pub answered_seconds: Option<f64>,
}

/// The mysqld beside a database member.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MysqlView {
    /// Who starts mysqld: `child`, `external` or `attach`.
    pub mode: String,
    /// What it is doing: `starting`, `running` where it answered the last look, `unreachable` and the like.
    pub state: String,
    /// Its version; none before it was looked at.
    pub version: Option<String>,
    /// Its `server_uuid`, while it answers: no two servers of a ring may have the same.
    #[serde(default)]
    pub server_uuid: Option<String>,
    /// Its settings that have to be the same at all servers of the ring, as they were seen last: with other ones a statement about
    /// tables or accounts does something else in the same words. Empty before it was looked at.
    #[serde(default)]
    pub ddl_settings: BTreeMap<String, String>,
    /// Whether its transactions are being taken in.
    pub ingesting: bool,
    /// Whether a commit there waits for the ring, whatever happens.
    pub protected: bool,
    /// How long ago it was examined; nothing from a member of an older version.
    #[serde(default)]
    pub examined_ms: Option<u64>,
    /// Why it is not protected.
    pub unprotected_because: Vec<String>,
    /// Whether clients may write there.
    pub writable: bool,
    /// Whether it was the ring's primary and was released: clients write without the ring.
    #[serde(default)]
    pub released: bool,
    /// The same in words: `open`, or `closed` with the reason.
    pub write_fence: String,
    /// Why ordinary accounts are kept off (`offline_mode`), if they are.
    #[serde(default)]
    pub offline: Option<String>,
    /// What it is to the ring: `primary`, `following` and the like, with the reason.
    #[serde(default)]
    pub role: String,
    /// Whether the ring's log is applied to it while another member leads.
    #[serde(default)]
    pub applies: bool,
    /// Whether the ring's log is being applied to it, as far as its applier goes, which tries on where mysqld is gone;
    /// [`Self::follows`] tells whether it is there.
    #[serde(default)]
    pub following: bool,
    /// Milliseconds that what is applied is behind what the ring committed, while it follows and that is known: what this member
    /// has not received counts, as far as its leader tells of it.
    #[serde(default)]
    pub lag_ms: Option<u64>,
    /// Transactions of the ring's log that were applied to it since the process started.
    #[serde(default)]
    pub applied_total: u64,
    /// Transactions that mysqld has executed and the ring has not committed, as after a `SHUTDOWN` by SQL without a quorum: clients
    /// may have been told that they succeeded. `None` where the last comparison found none.
    #[serde(default)]
    pub errant: Option<ErrantTransactions>,
    /// The number of the last start that began open for writes, while this process ran.
    #[serde(default)]
    pub started_open: Option<u64>,
    /// Transactions that committed without the ring in starts that began open for writes and that no operator has acknowledged.
    #[serde(default)]
    pub exposed: Option<u64>,
    /// Transactions that it had committed and the ring lacked when the member attached to it, since the process started.
    #[serde(default)]
    pub not_in_ring_total: u64,
    /// Age of the oldest transaction that is in its binlog and not acknowledged.
    pub oldest_unacked_seconds: Option<f64>,
    /// Transactions of it that the ring committed since the process started.
    pub acknowledged_total: u64,
    /// Acknowledgements sent to it; one may stand for many transactions.
    pub acks_total: u64,
    /// Transactions that were cut off its binlog before a start, because the ring had not committed them.
    #[serde(default)]
    pub trimmed_total: u64,
    /// What a promotion of this member would cost: why its mysqld could not be the primary soon, or how many committed transactions
    /// it has not executed. A few seconds old at most; nothing before the first look.
    #[serde(default)]
    pub promotion: Option<DatabaseState>,
    /// What the member does about a mysqld that should be the primary and cannot; nothing when it can.
    #[serde(default)]
    pub demotion: Option<String>,
    /// What stands in the way, if anything does.
    pub trouble: Option<String>,
    /// What somebody should do something about, although mysqld is what it should be at the moment.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl MysqlView {
    /// [`Self::state`] of one that answered the last look.
    pub const RUNNING: &str = "running";
    /// The same of one that the member does not act on.
    pub const UNMANAGED: &str = "unmanaged";

    /// Whether the member does not act on it: then it is a server of plain replication, whichever role the member has in the ring.
    pub fn is_unmanaged(&self) -> bool {
        self.state == Self::UNMANAGED
    }

    /// Whether its member leads and it lacks a part of the log: nobody writes there, and it is set up as a primary behind that.
    pub fn catches_up(&self) -> bool {
        !self.writable && self.role.starts_with("catching up")
    }

    /// Whether it follows the ring, and is there.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn follows(&self) -> Result<(), String> {
        if self.following && self.state == Self::RUNNING {
            return Ok(());
        }
        let why = match self.following {
            true => self.trouble.as_ref().unwrap_or(&self.state),
            false => &self.role,
        };
        Err(why.clone())
    }
}

/// What a mysqld has executed and the ring has not committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrantTransactions {
    /// The number of these transactions.
    pub transactions: u64,
    /// All of them, in MySQL's text form.
    pub gtids: String,
}

/// The archive of the log, as a member has seen it. Of several members of a ring one archives, and the others look now and then.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiveView {
    /// Where it is.
    pub url: String,
    /// Whether this member archives.
    pub archives: bool,
    /// Up to where the archive has the log, as in `binlog.000007:1234`; none before that is known.
    pub archived: Option<String>,
    /// How long something has been committed that the archive lacks, as far as this member has looked; since its start, before it has.
    pub lag_seconds: f64,
    /// Pieces that this member has archived since its process started.
    pub pieces_total: u64,
    /// Bytes of them as they are stored.
    pub bytes_total: u64,
    /// How often it went on behind a gap, the log having been purged before it was archived.
    pub gaps_total: u64,
    /// How often it failed, and began anew.
    pub failures_total: u64,
    /// Why it fails at present, if it does.
    pub error: Option<String>,
    /// Whether it encrypts what it archives.
    #[serde(default)]
    pub encrypts: bool,
    /// The file with which the archive begins since it was pruned, as this member has seen it last; none where it was never pruned.
    #[serde(default)]
    pub begins: Option<String>,
    /// Objects that this member has deleted from the archive since its process started.
    #[serde(default)]
    pub pruned_objects_total: u64,
    /// How often it could not look what may go, or delete it.
    #[serde(default)]
    pub prune_failures_total: u64,
    /// Why nothing is deleted at present, if something should be.
    #[serde(default)]
    pub prune_error: Option<String>,
    /// The first file that the archive has in front of this member's log and that its binlog server can serve; none where the archive
    /// adds nothing to the log.
    #[serde(default)]
    pub serves_from: Option<String>,
    /// Files that were fetched for consumers of the binlog server since the process started.
    #[serde(default)]
    pub served_files_total: u64,
    /// Bytes of them.
    #[serde(default)]
    pub served_bytes_total: u64,
    /// How often the archive could not be looked at, or a file not be fetched, for consumers.
    #[serde(default)]
    pub serve_failures_total: u64,
    /// Why that was, until it succeeds again.
    #[serde(default)]
    pub serve_error: Option<String>,
    /// Bytes that such files take on this member's disk at present.
    #[serde(default)]
    pub serve_disk_bytes: u64,
}

/// What the hooks have done since the member started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksView {
    /// Commands that were run, successfully or not.
    pub runs_total: u64,
    /// Of these, the ones that failed or were killed.
    pub failures_total: u64,
    /// Always 0, for programs that require it: each state is reported until its hook succeeds.
    pub dropped_total: u64,
    /// The hooks whose last run failed, and that are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingHook>,
}

/// A hook that has not succeeded yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingHook {
    /// Its key in `[hooks]`.
    pub hook: String,
    /// Failed runs for the state that it is to report.
    pub failures: u64,
    /// Why the last one failed.
    pub why: String,
}

/// Gives a member's view at any moment.
pub trait ViewSource: Send + Sync + 'static {
    /// The view now. Cheap, and never waits.
    fn view(&self) -> MemberView;
}

// Who reads a member's binlog server.

/// A replica or another consumer at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerView {
    /// What it registered as, else its server id, else its address.
    pub name: String,
    /// From where it is connected.
    pub address: String,
    /// Its server id; 0 for none.
    pub server_id: u32,
    /// Its server UUID, if it said one.
    pub server_uuid: Option<Uuid>,
    /// How the consumer named its place: `gtids` or `position`.
    pub asked_by: String,
    /// The file up to which the log was read for it.
    pub file: String,
    /// The position in that file.
    pub position: u64,
    /// Committed bytes of the log behind that position.
    pub behind_bytes: u64,
    /// Bytes that wait to be taken by it.
    pub queued_bytes: u64,
    /// For how long it is attached.
    pub attached_seconds: f64,
}

//! Complete, checked and typed settings of a running member. The program reads them from the configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_store::{Durability, VerifyAtStart};
use consensus::Program;
use consensus::quorum::RingRules;
use mysql_link::TlsMode;
use mysqld_controller::write_fence::WriteFenceOptions;
use mysqld_server::SourceTls;
use mysqld_server::events::EventsWanted;
use proxy::ProxyOptions;
use raft_types::{MemberId, MemberKind, Region};
use transport::{FarOptions, NamedRoles, TlsError, TlsFiles, TlsMaterial};
use url::Url;
use uuid::Uuid;

use crate::status::{ClientAddresses, LoggedMember};

/// A member's checked configuration, without the keys that only the program uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The directory of this member.
    pub data_dir: PathBuf,
    /// The ring's name, for operators and metrics.
    pub ring_name: String,
    /// This member's entry in `members`.
    pub own: MemberEntry,
    /// Address on which calls from the other members are accepted.
    pub listen: String,
    /// Every member of the ring, this one included, in file order.
    pub members: Vec<MemberEntry>,
    /// How the log is stored on disk.
    pub log: LogSettings,
    /// Timers and memory of consensus.
    pub raft: RaftSettings,
    /// Quorum and candidate rules.
    pub rules: RingRules,
    /// How entries travel between regions.
    pub regions: RegionsSettings,
    /// TLS between members; `None` without.
    pub tls: Option<TlsSettings>,
    /// A database member's mysqld; `None` for a witness.
    pub mysql: Option<MysqlSettings>,
    /// The binlog server; `None` without.
    pub binlog_server: Option<BinlogServerSettings>,
    /// The log's archive; `None` where this member does not archive.
    pub archive: Option<ArchiveSettings>,
    /// Commands that run when the primary changes.
    pub hooks: HookSettings,
    /// Client addresses of the member and its mysqld.
    pub client_addresses: ClientAddresses,
    /// The running program. Not configurable: tests let a member be of another version.
    pub program: Program,
}

/// One entry of `[[members]]`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MemberEntry {
    /// The member's number, unique in the ring and never used again.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// Database member or witness.
    pub kind: MemberKind,
    /// Whether it may count in a quorum.
    pub votes: bool,
    /// The fit member with the highest value leads; 0 leads only without another.
    #[serde(skip)]
    pub priority: u32,
    /// `host:port` for the other members.
    pub address: String,
}

impl From<&LoggedMember> for MemberEntry {
    fn from(logged: &LoggedMember) -> Self {
        let record = &logged.record;
        Self {
            id: logged.id,
            name: record.name.clone(),
            region: record.region.clone(),
            kind: record.kind,
            votes: record.votes,
            priority: record.priority,
            address: record.address.clone(),
        }
    }
}

/// Section `[log]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// When an entry counts as durable.
    pub durability: Durability,
    /// File size after which the leader rotates.
    pub max_file_bytes: u64,
    /// Memory for the newest entries, in bytes.
    pub cache_bytes: u64,
    /// Memory for entries that wait to be written, in bytes.
    pub queue_bytes: u64,
    /// How much is verified before the member takes part.
    pub verify: VerifyAtStart,
    /// Bytes a second read by the scrub; `None` without a scrub.
    pub scrub_rate: Option<u64>,
    /// Limit for the bytes of all files; `None` for no limit.
    pub disk_limit_bytes: Option<u64>,
    /// Bytes kept free on the disk.
    pub disk_reserve_bytes: u64,
    /// How long closed files are kept; `None` for indefinitely.
    pub keep_for: Option<Duration>,
    /// Total bytes above which the oldest files are removed; `None` for no bound.
    pub keep_bytes: Option<u64>,
    /// How long an absent member delays the purge.
    pub absent_after: Duration,
}

/// Section `[archive]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// The archive's location.
    pub url: Url,
    /// A file with storage options and secrets.
    pub options_file: Option<PathBuf>,
    /// How often committed entries are archived.
    pub interval: Duration,
    /// Age at which the leader rotates a file, so that it is archived as a whole; `None` for no age limit.
    pub max_file_age: Option<Duration>,
    /// Time limit of one storage call.
    pub call_limit: Duration,
    /// Upload limit in bytes a second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Most bytes of the log kept only because they are not archived.
    pub hold_bytes: u64,
    /// A file with the public keys for encryption; `None` without encryption.
    pub recipients_file: Option<PathBuf>,
    /// A file with the secret keys that decrypt archived files for clients of the binlog server. `None`: encrypted files are not served.
    pub identity_file: Option<PathBuf>,
    /// Disk space for archived files served by the binlog server, in bytes; `None`: none are served.
    pub serve_bytes: Option<u64>,
    /// Whether the archiving member deletes prunable objects.
    pub prune: bool,
    /// How long committed entries stay in the archive; `None` for indefinitely.
    pub keep: Option<Duration>,
    /// How many of the newest base backups are kept at any age; `None` for all.
    pub keep_base_backups: Option<usize>,
    /// The directory where mysqld copies a base backup; `None` where the command line names it.
    pub copy_directory: Option<PathBuf>,
}

/// Section `[raft]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaftSettings {
    /// Interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// Silence after which the leader counts as gone.
    pub lease: Duration,
    /// Memory for uncommitted proposals.
    pub proposals_bytes: u32,
}

impl RaftSettings {
    /// The default lease for a heartbeat.
    pub fn usual_lease(heartbeat: Duration) -> Duration {
        heartbeat * 8 / 5
    }
}

/// Section `[tls]` of the configuration, with its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// This member's certificate.
    pub certificate_file: PathBuf,
    /// Private key of that certificate.
    pub key_file: PathBuf,
    /// CAs of the other members' certificates.
    pub ca_file: PathBuf,
    /// The name required in the other members' certificates; by default the host in each address.
    pub peer_name: Option<String>,
    /// Roles of certificates that do not contain one, and of members whose certificates do not name them.
    pub roles: NamedRoles,
    /// Certificate and key for commands on this host; `None`: the member's own.
    pub operator: Option<(PathBuf, PathBuf)>,
}

impl TlsSettings {
    /// Reads the member's files.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load(&self) -> Result<TlsMaterial, TlsError> {
        self.load_with(&self.certificate_file, &self.key_file)
    }

    /// Reads the files for commands on the member's host.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load_for_commands(&self) -> Result<TlsMaterial, TlsError> {
        match &self.operator {
            Some((certificate, key)) => self.load_with(certificate, key),
            None => self.load(),
        }
    }

    fn load_with(&self, certificate: &Path, key: &Path) -> Result<TlsMaterial, TlsError> {
        TlsMaterial::load(&TlsFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            authority: self.ca_file.clone(),
            peer_name: self.peer_name.clone(),
            roles: self.roles.clone(),
        })
    }
}

/// Section `[mysql]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlSettings {
    /// What starts and stops mysqld.
    pub mode: MysqlMode,
    /// Host of mysqld for TCP.
    pub host: String,
    /// Port of mysqld for TCP.
    pub port: u16,
    /// Unix socket; used instead of host and port.
    pub socket: Option<PathBuf>,
    /// The member's account in mysqld.
    pub user: String,
    /// Source of its password.
    pub password: PasswordSource,
    /// TLS mode, with the values of `--ssl-mode`.
    pub tls: TlsMode,
    /// CA of mysqld's certificate.
    pub tls_ca_file: Option<PathBuf>,
    /// The member's own certificate and its key.
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    /// A copy of mysqld's RSA public key; without it the server is queried.
    pub public_key_file: Option<PathBuf>,
    /// The command that starts mysqld, with any wrapper.
    pub mysqld: Vec<String>,
    /// mysqld's data directory; `None` only in mode `attach`.
    pub datadir: Option<PathBuf>,
    /// Additional arguments for mysqld in mode `child`.
    pub extra_args: Vec<String>,
    /// Commands and files in mode `external`.
    pub external: Option<ExternalMysqld>,
    /// True if an empty data directory is initialised.
    pub initialize: bool,
    /// The acker's server id; `None`: derived from the member's id.
    pub server_id: Option<u32>,
    /// The acker's server UUID; `None`: the member's incarnation.
    pub server_uuid: Option<Uuid>,
    /// Whether the member changes required settings, or only checks them.
    pub manage_settings: bool,
    /// True if a server with unproven requirements is accepted.
    pub accept_unproven: bool,
    /// The largest transaction that the primary accepts, in bytes of binlog.
    pub max_transaction_bytes: u64,
    /// Connections that apply the ring's log while another member leads; `None`: it is not applied.
    pub apply_workers: Option<usize>,
    /// Whether mysqld's own replica threads apply, from the member's binlog server.
    pub native: bool,
    /// True if mysqld runs events while it is the primary.
    pub events: EventsWanted,
    /// How long a leader's mysqld may be unfit before another member gets the leadership; `None`: indefinitely.
    pub demote_after: Option<Duration>,
    /// Time for which clients may use a primary without a serving member.
    pub fence_after: Duration,
    /// How long statements may delay a planned switchover before their sessions are killed; `None`: none are.
    pub kill_statements_after: Option<Duration>,
}

impl MysqlSettings {
    /// How this mysqld, as a replica, verifies another member's mysqld: with the CA that verifies this one, or with the ring's.
    pub fn source_tls(&self, ring_ca: &Path) -> SourceTls {
        let (ca_file, identity) = match (self.tls, &self.tls_ca_file) {
            (TlsMode::VerifyCa, Some(own)) => (own.as_path(), false),
            (TlsMode::VerifyIdentity, Some(own)) => (own.as_path(), true),
            _ => (ring_ca, true),
        };
        let ca_file = std::path::absolute(ca_file).unwrap_or_else(|_| ca_file.to_owned());
        SourceTls::Verified { ca_file, identity }
    }

    /// Longest wait of a planned switchover for statements at the primary.
    pub fn longest_wait_for_statements(&self) -> Duration {
        WriteFenceOptions::longest_wait_for_statements(self.kill_statements_after)
    }
}

/// What starts and stops mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlMode {
    /// The member: mysqld is its child process.
    Child,
    /// The member, through commands of mysqld's owner.
    External,
    /// Another program; the member only connects.
    Attach,
}

/// A mysqld owned by another program, such as systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalMysqld {
    /// The start command.
    pub start: Vec<String>,
    /// The stop command.
    pub stop: Vec<String>,
    /// The kill command.
    pub kill: Vec<String>,
    /// The value of mysqld's option `log_bin`.
    pub log_bin: String,
    /// Its pid file, if known.
    pub pid_file: Option<PathBuf>,
}

/// Section `[binlog_server]`, where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogServerSettings {
    /// Listen address, `HOST:PORT`.
    pub listen: String,
    /// Name of the one account that may log in.
    pub user: String,
    /// Source of its password.
    pub password: PasswordSource,
    /// The certificate and its key; `None` without TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// True if a login without TLS is refused.
    pub require_tls: bool,
    /// Limit of concurrent connections.
    pub max_connections: usize,
    /// Memory for one client's send queue.
    pub queue_bytes: usize,
}

/// Section `[regions]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionsSettings {
    /// Routes by which the leader sends.
    pub proxy: ProxyOptions,
    /// Differences for links to another region.
    pub far: FarOptions,
}

/// Section `[hooks]`; an empty command means no hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// Run when this member's mysqld becomes the primary.
    pub on_primary: Vec<String>,
    /// Run when it is no longer the primary.
    pub on_demoted: Vec<String>,
    /// Run by every member when another member's mysqld becomes the primary.
    pub on_primary_changed: Vec<String>,
    /// Time limit of a command.
    pub timeout: Duration,
}

impl HookSettings {
    /// Returns whether any command is configured.
    pub fn any(&self) -> bool {
        let commands = [&self.on_primary, &self.on_demoted, &self.on_primary_changed];
        commands.iter().any(|command| !command.is_empty())
    }
}

/// Source of a password. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// Value from the configuration or the environment.
    Given(String),
    /// The first line of a file, read when the member starts.
    File(PathBuf),
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl PasswordSource {
    /// The current password.
    ///
    /// # Errors
    /// When the password file cannot be read, is not UTF-8, or its first line is empty; with its path.
    pub fn read(&self) -> std::io::Result<String> {
        let path = match self {
            Self::Given(password) => return Ok(password.clone()),
            Self::File(path) => path,
        };
        let wrong = |kind, why: &dyn fmt::Display| {
            std::io::Error::new(kind, format!("{}: {why}", path.display()))
        };
        let bytes = std::fs::read(path).map_err(|error| wrong(error.kind(), &error))?;
        let unusable = |why: &str| wrong(std::io::ErrorKind::InvalidData, &why);
        let text = String::from_utf8(bytes).map_err(|_| unusable("it is not UTF-8"))?;
        match Self::in_file(&text) {
            line if line.trim().is_empty() => Err(unusable("its first line is empty")),
            line => Ok(line.to_owned()),
        }
    }

    /// The first line of a password file.
    pub(crate) fn in_file(text: &str) -> &str {
        text.lines().next().unwrap_or_default()
    }
}

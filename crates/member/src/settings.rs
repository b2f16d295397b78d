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
    /// This member's entry in `[[members]]`.
    pub own: MemberEntry,
    /// The address at which calls from the other members are accepted.
    pub listen: String,
    /// Every member of the ring, including this one, in the order of the file.
    pub members: Vec<MemberEntry>,
    /// How the log is stored on disk.
    pub log: LogSettings,
    /// Timers and memory of consensus.
    pub raft: RaftSettings,
    /// Quorum and candidate rules.
    pub rules: RingRules,
    /// How entries are sent between regions.
    pub regions: RegionsSettings,
    /// TLS between members; `None` without TLS.
    pub tls: Option<TlsSettings>,
    /// A database member's mysqld; `None` for a witness.
    pub mysql: Option<MysqlSettings>,
    /// The binlog server; `None` without one.
    pub binlog_server: Option<BinlogServerSettings>,
    /// The log's archive; `None` where this member does not archive.
    pub archive: Option<ArchiveSettings>,
    /// Commands that run when the primary changes.
    pub hooks: HookSettings,
    /// Client addresses of the member and its mysqld.
    pub client_addresses: ClientAddresses,
    /// The running program. It cannot be configured: tests use it to simulate a member of another version.
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
    /// True if the member may count in a quorum.
    pub votes: bool,
    /// The fit member with the highest value leads. A member with the value 0 leads only if no other member can.
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
    /// How much of the log is verified before the member takes part in the ring.
    pub verify: VerifyAtStart,
    /// Bytes per second that the scrub reads; `None` without a scrub.
    pub scrub_rate: Option<u64>,
    /// Limit for the bytes of all files; `None` for no limit.
    pub disk_limit_bytes: Option<u64>,
    /// Bytes of free space on the disk that the log must not use.
    pub disk_reserve_bytes: u64,
    /// How long closed files are kept; `None` means forever.
    pub keep_for: Option<Duration>,
    /// If all files have more bytes than this, the oldest ones are removed; `None` for no limit.
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
    /// The age at which the leader rotates a file, so that it can be archived as a whole; `None` for no age limit.
    pub max_file_age: Option<Duration>,
    /// Time limit of one storage call.
    pub call_limit: Duration,
    /// Upload limit in bytes per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Maximum bytes of the log that are kept only because they are not archived yet.
    pub hold_bytes: u64,
    /// A file with the public keys for encryption; `None` without encryption.
    pub recipients_file: Option<PathBuf>,
    /// A file with the secret keys that decrypt archived files for clients of the binlog server. If it is `None`, encrypted files are not
    /// served.
    pub identity_file: Option<PathBuf>,
    /// Disk space in bytes for archived files that the binlog server serves; `None` if it serves no archived files.
    pub serve_bytes: Option<u64>,
    /// True if the archiving member deletes objects that can be pruned.
    pub prune: bool,
    /// How long committed entries stay in the archive; `None` means forever.
    pub keep: Option<Duration>,
    /// How many of the newest base backups are kept at any age; `None` means all.
    pub keep_base_backups: Option<usize>,
    /// The directory to which mysqld copies a base backup; `None` if it is given on the command line.
    pub copy_directory: Option<PathBuf>,
}

/// Section `[raft]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaftSettings {
    /// Interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// If the leader is silent for this time, it counts as gone.
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
    /// The CAs that signed the other members' certificates.
    pub ca_file: PathBuf,
    /// The name required in the other members' certificates; by default the host in each address.
    pub peer_name: Option<String>,
    /// The roles of certificates that contain no role. Also the members whose certificates do not have their names.
    pub roles: NamedRoles,
    /// The certificate and key for commands on this host; `None` to use the member's own.
    pub operator: Option<(PathBuf, PathBuf)>,
}

impl TlsSettings {
    /// Reads the member's files.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn load(&self) -> Result<TlsMaterial, TlsError> {
        self.load_with(&self.certificate_file, &self.key_file)
    }

    /// Reads the files for commands on this host.
    ///
    /// # Errors
    /// If one of them cannot be used.
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
    /// The certificate and key with which the member connects.
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    /// A copy of mysqld's RSA public key. Without it, the key is requested from the server.
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
    /// The server id with which the member acknowledges; `None` to derive it from the member's number.
    pub server_id: Option<u32>,
    /// The server UUID with which the member acknowledges; `None` for the member's incarnation.
    pub server_uuid: Option<Uuid>,
    /// True if the member changes settings that it requires; false if it only checks them.
    pub manage_settings: bool,
    /// True if a server is accepted whose required settings cannot be proven.
    pub accept_unproven: bool,
    /// The largest transaction that the primary accepts, in bytes of binlog.
    pub max_transaction_bytes: u64,
    /// The number of connections that apply the ring's log while another member leads; `None` if it is not applied.
    pub apply_workers: Option<usize>,
    /// True if mysqld's own replica threads apply the log, from the member's binlog server.
    pub native: bool,
    /// True if mysqld runs events while it is the primary.
    pub events: EventsWanted,
    /// How long a leader's mysqld may be unfit before the leadership is transferred; `None` means forever.
    pub demote_after: Option<Duration>,
    /// How long clients may use a primary while its member does not serve.
    pub fence_after: Duration,
    /// How long statements may delay a planned switchover before their sessions are killed; `None` if no sessions are killed.
    pub kill_statements_after: Option<Duration>,
}

impl MysqlSettings {
    /// Returns how this mysqld, as a replica, verifies another member's mysqld: with the CA that verifies this mysqld, or otherwise with
    /// the ring's CA.
    pub fn source_tls(&self, ring_ca: &Path) -> SourceTls {
        let (ca_file, identity) = match (self.tls, &self.tls_ca_file) {
            (TlsMode::VerifyCa, Some(own)) => (own.as_path(), false),
            (TlsMode::VerifyIdentity, Some(own)) => (own.as_path(), true),
            _ => (ring_ca, true),
        };
        let ca_file = std::path::absolute(ca_file).unwrap_or_else(|_| ca_file.to_owned());
        SourceTls::Verified { ca_file, identity }
    }

    /// Returns the longest time for which a planned switchover waits for statements at the primary.
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
    /// The path of mysqld's pid file, if known.
    pub pid_file: Option<PathBuf>,
}

/// Section `[binlog_server]` of the configuration, if the binlog server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogServerSettings {
    /// Listen address, `HOST:PORT`.
    pub listen: String,
    /// Name of the only account that may log in.
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
    /// The routes by which the leader sends entries.
    pub proxy: ProxyOptions,
    /// Settings for connections to other regions.
    pub far: FarOptions,
}

/// Section `[hooks]` of the configuration; an empty command means no hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// Runs when this member's mysqld becomes the primary.
    pub on_primary: Vec<String>,
    /// Runs when this member's mysqld is no longer the primary.
    pub on_demoted: Vec<String>,
    /// Runs on every member when another member's mysqld becomes the primary.
    pub on_primary_changed: Vec<String>,
    /// Time limit of a command.
    pub timeout: Duration,
}

impl HookSettings {
    /// Returns true if any command is configured.
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
    /// Returns the current password.
    ///
    /// # Errors
    /// If the password file cannot be read, is not UTF-8, or its first line is empty. The error contains the file's path.
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

    /// Returns the first line of a password file.
    pub(crate) fn in_file(text: &str) -> &str {
        text.lines().next().unwrap_or_default()
    }
}

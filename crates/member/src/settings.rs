//! What a running member is told by whoever starts it: everything present, checked and typed. How it is read is not its business.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_store::VerifyAtStart;
use consensus::Program;
use consensus::quorum::RingRules;
use mysqld_controller::SourceTls;
use mysqld_controller::events::EventsWanted;
use mysqld_controller::write_fence::WriteFenceOptions;
use proxy::ProxyOptions;
use raft_types::{MemberId, MemberKind, Region};
use transport::{FarOptions, NamedRoles, TlsError, TlsFiles, TlsMaterial};
use url::Url;
use uuid::Uuid;

use crate::status::ClientAddresses;

/// Everything that a member is configured with, checked; what only the program uses is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The directory of this member.
    pub data_dir: PathBuf,
    /// The ring's name, for people and metrics.
    pub ring_name: String,
    /// This member's entry of the list.
    pub own: MemberEntry,
    /// Where calls of the other members are taken in.
    pub listen: String,
    /// Every member of the ring, this one included, in the order of the file.
    pub members: Vec<MemberEntry>,
    /// How the log is kept on disk.
    pub log: LogSettings,
    /// Timers and memory of consensus.
    pub raft: RaftSettings,
    /// What a commit waits for, and where a leader is looked for.
    pub rules: RingRules,
    /// How entries travel between regions.
    pub regions: RegionsSettings,
    /// TLS between members; `None` without.
    pub tls: Option<TlsSettings>,
    /// The mysqld beside a database member; `None` for a witness.
    pub mysql: Option<MysqlSettings>,
    /// The binlog server; `None` without.
    pub binlog_server: Option<BinlogServerSettings>,
    /// Where the log is archived; `None` where this member does not archive.
    pub archive: Option<ArchiveSettings>,
    /// Commands that are run when the primary changes.
    pub hooks: HookSettings,
    /// Where clients reach the member and its mysqld.
    pub client_addresses: ClientAddresses,
    /// Which program runs here. Not a user's choice: tests let a member be of another version.
    pub program: Program,
}

/// One entry of `[[members]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEntry {
    /// The member's number, unique in the ring and never used again.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// With a mysqld or without.
    pub kind: MemberKind,
    /// Whether it may count in a quorum.
    pub votes: bool,
    /// Which of several fit members leads: the highest; 0 only when there is no other.
    pub priority: u32,
    /// `host:port` at which the others reach it.
    pub address: String,
}

/// Section `[log]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// When an entry counts as durable.
    pub durability: Durability,
    /// Size after which the leader rotates.
    pub max_file_bytes: u64,
    /// Memory for the newest entries.
    pub cache_bytes: u64,
    /// Memory for entries that wait to be written.
    pub queue_bytes: u64,
    /// How much is verified before the member takes part.
    pub verify: VerifyAtStart,
    /// Bytes a second that the scrub reads; `None` without one.
    pub scrub_rate: Option<u64>,
    /// Bytes that the files may take together; `None` for no limit.
    pub disk_limit_bytes: Option<u64>,
    /// Bytes that stay free on the disk.
    pub disk_reserve_bytes: u64,
    /// How long files are kept after they were closed; `None` for ever.
    pub keep_for: Option<Duration>,
    /// Bytes of files above which the oldest go; `None` for no bound.
    pub keep_bytes: Option<u64>,
    /// How long a member that is away holds the purge back.
    pub absent_after: Duration,
}

/// Section `[archive]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// Where the archive is.
    pub url: Url,
    /// A file with what the storage has to know, and secrets.
    pub options_file: Option<PathBuf>,
    /// How often what was committed is archived.
    pub interval: Duration,
    /// How old a file gets before the leader rotates, so that it is archived as a whole; `None`: that does not matter.
    pub max_file_age: Option<Duration>,
    /// How long one call of the storage may take.
    pub call_limit: Duration,
    /// Bytes a second that are sent at most; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Bytes of the log that are kept at most because they are not archived.
    pub hold_bytes: u64,
    /// A file with the public keys that everything is encrypted for; `None`: nothing is encrypted.
    pub recipients_file: Option<PathBuf>,
    /// A file with the secret keys with which archived files are decrypted for consumers of the binlog server; `None`: what is
    /// encrypted is not served.
    pub identity_file: Option<PathBuf>,
    /// Bytes that files of the archive may take on the member's disk for consumers of the binlog server; `None`: none is served.
    pub serve_bytes: Option<u64>,
    /// Whether the member that archives deletes what may go.
    pub prune: bool,
    /// How long what was committed is kept in the archive; `None` for ever.
    pub keep: Option<Duration>,
    /// How many of the newest base backups are kept, whatever their age; `None` for all.
    pub keep_base_backups: Option<usize>,
    /// The directory in which mysqld makes the copy of a base backup; `None` where it is named on the command line.
    pub copy_directory: Option<PathBuf>,
}

/// When an entry counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once it was forced to the disk.
    Fsync,
    /// Once the operating system has it; a power cut can lose it.
    Os,
}

impl Durability {
    /// Its word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
        }
    }
}

/// Section `[raft]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaftSettings {
    /// How often the leader is heard from.
    pub heartbeat: Duration,
    /// Silence after which the leader counts as gone.
    pub lease: Duration,
    /// Memory for proposals that are not committed yet.
    pub proposals_bytes: u32,
}

impl RaftSettings {
    /// The lease that goes with a heartbeat when nobody says another.
    pub fn usual_lease(heartbeat: Duration) -> Duration {
        heartbeat * 8 / 5
    }
}

/// Section `[tls]` of the configuration, with all of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate that this member shows.
    pub certificate_file: PathBuf,
    /// Private key of that certificate.
    pub key_file: PathBuf,
    /// Who may have signed the others' certificates.
    pub ca_file: PathBuf,
    /// The name that the others' certificates must carry; by default the host in each address.
    pub peer_name: Option<String>,
    /// Whose certificates say no role, and who are no members all the same.
    pub roles: NamedRoles,
    /// The certificate that commands on this host show, and its key; `None`: the member's own.
    pub operator: Option<(PathBuf, PathBuf)>,
}

impl TlsSettings {
    /// Reads the files of the member.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load(&self) -> Result<TlsMaterial, TlsError> {
        self.load_with(&self.certificate_file, &self.key_file)
    }

    /// Reads the files of an operator on the member's host.
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
    /// Whether the member owns the mysqld process.
    pub mode: MysqlMode,
    /// Host of mysqld for TCP.
    pub host: String,
    /// Port of mysqld for TCP.
    pub port: u16,
    /// Unix socket; used instead of host and port.
    pub socket: Option<PathBuf>,
    /// The member's account in mysqld.
    pub user: String,
    /// Where its password comes from.
    pub password: PasswordSource,
    /// TLS mode, in the words of `--ssl-mode`.
    pub tls: MysqlTls,
    /// Who may have signed mysqld's certificate.
    pub tls_ca_file: Option<PathBuf>,
    /// The member's own certificate and its key.
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    /// A copy of mysqld's RSA public key; the server is asked otherwise.
    pub public_key_file: Option<PathBuf>,
    /// The command that starts mysqld, with whatever wraps it.
    pub mysqld: Vec<String>,
    /// mysqld's data directory; `None` only in mode `attach`.
    pub datadir: Option<PathBuf>,
    /// More arguments for mysqld in mode `child`.
    pub extra_args: Vec<String>,
    /// How it is started and stopped in mode `external`.
    pub external: Option<ExternalMysqld>,
    /// Whether an empty data directory is initialised.
    pub initialize: bool,
    /// The acker's server id; `None` to make it from the member's id.
    pub server_id: Option<u32>,
    /// The acker's server UUID; `None` for its incarnation.
    pub server_uuid: Option<Uuid>,
    /// Whether the member sets what it needs, or only checks.
    pub manage_settings: bool,
    /// Whether a server is taken with which not everything was proven.
    pub accept_unproven: bool,
    /// The largest transaction that mysqld takes while it is the primary, in bytes of binlog.
    pub max_transaction_bytes: u64,
    /// Connections over which the ring's log is applied while another member leads; `None`: it is not.
    pub apply_workers: Option<usize>,
    /// Whether mysqld's own replica threads do that, from the member's binlog server.
    pub native: bool,
    /// Whether mysqld runs events while it is the primary.
    pub events: EventsWanted,
    /// How long a leader's mysqld may not be the primary before another member gets the leadership; `None`: for ever.
    pub demote_after: Option<Duration>,
    /// How long clients may go on at a primary whose member does not serve.
    pub fence_after: Duration,
    /// How long statements may hold a planned switchover up before their sessions are killed; `None`: none is.
    pub kill_statements_after: Option<Duration>,
}

impl MysqlSettings {
    /// How this mysqld, as a replica, verifies the mysqld of another member: by the CA that the member verifies its own by, or by the
    /// ring's.
    pub fn source_tls(&self, ring_ca: &Path) -> SourceTls {
        let (ca_file, identity) = match (self.tls, &self.tls_ca_file) {
            (MysqlTls::VerifyCa, Some(own)) => (own.as_path(), false),
            (MysqlTls::VerifyIdentity, Some(own)) => (own.as_path(), true),
            _ => (ring_ca, true),
        };
        let ca_file = std::path::absolute(ca_file).unwrap_or_else(|_| ca_file.to_owned());
        SourceTls::Verified { ca_file, identity }
    }

    /// How long a planned switchover waits at most for what runs at the primary.
    pub fn longest_wait_for_statements(&self) -> Duration {
        WriteFenceOptions::longest_wait_for_statements(self.kill_statements_after)
    }
}

/// Who starts and stops mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlMode {
    /// The member does: mysqld is its child process.
    Child,
    /// The member does, through commands of whatever owns it.
    External,
    /// Somebody else does; the member only connects.
    Attach,
}

/// TLS towards mysqld, with the meanings of the `mysql` client's `--ssl-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlTls {
    /// Never, even when the server offers it.
    Disabled,
    /// When the server offers it.
    Preferred,
    /// Always, with any certificate.
    Required,
    /// Always, and the certificate's signer is checked.
    VerifyCa,
    /// Always, and signer and host name are checked.
    VerifyIdentity,
}

/// A mysqld that something else owns, such as systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalMysqld {
    /// The command that starts it.
    pub start: Vec<String>,
    /// The command that asks it to stop.
    pub stop: Vec<String>,
    /// The command that kills it.
    pub kill: Vec<String>,
    /// The value of mysqld's option `log_bin`.
    pub log_bin: String,
    /// Its pid file, where it is known.
    pub pid_file: Option<PathBuf>,
}

/// `[binlog_server]`, where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogServerSettings {
    /// Address to listen at, `HOST:PORT`.
    pub listen: String,
    /// Name of the one account that may log in.
    pub user: String,
    /// Where its password comes from.
    pub password: PasswordSource,
    /// The certificate and its key; `None` without TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether a login without TLS is refused.
    pub require_tls: bool,
    /// The most connections at one time.
    pub max_connections: usize,
    /// Memory for what waits for one consumer.
    pub queue_bytes: usize,
}

/// Section `[regions]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionsSettings {
    /// By which ways the leader sends.
    pub proxy: ProxyOptions,
    /// What is different on the way to another region.
    pub far: FarOptions,
}

/// `[hooks]`; an empty command is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// Run when the mysqld beside this member has become the primary.
    pub on_primary: Vec<String>,
    /// Run when it is not the primary any more.
    pub on_demoted: Vec<String>,
    /// Run by every member when the primary is beside another member than before.
    pub on_primary_changed: Vec<String>,
    /// How long a command may take.
    pub timeout: Duration,
}

impl HookSettings {
    /// Whether there is any command.
    pub fn any(&self) -> bool {
        [&self.on_primary, &self.on_demoted, &self.on_primary_changed]
            .iter()
            .any(|command| !command.is_empty())
    }
}

/// Where a password comes from. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// It stands in the configuration or the environment.
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
    /// The password as it is now.
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

    /// The password in what a file holds: its first line.
    pub(crate) fn in_file(text: &str) -> &str {
        text.lines().next().unwrap_or_default()
    }
}

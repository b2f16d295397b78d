//! The configuration as the rest of the program reads it: everything present, checked and typed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use binlog_store::VerifyAtStart;
use consensus::quorum::{QuorumPolicy, RingRules};
use mysqld_controller::events::EventsWanted;
use mysqld_controller::gate::GateOptions;
use raft_types::{MemberId, MemberKind, Region};
use uuid::Uuid;

use super::binlog_server::{self, BinlogServerSettings};
use super::external_mysqld::{self, ExternalMysqld};
use super::hooks::{self, HookSettings};
use super::password_source::PasswordSource;
use super::regions::{self, RegionsSettings};
use super::values::Values;

/// A member's whole configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
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
    /// The log on disk.
    pub log: LogSettings,
    /// Timers.
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
    /// Where HTTP is served; `None` for nowhere.
    pub http_listen: Option<String>,
    /// What orders over HTTP have to bring; `None`: nobody orders anything.
    pub http_token: Option<PasswordSource>,
    /// Commands that are run when the primary changes.
    pub hooks: HookSettings,
    /// The process's own log.
    pub logging: LoggingSettings,
}

/// One entry of `[[members]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEntry {
    /// Its number.
    pub id: MemberId,
    /// Its name.
    pub name: String,
    /// Where it runs.
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

/// `[log]`.
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

/// `[raft]`.
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

/// `[tls]`, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate that this member shows.
    pub certificate_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// Who may have signed the others' certificates.
    pub ca_file: PathBuf,
    /// The name that the others' certificates must carry; by default the host in each address.
    pub peer_name: Option<String>,
}

/// `[mysql]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlSettings {
    /// Whether the member owns the mysqld process.
    pub mode: MysqlMode,
    /// TCP host.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Unix socket; used instead of host and port.
    pub socket: Option<PathBuf>,
    /// The member's account.
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
    /// More arguments for mysqld.
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
    /// How long a planned switchover waits at most for what runs at the primary.
    pub fn longest_wait_for_statements(&self) -> Duration {
        GateOptions::longest_wait_for_statements(self.kill_statements_after)
    }
}

/// Who starts and stops mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlMode {
    /// The member does.
    Child,
    /// The member does, through commands of whatever owns it.
    External,
    /// Somebody else does.
    Attach,
}

/// TLS towards mysqld, with the meanings of the `mysql` client's `--ssl-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlTls {
    /// Never.
    Disabled,
    /// When the server offers it.
    Preferred,
    /// Always, with whatever certificate.
    Required,
    /// Always, and the certificate's signer is checked.
    VerifyCa,
    /// Always, and signer and host name are checked.
    VerifyIdentity,
}

/// `[logging]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingSettings {
    /// Whether lines are JSON objects.
    pub json: bool,
    /// The filter.
    pub level: String,
}

/// Builds the configuration from values that passed every check; `None` when one is missing, which
/// the checks have reported.
pub(crate) fn build(values: &Values, member_values: &[Values]) -> Option<Config> {
    let members = member_values
        .iter()
        .map(member)
        .collect::<Option<Vec<_>>>()?;
    let id = MemberId(values.number("member.id")?);
    let own = members.iter().find(|member| member.id == id)?.clone();
    let listen = match values.text("member.listen")? {
        listen if listen.is_empty() => own.address.clone(),
        listen => listen,
    };
    Some(Config {
        data_dir: values.text("data_dir")?.into(),
        ring_name: values.text("ring.name")?,
        listen,
        log: LogSettings {
            durability: match values.text("log.durability")?.as_str() {
                "os" => Durability::Os,
                _ => Durability::Fsync,
            },
            max_file_bytes: values.number("log.max_file_bytes")?,
            cache_bytes: values.number("log.cache_bytes")?,
            queue_bytes: values.number("log.queue_bytes")?,
            verify: match values.text("log.verify_at_start")?.as_str() {
                "all" => VerifyAtStart::All,
                "recent" => VerifyAtStart::Recent,
                _ => VerifyAtStart::New,
            },
            scrub_rate: values
                .number("log.scrub_rate")
                .map(|rate| Some(rate).filter(|rate| *rate != 0))?,
            disk_limit_bytes: values
                .number("log.disk_limit_bytes")
                .map(|limit| Some(limit).filter(|limit| *limit != 0))?,
            disk_reserve_bytes: values.number("log.disk_reserve_bytes")?,
            keep_for: values
                .duration("log.keep_for")
                .map(|age| Some(age).filter(|age| !age.is_zero()))?,
            keep_bytes: values
                .number("log.keep_bytes")
                .map(|bytes| Some(bytes).filter(|bytes| *bytes != 0))?,
            absent_after: values.duration("log.absent_after")?,
        },
        raft: raft(values)?,
        rules: rules(values)?,
        regions: regions::build(values, member_values)?,
        tls: tls(values)?,
        mysql: match own.kind {
            MemberKind::Database => Some(mysql(values)?),
            MemberKind::Witness => None,
        },
        binlog_server: binlog_server::build(values)?,
        http_listen: non_empty(values.text("http.listen")?),
        http_token: non_empty(values.text("http.token_file")?)
            .map(|file| PasswordSource::File(file.into())),
        hooks: hooks::build(values)?,
        logging: LoggingSettings {
            json: values.text("logging.format")? == "json",
            level: values.text("logging.level")?,
        },
        own,
        members,
    })
}

/// One member of the list.
pub(crate) fn member(values: &Values) -> Option<MemberEntry> {
    Some(MemberEntry {
        id: MemberId(values.number("members.id")?),
        name: values.text("members.name")?,
        region: Region(values.text("members.region")?),
        kind: match values.text("members.kind")?.as_str() {
            "database" => MemberKind::Database,
            _ => MemberKind::Witness,
        },
        votes: values.bool("members.votes")?,
        priority: u32::try_from(values.number("members.priority")?).ok()?,
        address: values.text("members.address")?,
    })
}

fn raft(values: &Values) -> Option<RaftSettings> {
    let heartbeat = values.duration("raft.heartbeat")?;
    let lease = values.duration("raft.lease")?;
    Some(RaftSettings {
        heartbeat,
        lease: if lease.is_zero() {
            RaftSettings::usual_lease(heartbeat)
        } else {
            lease
        },
        proposals_bytes: u32::try_from(values.number("raft.proposals_bytes")?).ok()?,
    })
}

fn rules(values: &Values) -> Option<RingRules> {
    let regions = |key| Some(values.list(key)?.into_iter().map(Region));
    Some(RingRules {
        policy: match values.text("quorum.policy")?.as_str() {
            "majority" => QuorumPolicy::Majority,
            "regions" => {
                let regions: BTreeSet<Region> = regions("quorum.regions")?.collect();
                match usize::try_from(values.number("quorum.required_regions")?).ok()? {
                    required if required > 0 && required < regions.len() => {
                        QuorumPolicy::SomeRegions { required, regions }
                    }
                    _ => QuorumPolicy::Regions(regions),
                }
            }
            _ => QuorumPolicy::SingleRegionDynamic,
        },
        region_preference: regions("quorum.region_preference")?.collect(),
        ..RingRules::default()
    })
}

fn tls(values: &Values) -> Option<Option<TlsSettings>> {
    let certificate = values.text("tls.certificate_file")?;
    if certificate.is_empty() {
        return Some(None);
    }
    Some(Some(TlsSettings {
        certificate_file: certificate.into(),
        key_file: values.text("tls.key_file")?.into(),
        ca_file: values.text("tls.ca_file")?.into(),
        peer_name: non_empty(values.text("tls.peer_name")?),
    }))
}

fn mysql(values: &Values) -> Option<MysqlSettings> {
    let text = |path| values.text(path);
    let path = |path| text(path).map(|text| non_empty(text).map(PathBuf::from));
    Some(MysqlSettings {
        mode: match text("mysql.mode")?.as_str() {
            "attach" => MysqlMode::Attach,
            "external" => MysqlMode::External,
            _ => MysqlMode::Child,
        },
        host: text("mysql.host")?,
        port: u16::try_from(values.number("mysql.port")?).ok()?,
        socket: path("mysql.socket")?.or_else(|| own_socket(values)),
        user: text("mysql.user")?,
        password: match path("mysql.password_file")? {
            Some(file) => PasswordSource::File(file),
            None => PasswordSource::Given(text("mysql.password")?),
        },
        tls: match text("mysql.tls")?.as_str() {
            "disabled" => MysqlTls::Disabled,
            "required" => MysqlTls::Required,
            "verify_ca" => MysqlTls::VerifyCa,
            "verify_identity" => MysqlTls::VerifyIdentity,
            _ => MysqlTls::Preferred,
        },
        tls_ca_file: path("mysql.tls_ca_file")?,
        tls_certificate: path("mysql.tls_certificate_file")?.zip(path("mysql.tls_key_file")?),
        public_key_file: path("mysql.public_key_file")?,
        mysqld: values.list("mysql.mysqld")?,
        datadir: path("mysql.datadir")?,
        extra_args: values.list("mysql.extra_args")?,
        external: external_mysqld::build(values)?,
        initialize: values.bool("mysql.initialize")?,
        server_id: u32::try_from(values.number("mysql.server_id")?)
            .ok()
            .filter(|id| *id != 0),
        server_uuid: values.uuid("mysql.server_uuid")?,
        manage_settings: values.bool("mysql.manage_settings")?,
        accept_unproven: values.bool("mysql.accept_unproven")?,
        demote_after: values
            .duration("mysql.demote_after")
            .map(|patience| Some(patience).filter(|patience| !patience.is_zero()))?,
        fence_after: values.duration("mysql.fence_after")?,
        kill_statements_after: values
            .duration("mysql.kill_statements_after")
            .map(|patience| Some(patience).filter(|patience| !patience.is_zero()))?,
        native: text("mysql.apply")? == "native",
        events: match text("mysql.event_scheduler")?.as_str() {
            "on" => EventsWanted::Yes,
            "off" => EventsWanted::No,
            _ => EventsWanted::AsMysqld,
        },
        apply_workers: match (
            text("mysql.apply")?.as_str(),
            values.bool("mysql.manage_settings")?,
        ) {
            // Applying needs semi-sync off, and leading needs it on.
            ("off", _) | (_, false) => None,
            _ => Some(usize::try_from(values.number("mysql.apply_workers")?).ok()?),
        },
    })
}

/// Where a mysqld that is the member's child listens when nobody says another place.
pub(crate) fn own_socket(values: &Values) -> Option<PathBuf> {
    let child = values.text("mysql.mode")? == "child";
    let data_dir = PathBuf::from(values.text("data_dir")?);
    child
        .then(|| std::path::absolute(data_dir.join("mysqld.sock")).ok())
        .flatten()
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

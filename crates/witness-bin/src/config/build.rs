//! Builds the settings from values that have passed every check.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use binlog_store::VerifyAtStart;
use consensus::quorum::{QuorumPolicy, RingRules};
use member::settings::{
    Durability, HookSettings, LogSettings, MemberEntry, MysqlMode, MysqlSettings, MysqlTls,
    PasswordSource, RaftSettings, Settings, TlsSettings,
};
use member::status::ClientAddresses;
use mysqld_controller::events::EventsWanted;
use raft_types::{MemberId, MemberKind, Region};
use transport::NamedRoles;

use crate::config::restart::KeyValues;
use crate::config::sections;
use crate::config::validation::Values;

/// A checked configuration: the settings of the member and of the program itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The settings of the member.
    pub member: Settings,
    /// The settings for HTTP; `None`: HTTP is not served.
    pub http: Option<HttpSettings>,
    /// Form and level of the process's own log.
    pub logging: LoggingSettings,
    /// The values that it was built from.
    pub(super) values: KeyValues,
}

/// Section `[http]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The listen address.
    pub listen: String,
    /// Its certificate and key; `None`: not encrypted.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The token for orders; `None`: orders are off.
    pub token: Option<PasswordSource>,
    /// The token for reads beyond the health checks of load balancers; `None`: not required.
    pub read_token: Option<PasswordSource>,
    /// The replica lag from which writers are throttled.
    pub throttle_threshold: Duration,
}

/// Section `[logging]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingSettings {
    /// Whether lines are JSON objects.
    pub json: bool,
    /// A filter of tracing-subscriber, such as `info,transport=debug`.
    pub level: String,
}

/// Builds the configuration from values that have passed every check; `None` when one is missing, which
/// the checks have reported.
pub(crate) fn build(values: &Values, member_values: &[Values]) -> Option<Config> {
    let http = http(values)?;
    Some(Config {
        member: settings(values, member_values, http.as_ref())?,
        http,
        logging: LoggingSettings {
            json: values.text("logging.format")? == "json",
            level: values.text("logging.level")?,
        },
        values: KeyValues::new(values, member_values),
    })
}

fn http(values: &Values) -> Option<Option<HttpSettings>> {
    let token = |key| -> Option<Option<PasswordSource>> {
        let file = non_empty(values.text(key)?);
        Some(file.map(|file| PasswordSource::File(file.into())))
    };
    let (token, read_token) = (token("http.token_file")?, token("http.read_token_file")?);
    let encrypted = values.bool("http.tls")?;
    let certificate = tls(values)?.filter(|_| encrypted);
    let throttle_threshold = values.duration("http.throttle_threshold")?;
    let listen = non_empty(values.text("http.listen")?);
    Some(listen.map(|listen| HttpSettings {
        listen,
        certificate: certificate.map(|tls| (tls.certificate_file, tls.key_file)),
        token,
        read_token,
        throttle_threshold,
    }))
}

fn settings(
    values: &Values,
    member_values: &[Values],
    http: Option<&HttpSettings>,
) -> Option<Settings> {
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
    Some(Settings {
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
        regions: sections::regions_settings(values, member_values)?,
        tls: tls(values)?,
        mysql: match own.kind {
            MemberKind::Database => Some(mysql(values)?),
            MemberKind::Witness => None,
        },
        binlog_server: sections::binlog_server_settings(values)?,
        archive: sections::archive_settings(values)?,
        hooks: hooks(values)?,
        client_addresses: client_addresses(values, &own, http)?,
        program: consensus::Program::this(),
        own,
        members,
    })
}

/// Where clients reach the member: as configured, or on the host at which the other members reach it.
fn client_addresses(
    values: &Values,
    own: &MemberEntry,
    http: Option<&HttpSettings>,
) -> Option<ClientAddresses> {
    let own_host = own.address.rsplit_once(':')?.0;
    let configured = |key| Some(non_empty(values.text(key)?));
    let api = configured("http.connect_address")?.or_else(|| {
        let port = http?.listen.rsplit_once(':')?.1;
        // With port 0, the system chooses a port that is not known yet.
        (port != "0").then(|| format!("{own_host}:{port}"))
    });
    let mysql_host = values.text("mysql.host")?;
    let this_host = ["", "localhost", "127.0.0.1", "::1"].contains(&mysql_host.as_str());
    let mysql_host = match mysql_host.contains(':') {
        _ if this_host => own_host.to_owned(),
        true => format!("[{mysql_host}]"),
        false => mysql_host,
    };
    let mysql_port = values.number("mysql.port")?;
    let mysql = configured("mysql.connect_address")?;
    let mysql = mysql.unwrap_or_else(|| format!("{mysql_host}:{mysql_port}"));
    Some(ClientAddresses {
        api_url: http.zip(api).map(|(http, api)| match http.certificate {
            Some(_) => format!("https://{api}"),
            None => format!("http://{api}"),
        }),
        mysql: (own.kind == MemberKind::Database).then_some(mysql),
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

fn hooks(values: &Values) -> Option<HookSettings> {
    Some(HookSettings {
        on_primary: values.list("hooks.on_primary")?,
        on_demoted: values.list("hooks.on_demoted")?,
        on_primary_changed: values.list("hooks.on_primary_changed")?,
        timeout: values.duration("hooks.timeout")?,
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

pub(super) fn tls(values: &Values) -> Option<Option<TlsSettings>> {
    let certificate = values.text("tls.certificate_file")?;
    if certificate.is_empty() {
        return Some(None);
    }
    Some(Some(TlsSettings {
        certificate_file: certificate.into(),
        key_file: values.text("tls.key_file")?.into(),
        ca_file: values.text("tls.ca_file")?.into(),
        peer_name: non_empty(values.text("tls.peer_name")?),
        roles: NamedRoles {
            members: values.list("tls.members")?,
            operators: values.list("tls.operators")?,
            readers: values.list("tls.readers")?,
        },
        operator: non_empty(values.text("tls.operator_certificate_file")?)
            .map(PathBuf::from)
            .zip(non_empty(values.text("tls.operator_key_file")?).map(PathBuf::from)),
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
        external: sections::external_mysqld_settings(values)?,
        initialize: values.bool("mysql.initialize")?,
        server_id: u32::try_from(values.number("mysql.server_id")?)
            .ok()
            .filter(|id| *id != 0),
        server_uuid: values.uuid("mysql.server_uuid")?,
        manage_settings: values.bool("mysql.manage_settings")?,
        accept_unproven: values.bool("mysql.accept_unproven")?,
        max_transaction_bytes: values.number("mysql.max_transaction_bytes")?,
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

/// The default socket of a mysqld that is the member's child.
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

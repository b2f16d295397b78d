//! `[binlog_server]`, `[archive]` and others: their settings, and the rules among their keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use member::settings::{
    ArchiveSettings, BinlogServerSettings, ExternalMysqld, PasswordSource, RegionsSettings,
};
use proxy::{ProxyMode, ProxyOptions, check_edges};
use transport::{Compression, FarOptions};
use url::Url;

use crate::config::problem::{Place, Problems, listed, nearest};
use crate::config::validation::Values;

/// The inner `None` is a member without a binlog server.
pub(super) fn binlog_server_settings(values: &Values) -> Option<Option<BinlogServerSettings>> {
    let listen = values.text("binlog_server.listen")?;
    if listen.is_empty() {
        return Some(None);
    }
    let pair = |certificate: &str, key: &str| -> Option<Option<(PathBuf, PathBuf)>> {
        let (certificate, key) = (values.text(certificate)?, values.text(key)?);
        Some((!certificate.is_empty()).then(|| (certificate.into(), key.into())))
    };
    let own = pair(CERTIFICATE, KEY)?;
    let certificate = own.or(pair("tls.certificate_file", "tls.key_file")?);
    let file = values.text("binlog_server.password_file")?;
    Some(Some(BinlogServerSettings {
        listen,
        user: values.text("binlog_server.user")?,
        password: if file.is_empty() {
            PasswordSource::Given(values.text("binlog_server.password")?)
        } else {
            PasswordSource::File(file.into())
        },
        require_tls: values.bool(REQUIRE_TLS)? && certificate.is_some(),
        certificate,
        max_connections: usize::try_from(values.number("binlog_server.max_connections")?).ok()?,
        queue_bytes: usize::try_from(values.number("binlog_server.queue_bytes")?).ok()?,
    }))
}

/// The inner `None` is a member that does not archive.
pub(super) fn archive_settings(values: &Values) -> Option<Option<ArchiveSettings>> {
    let url = values.text("archive.url")?;
    if url.is_empty() {
        return Some(None);
    }
    let file = values.text("archive.options_file")?;
    let recipients = values.text("archive.recipients_file")?;
    let identity = values.text("archive.identity_file")?;
    let serve = values.number("archive.serve_bytes")?;
    let rate = values.number("archive.bytes_per_second")?;
    let age = values.duration("archive.max_file_age")?;
    let keep = values.duration("archive.keep")?;
    let bases = usize::try_from(values.number("archive.keep_base_backups")?).ok()?;
    Some(Some(ArchiveSettings {
        url: Url::parse(&url).ok()?,
        options_file: (!file.is_empty()).then(|| file.into()),
        interval: values.duration("archive.interval")?,
        max_file_age: Some(age).filter(|age| !age.is_zero()),
        call_limit: values.duration("archive.call_limit")?,
        bytes_per_second: Some(rate).filter(|rate| *rate != 0),
        hold_bytes: values.number("archive.hold_bytes")?,
        recipients_file: (!recipients.is_empty()).then(|| recipients.into()),
        identity_file: (!identity.is_empty()).then(|| identity.into()),
        serve_bytes: Some(serve).filter(|bytes| *bytes != 0),
        prune: values.bool("archive.prune")?,
        keep: Some(keep).filter(|keep| !keep.is_zero()),
        keep_base_backups: Some(bases).filter(|bases| *bases != 0),
        copy_directory: Some(values.text(COPY_DIRECTORY)?)
            .filter(|directory| !directory.is_empty())
            .map(PathBuf::from),
    }))
}

const COPY_DIRECTORY: &str = "archive.copy_directory";

/// Reports wrong locations of an archive and of copies for it.
pub(super) fn check_archive(values: &Values, problems: &mut Problems) {
    let directory = values.text(COPY_DIRECTORY).filter(|text| !text.is_empty());
    if directory.is_some_and(|directory| !Path::new(&directory).is_absolute()) {
        problems.error(
            values.report_at(COPY_DIRECTORY),
            COPY_DIRECTORY,
            "`archive.copy_directory` is a relative path, and mysqld works in its own directory",
            "write the whole path, as in \"/var/lib/witness-copies\"",
        );
    }
    let Some(url) = values.text("archive.url").filter(|url| !url.is_empty()) else {
        return;
    };
    let schemes = ["s3", "gs", "az", "file"];
    let scheme = Url::parse(&url).ok().map(|url| url.scheme().to_owned());
    if scheme.is_none_or(|scheme| !schemes.contains(&scheme.as_str())) {
        problems.error(
            values.report_at("archive.url"),
            "archive.url",
            "`archive.url` is no place for an archive",
            "write `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder` or `file:///folder`",
        );
    }
}

const CERTIFICATE: &str = "binlog_server.tls_certificate_file";
const KEY: &str = "binlog_server.tls_key_file";
const REQUIRE_TLS: &str = "binlog_server.require_tls";

/// Reports every broken rule; no rule applies to a member without a binlog server.
pub(super) fn check_binlog_server(values: &Values, problems: &mut Problems) {
    let given = |key: &str| values.text(key).is_some_and(|text| !text.is_empty());
    let missing = |key: &str| values.text(key).is_some_and(|text| text.is_empty());
    if !given("binlog_server.listen") {
        if values
            .text("mysql.apply")
            .is_some_and(|apply| apply == "native")
        {
            problems.error(
                values.report_at("mysql.apply"),
                "binlog_server.listen",
                "`mysql.apply` is \"native\", but the member has no binlog server that mysqld could read from",
                "set `binlog_server.listen` with an account, or mysql.apply = \"rows\"",
            );
        }
        return;
    }
    let at = values.report_at("binlog_server.listen");
    if missing("binlog_server.user") {
        problems.error(
            at,
            "binlog_server.user",
            "`binlog_server.user` is empty, but the binlog server is to listen",
            "name the account that replicas log in with",
        );
    }
    let (password, file) = ("binlog_server.password", "binlog_server.password_file");
    if missing(password) && missing(file) {
        problems.error(
            at,
            password,
            "the binlog server is to listen, but has neither `binlog_server.password` nor `binlog_server.password_file`",
            "give it one: the log has every row that was written",
        );
    }
    if given(password) && given(file) {
        problems.error(
            values.report_at(file),
            file,
            "`binlog_server.password` and `binlog_server.password_file` are both given",
            "keep one of them",
        );
    }
    for (one, other) in [(CERTIFICATE, KEY), (KEY, CERTIFICATE)] {
        if given(one) && missing(other) {
            problems.error(
                values.report_at(one),
                other,
                format!("`{one}` is given, but `{other}` is not"),
                "a certificate needs its key and a key its certificate",
            );
        }
    }
    // By default, only where there is a certificate.
    let requires = values.bool(REQUIRE_TLS) == Some(true)
        && !matches!(values.place_of(REQUIRE_TLS), Place::Default);
    if requires && missing(CERTIFICATE) && missing("tls.certificate_file") {
        problems.error(
            values.report_at(REQUIRE_TLS),
            CERTIFICATE,
            "`binlog_server.require_tls` is set, but there is no certificate",
            "name one in `binlog_server.tls_certificate_file`, or the member's in `tls.certificate_file`",
        );
    }
}

// `[regions]` and the edges of `[[members]]`: how entries travel between regions.

const PROXY: &str = "regions.proxy";
const EDGE: &str = "members.proxy_from";
/// Selects the system's default congestion control for connections to other regions.
const SYSTEM_S_OWN: &str = "system";

pub(super) fn regions_settings(values: &Values, members: &[Values]) -> Option<RegionsSettings> {
    let mode = match values.text(PROXY)?.as_str() {
        "off" => ProxyMode::Off,
        "edges" => ProxyMode::Edges(edges(members)?),
        _ => ProxyMode::Region,
    };
    let level = i32::try_from(values.number("regions.compression_level")?).ok()?;
    let min_bytes = values.number("regions.compression_min_bytes")?;
    let congestion_control = values.text("regions.congestion_control")?;
    Some(RegionsSettings {
        proxy: ProxyOptions {
            mode,
            wait: values.duration("regions.proxy_wait")?,
            max_hops: usize::try_from(values.number("regions.proxy_max_hops")?).ok()?,
        },
        far: FarOptions {
            compression: (level > 0).then_some(Compression {
                level,
                min_bytes: usize::try_from(min_bytes).ok()?,
            }),
            congestion_control: Some(congestion_control).filter(|name| name != SYSTEM_S_OWN),
        },
    })
}

/// From each member with an edge to the member that relays to it; `None` when a value cannot be read.
fn edges(members: &[Values]) -> Option<BTreeMap<String, String>> {
    let mut edges = BTreeMap::new();
    for member in members {
        let from = member.text(EDGE)?;
        if !from.is_empty() {
            edges.insert(member.text("members.name")?, from);
        }
    }
    Some(edges)
}

/// Checks `regions.*` and the members' `proxy_from`, and reports every broken rule.
pub(super) fn check_regions(values: &Values, members: &[Values], problems: &mut Problems) {
    let names = members.iter().map(|member| member.text("members.name"));
    let (Some(mode), Some(names)) = (values.text(PROXY), names.collect::<Option<Vec<_>>>()) else {
        return;
    };
    let by_edges = mode == "edges";
    for member in members {
        let from = member.text(EDGE).unwrap_or_default();
        if from.is_empty() {
            continue;
        }
        if !by_edges {
            problems.warning(
                member.report_at(EDGE),
                EDGE,
                format!("`proxy_from` is not looked at while `{PROXY}` is `{mode}`"),
                format!("set `{PROXY}` to \"edges\", or remove the line"),
            );
        } else if !names.contains(&from) {
            let advice = match nearest(&from, names.iter().map(String::as_str)) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!(
                    "the members are {}",
                    listed(names.iter().map(String::as_str))
                ),
            };
            let found = format!("`proxy_from` names `{from}`, and no member has that name");
            problems.error(member.report_at(EDGE), EDGE, found, advice);
        }
    }
    let limit = values.number("regions.proxy_max_hops");
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let (Some(edges), Some(limit)) = (edges(members).filter(|_| by_edges), limit) else {
        return;
    };
    if edges.is_empty() {
        problems.warning(
            values.report_at(PROXY),
            PROXY,
            "`regions.proxy` is `edges`, and no member has a `proxy_from`: nothing is proxied",
            "add `proxy_from` to `[[members]]` entries, or choose `region` or `off`",
        );
    }
    if let Err(error) = check_edges(&edges, limit) {
        problems.error(
            values.report_at(PROXY),
            EDGE,
            error.to_string(),
            "edges lead from every member towards one that gets its entries from the leader",
        );
    }
}

// The keys of a mysqld in mode `external`, and the rules among them.

const COMMANDS: [&str; 3] = [
    "mysql.start_command",
    "mysql.stop_command",
    "mysql.kill_command",
];

fn is_external(values: &Values) -> bool {
    values.text("mysql.mode").as_deref() == Some("external")
}

/// The inner `None` is another mode.
pub(crate) fn external_mysqld_settings(values: &Values) -> Option<Option<ExternalMysqld>> {
    if !is_external(values) {
        return Some(None);
    }
    let pid_file = values.text("mysql.pid_file")?;
    Some(Some(ExternalMysqld {
        start: values.list("mysql.start_command")?,
        stop: values.list("mysql.stop_command")?,
        kill: values.list("mysql.kill_command")?,
        log_bin: values.text("mysql.log_bin")?,
        pid_file: Some(pid_file)
            .filter(|file| !file.is_empty())
            .map(PathBuf::from),
    }))
}

/// Reports missing keys in mode `external`.
pub(crate) fn check_external_mysqld(values: &Values, problems: &mut Problems) {
    if !is_external(values) {
        return;
    }
    for key in COMMANDS {
        if values.list(key).is_some_and(|command| command.is_empty()) {
            problems.error(
                values.report_at(key),
                key,
                format!("`{key}` is empty, but the member starts and stops mysqld through it"),
                "write the command as a list of words, as in [\"systemctl\", \"start\", \"mysql\"]",
            );
        }
    }
    for (key, what) in [
        ("mysql.datadir", "mysqld's data directory"),
        ("mysql.log_bin", "the value of mysqld's option log_bin"),
    ] {
        if values.text(key).is_some_and(|text| text.is_empty()) {
            problems.error(
                values.report_at(key),
                key,
                format!("`{key}` is missing, but the member looks after mysqld's binlog before each start"),
                format!("name {what}, or set `mysql.mode` to \"attach\""),
            );
        }
    }
}

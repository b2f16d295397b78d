//! Builds the configuration from values that have passed every check, lists the changed keys that need a restart, and checks the files
//! and directories on this host.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use member::settings::{MemberEntry, Settings};
use member::status::ClientAddresses;
use raft_types::MemberKind;

use crate::config::problem::{Place, Problems};
use crate::config::sections::process::{HttpSettings, LoggingSettings};
use crate::config::sections::ring::MemberKeys;
use crate::config::sections::{Sections, with_mysql};
use crate::config::value::{Kind, Mistake};
use crate::http::unusable_tokens;

/// A checked configuration: the settings of the member and of the program itself.
#[derive(Debug, Clone)]
pub struct Config {
    /// The settings of the member.
    pub member: Settings,
    /// The settings for HTTP; `None`: HTTP is not served.
    pub http: Option<HttpSettings>,
    /// Form and level of the process's own log.
    pub logging: LoggingSettings,
    /// The values from which this configuration was built.
    pub(super) sections: Arc<Sections>,
}

impl Config {
    /// Returns the keys that differ in the newer configuration and that only a restart of the member applies.
    pub fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        let mut keys = self.sections.restarts(&newer.sections);
        // A reload can renew a certificate, but cannot turn TLS on or off while other members are connected.
        let tls = |config: &Self| config.member.tls.is_some();
        let of_server = |config: &Self| {
            let server = config.member.binlog_server.as_ref();
            server.map(|server| server.certificate.is_some())
        };
        let (own, others) = (of_server(self), of_server(newer));
        let on_or_off = [
            (tls(self) != tls(newer)).then_some("tls.certificate_file"),
            (own.is_some() && others.is_some() && own != others && tls(self) == tls(newer))
                .then_some("binlog_server.tls_certificate_file"),
        ];
        keys.extend(on_or_off.into_iter().flatten());
        keys
    }
}

/// Builds the configuration from values that have passed every check. `None` if this member has no entry, or its address has no port; the
/// checks have reported both.
pub(super) fn build(sections: Sections) -> Option<Config> {
    let http = sections.http.settings(&sections.tls);
    Some(Config {
        member: settings(&sections, http.as_ref())?,
        http,
        logging: sections.logging.settings(),
        sections: Arc::new(sections),
    })
}

fn settings(sections: &Sections, http: Option<&HttpSettings>) -> Option<Settings> {
    let own = sections.member.own(&sections.members)?.entry();
    let listen = sections.member.listen.given().unwrap_or(&own.address);
    let data_dir = sections.top.data_dir.as_str();
    let is_database = own.kind == MemberKind::Database;
    Some(Settings {
        data_dir: data_dir.into(),
        ring_name: sections.ring.name.clone(),
        listen: listen.clone(),
        log: sections.log.settings(),
        raft: sections.raft.settings(),
        rules: sections.quorum.settings(),
        regions: sections.regions.settings(&sections.members),
        tls: sections.tls.settings(),
        mysql: is_database.then(|| sections.mysql.settings(data_dir)),
        binlog_server: sections.binlog_server.settings(&sections.tls),
        archive: sections.archive.settings(),
        hooks: sections.hooks.settings(),
        client_addresses: client_addresses(sections, &own, http)?,
        program: consensus::Program::this(),
        members: sections.members.iter().map(MemberKeys::entry).collect(),
        own,
    })
}

/// Returns the addresses at which clients reach the member: the configured ones; otherwise on the host of the member's `address`.
fn client_addresses(
    sections: &Sections,
    own: &MemberEntry,
    http: Option<&HttpSettings>,
) -> Option<ClientAddresses> {
    let own_host = own.address.rsplit_once(':')?.0;
    let api = sections.http.connect_address.given().cloned().or_else(|| {
        let port = http?.listen.rsplit_once(':')?.1;
        // With port 0, the system chooses a port that is not known yet.
        (port != "0").then(|| format!("{own_host}:{port}"))
    });
    let mysql = &sections.mysql;
    let mysql_host = match mysql.host.as_str() {
        "" | "localhost" | "127.0.0.1" | "::1" => own_host.to_owned(),
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let mysql = mysql.connect_address.given().cloned();
    let mysql = mysql.unwrap_or_else(|| format!("{mysql_host}:{}", *sections.mysql.port));
    Some(ClientAddresses {
        api_url: http.zip(api).map(|(http, api)| match http.certificate {
            Some(_) => format!("https://{api}"),
            None => format!("http://{api}"),
        }),
        mysql: (own.kind == MemberKind::Database).then_some(mysql),
    })
}

/// The widest permissions for files with secrets: the owner may write, the group may read.
const WIDEST_MODE: u32 = 0o640;

/// Reports every file and directory that cannot be used on this host. `witness config check`, a start and a reload all run this
/// check, so they accept the same configurations.
pub(super) fn check_files(sections: &Sections, problems: &mut Problems) {
    let with_mysql = with_mysql(sections);
    for entry in sections.entries() {
        let (key, at, text) = (entry.key, entry.at, entry.text.as_str());
        if text.is_empty() || key.section() == "mysql" && !with_mysql {
            continue;
        }
        let path = Path::new(text);
        let found = match key.kind {
            Kind::File => readable(path).map(|_| None),
            Kind::SecretFile => {
                let is_wide = |mode: &u32| mode & !WIDEST_MODE & 0o777 != 0;
                readable(path).map(|mode| Some(mode).filter(is_wide))
            }
            Kind::Directory => directory(path).map(|()| None),
            _ => continue,
        };
        let name = key.path;
        match found {
            Ok(None) => {}
            Ok(Some(mode)) => problems.warning(
                at,
                name,
                format!("`{name}`: {text} has mode {mode:04o}, wider than {WIDEST_MODE:04o}"),
                format!("run: chmod 0600 {text} (or 0640 for a group that reads it)"),
            ),
            Err(Mistake { message, advice }) => {
                problems.error(at, name, format!("`{name}`: {message}"), advice);
            }
        }
    }
}

/// Reports every secret and certificate that a running member could not use.
pub(super) fn check_credentials(config: &Config, problems: &mut Problems) {
    let entries = config.sections.entries();
    let of_member = member::unusable_files(&config.member).into_iter();
    let of_http = config.http.iter().flat_map(unusable_tokens);
    for unusable in of_member.chain(of_http) {
        let (key, why) = (unusable.key, unusable.why);
        let advice = "put what is missing into the file, or name another file";
        let entry = entries.iter().find(|entry| entry.key.path == key);
        let at = entry.map_or(&Place::Default, |entry| entry.at);
        problems.error(at, key, format!("`{key}`: {why}"), advice);
    }
}

/// Returns the permissions of a readable regular file. Other files are not opened: opening a FIFO, for example, might block.
fn readable(path: &Path) -> Result<u32, Mistake> {
    let metadata = std::fs::metadata(path);
    let opened = metadata.and_then(|metadata| match metadata.is_file() {
        true => std::fs::File::open(path).map(|_| Some(metadata)),
        false => Ok(None),
    });
    match opened {
        Ok(Some(metadata)) => Ok(metadata.permissions().mode() & 0o7777),
        Ok(None) => Err(Mistake::new(
            format!("{} is not a regular file", path.display()),
            "name a file",
        )),
        Err(error) => Err(Mistake::new(
            format!("{} cannot be read: {error}", path.display()),
            "check the path and its permissions",
        )),
    }
}

/// Checks the path of a directory. A missing directory is created later; a file at that path is a mistake.
fn directory(path: &Path) -> Result<(), Mistake> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Mistake::new(
            format!("{} is not a directory", path.display()),
            "name a directory, or one that does not exist yet",
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Mistake::new(
            format!("{} cannot be reached: {error}", path.display()),
            "check the path and its permissions",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FileCheck, Sources, read_with};

    const MINIMAL: &str = r#"
data_dir = "/tmp/x"
ring.name = "orders"
member.id = 1
members = [{ id = 1, name = "w-1", region = "north", kind = "witness", address = "10.0.0.1:7400" }]
"#;

    fn config(more: &str) -> Config {
        let text = format!("{MINIMAL}\n{more}");
        let sources = Sources {
            file: Some(("witness.toml".to_owned(), text)),
            ..Sources::default()
        };
        let (config, problems) = read_with(&sources, FileCheck::Nothing);
        config.unwrap_or_else(|| panic!("{problems}"))
    }

    fn restart(before: &str, after: &str) -> Vec<&'static str> {
        config(before).needs_restart(&config(after))
    }

    const TLS: &str =
        r#"tls = { certificate_file = "a.crt", key_file = "a.key", ca_file = "ca.crt" }"#;

    #[test]
    fn keys_that_a_reload_does_not_apply_need_a_restart() {
        assert_eq!(restart("", ""), Vec::<&str>::new());
        let taken = [
            (r#"logging.level = "info""#, r#"logging.level = "debug""#),
            ("", r#"hooks.on_primary = ["true"]"#),
            (
                TLS,
                r#"tls = { certificate_file = "b.crt", key_file = "b.key", ca_file = "b.ca" }"#,
            ),
        ];
        for (before, after) in taken {
            assert_eq!(restart(before, after), Vec::<&str>::new(), "{after}");
        }
        let after = "raft.heartbeat = \"200ms\"\nlogging.level = \"debug\"\nlog.scrub_rate = 0";
        assert_eq!(restart("", after), ["log.scrub_rate", "raft.heartbeat"]);
        // Two notations of the same value are not a difference.
        assert_eq!(
            restart(r#"log.cache_bytes = "64MiB""#, "log.cache_bytes = 67108864"),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn members_and_enabling_tls_need_a_restart() {
        let before = config("");
        let moved = Sources {
            file: Some((
                "witness.toml".to_owned(),
                MINIMAL.replace("10.0.0.1", "10.0.0.2"),
            )),
            ..Sources::default()
        };
        let moved = read_with(&moved, FileCheck::Nothing).0.unwrap();
        assert_eq!(before.needs_restart(&moved), ["members"]);
        assert_eq!(restart("", TLS), ["tls.certificate_file"]);
        assert_eq!(restart(TLS, ""), ["tls.certificate_file"]);
        assert_eq!(restart("", "tls.plaintext = true"), ["tls.plaintext"]);
    }

    #[test]
    fn debug_output_hides_secrets() {
        let config = config("");
        assert!(format!("{:?}", config.sections).len() < 20);
    }
}

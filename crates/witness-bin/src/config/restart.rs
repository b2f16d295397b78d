//! The keys that differ between two versions of a configuration and need a restart to take effect.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::Config;
use crate::config::keys::{KEYS, MEMBERS};
use crate::config::validation::{Typed, Values};

/// The value of every key in one version of a configuration. It includes passwords, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyValues {
    single: BTreeMap<&'static str, Option<Typed>>,
    members: Vec<BTreeMap<&'static str, Option<Typed>>>,
}

impl KeyValues {
    pub(super) fn new(values: &Values, members: &[Values]) -> Self {
        Self {
            single: values.typed(),
            members: members.iter().map(Values::typed).collect(),
        }
    }
}

impl fmt::Debug for KeyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyValues(…)")
    }
}

impl Config {
    /// The keys for which a member started with this configuration needs a restart, to run with the newer one.
    pub fn needs_restart(&self, newer: &Self) -> Vec<&'static str> {
        let differs = |path: &str| self.values.single.get(path) != newer.values.single.get(path);
        let keys = KEYS
            .iter()
            .filter(|key| !key.reloads && differs(key.path))
            .map(|key| key.path);
        let members = (self.values.members != newer.values.members).then_some(MEMBERS);
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
        let on_or_off = on_or_off.into_iter().flatten();
        keys.chain(members).chain(on_or_off).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, read_without_files};

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
        let (config, problems) = read_without_files(&sources);
        config.unwrap_or_else(|| panic!("{problems}"))
    }

    fn restart(before: &str, after: &str) -> Vec<&'static str> {
        config(before).needs_restart(&config(after))
    }

    const TLS: &str =
        r#"tls = { certificate_file = "a.crt", key_file = "a.key", ca_file = "ca.crt" }"#;

    #[test]
    fn what_a_reload_takes_needs_no_restart_and_everything_else_is_named() {
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
        // Another notation of the same value is no difference.
        assert_eq!(
            restart(r#"log.cache_bytes = "64MiB""#, "log.cache_bytes = 67108864"),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn the_list_of_members_and_tls_at_all_are_for_the_next_start() {
        let before = config("");
        let moved = Sources {
            file: Some((
                "witness.toml".to_owned(),
                MINIMAL.replace("10.0.0.1", "10.0.0.2"),
            )),
            ..Sources::default()
        };
        let moved = read_without_files(&moved).0.unwrap();
        assert_eq!(before.needs_restart(&moved), ["members"]);
        assert_eq!(restart("", TLS), ["tls.certificate_file"]);
        assert_eq!(restart(TLS, ""), ["tls.certificate_file"]);
        assert_eq!(restart("", "tls.plaintext = true"), ["tls.plaintext"]);
    }

    #[test]
    fn a_configuration_that_is_shown_keeps_its_secrets() {
        let config = config("");
        assert!(format!("{:?}", config.values).len() < 20);
    }
}

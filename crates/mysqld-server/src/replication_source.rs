//! The source that a server replicates from.

use std::path::PathBuf;

use mysql_link::{Secret, literal};

/// A source with auto-position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationSource {
    /// Host of the source.
    pub host: String,
    /// TCP port of the source.
    pub port: u16,
    /// User name for the login at the source.
    pub user: String,
    /// Password for the login at the source.
    pub password: Secret,
    /// How the replica checks that it is connected to the source.
    pub tls: SourceTls,
}

/// How a replica checks that it is connected to its source. It never asks the source for a public key: a man in the middle would
/// answer with its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceTls {
    /// No TLS.
    Off,
    /// TLS with any certificate: for a source on the same host, and for rings without TLS.
    Unverified,
    /// TLS with a certificate of this CA.
    Verified {
        /// PEM file with the CA, on the replica's host; its mysqld reads it.
        ca_file: PathBuf,
        /// Whether the certificate must also name the source's host.
        identity: bool,
    },
}

impl SourceTls {
    /// All options, since `CHANGE REPLICATION SOURCE` keeps each one that it does not name.
    fn options(&self) -> String {
        let (ssl, ca_file, identity) = match self {
            Self::Off => (0, String::new(), false),
            Self::Unverified => (1, String::new(), false),
            Self::Verified { ca_file, identity } => (1, ca_file.display().to_string(), *identity),
        };
        format!(
            "SOURCE_SSL = {ssl}, SOURCE_SSL_CA = {}, SOURCE_SSL_VERIFY_SERVER_CERT = {}, GET_SOURCE_PUBLIC_KEY = 0",
            literal(&ca_file),
            u8::from(identity)
        )
    }
}

impl ReplicationSource {
    /// The statement that makes a server follow it, and retry while the source is away: by default a receiver gives up permanently
    /// after ten attempts (9.7), which is ten seconds here. `further` is appended: more options, and the channel.
    pub(crate) fn change(&self, further: &str) -> String {
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = {}, SOURCE_PORT = {}, SOURCE_USER = {}, SOURCE_PASSWORD = {}, \
             {}, SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, \
             SOURCE_RETRY_COUNT = 0{further}",
            literal(&self.host),
            self.port,
            literal(&self.user),
            literal(&self.password.reveal()),
            self.tls.options(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_verifies_its_source_and_asks_it_for_no_key() {
        let statement = |tls| {
            let source = ReplicationSource {
                host: "db-1".to_owned(),
                port: 3306,
                user: "replication".to_owned(),
                password: Secret::new("p"),
                tls,
            };
            source.change("")
        };
        let verified = |identity| SourceTls::Verified {
            ca_file: "/etc/witness/tls/ca.crt".into(),
            identity,
        };
        for (tls, expected) in [
            (
                SourceTls::Off,
                "SOURCE_SSL = 0, SOURCE_SSL_CA = '', SOURCE_SSL_VERIFY_SERVER_CERT = 0",
            ),
            (
                SourceTls::Unverified,
                "SOURCE_SSL = 1, SOURCE_SSL_CA = '', SOURCE_SSL_VERIFY_SERVER_CERT = 0",
            ),
            (
                verified(false),
                "SOURCE_SSL = 1, SOURCE_SSL_CA = '/etc/witness/tls/ca.crt', SOURCE_SSL_VERIFY_SERVER_CERT = 0",
            ),
            (
                verified(true),
                "SOURCE_SSL = 1, SOURCE_SSL_CA = '/etc/witness/tls/ca.crt', SOURCE_SSL_VERIFY_SERVER_CERT = 1",
            ),
        ] {
            let statement = statement(tls);
            assert!(statement.contains(expected), "{statement}");
            assert!(
                statement.contains("GET_SOURCE_PUBLIC_KEY = 0"),
                "{statement}"
            );
        }
    }

    #[test]
    fn what_is_in_a_source_stays_in_its_literals() {
        let source = ReplicationSource {
            host: "127.0.0.1".to_owned(),
            port: 3307,
            user: "replica".to_owned(),
            password: Secret::new(r"a'b\"),
            tls: SourceTls::Unverified,
        };
        let statement = source.change(" FOR CHANNEL 'x'");
        for part in [
            r"SOURCE_PASSWORD = 'a''b\\', ",
            "SOURCE_SSL = 1",
            "SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0 FOR CHANNEL 'x'",
        ] {
            assert!(statement.contains(part), "{statement}");
        }
    }
}

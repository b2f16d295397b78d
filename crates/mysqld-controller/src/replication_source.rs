//! From whom a server replicates.

use mysql_link::{Secret, literal};

/// A source that is followed by auto-position.
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
    /// Whether the connection uses TLS.
    pub tls: bool,
}

impl ReplicationSource {
    /// The statement that has a server follow it, and ask again for as long as the source is away: by default a receiver gives up
    /// for good after ten attempts (9.7), which is ten seconds here. `further` goes to its end: more options, and the channel.
    pub(crate) fn change(&self, further: &str) -> String {
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = {}, SOURCE_PORT = {}, SOURCE_USER = {}, SOURCE_PASSWORD = {}, \
             SOURCE_SSL = {}, SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, \
             SOURCE_RETRY_COUNT = 0{further}",
            literal(&self.host),
            self.port,
            literal(&self.user),
            literal(&self.password.reveal()),
            u8::from(self.tls),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_source_stays_in_its_literals() {
        let source = ReplicationSource {
            host: "127.0.0.1".to_owned(),
            port: 3307,
            user: "replica".to_owned(),
            password: Secret::new(r"a'b\"),
            tls: true,
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

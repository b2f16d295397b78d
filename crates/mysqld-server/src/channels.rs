//! Replication channels: the member's own, and an operator's. Through an operator's channel, a server outside the ring writes to the ring's
//! primary. Such a channel exists on one mysqld only. `super_read_only` does not stop replica threads: on a former primary, they write
//! transactions that the ring lacks. So the member stops the channel there, and an operator starts it at the new primary.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mysql_link::{Connection, LinkError, Row, Secret, literal};
use thiserror::Error;

/// The member's channel, through which mysqld's own replica threads follow the ring.
pub const OWN_CHANNEL: &str = "witness";

/// How long the replica threads of the member's channel may take to stop.
const AWAY: Duration = Duration::from_secs(60);

/// An operator's channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChannel {
    /// The channel's name; empty for the server's default channel.
    pub name: String,
    /// HOST:PORT of its source.
    source: String,
    /// True if one of the channel's threads runs or retries.
    runs: bool,
}

impl fmt::Display for ForeignChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the default replication channel from {}", self.source),
            name => write!(f, "the replication channel `{name}` from {}", self.source),
        }
    }
}

impl ForeignChannel {
    fn clause(&self) -> String {
        format!("FOR CHANNEL {}", literal(&self.name))
    }

    fn stop(&self) -> String {
        format!("STOP REPLICA {}", self.clause())
    }

    /// Returns advice for the operator. Pure.
    pub fn advice(&self, follows: bool) -> String {
        let clause = self.clause();
        match (follows, self.runs) {
            (false, true) => format!(
                "{self} writes into this primary, and no other server of the ring has it: when the primary changes, it is stopped here. \
                 Start it at the new primary then (CHANGE REPLICATION SOURCE … {clause}; START REPLICA {clause})"
            ),
            (false, false) => format!(
                "{self} is stopped at this primary: run START REPLICA {clause} to continue it, or RESET REPLICA ALL {clause} to remove it"
            ),
            (true, true) => format!(
                "{self} runs here, and this server is not the primary: its transactions are errant. Run STOP REPLICA {clause}"
            ),
            (true, false) => format!(
                "{self} is stopped here, because this server is not the primary and what it wrote would be errant. Start it at the primary \
                 (CHANGE REPLICATION SOURCE … {clause}; START REPLICA {clause}), and run RESET REPLICA ALL {clause} here"
            ),
        }
    }
}

const CHANNELS: &str = "SELECT other_channel.CHANNEL_NAME, CONCAT(other_channel.HOST, ':', other_channel.PORT), \
     receiver.SERVICE_STATE <> 'OFF' OR applier.SERVICE_STATE <> 'OFF' \
     FROM performance_schema.replication_connection_configuration AS other_channel \
     JOIN performance_schema.replication_connection_status AS receiver USING (CHANNEL_NAME) \
     JOIN performance_schema.replication_applier_status AS applier USING (CHANNEL_NAME) ORDER BY 1";

/// Returns the channels other than the member's; none where the account lacks the privilege to list them.
///
/// # Errors
/// When the connection fails.
pub async fn foreign_channels(
    connection: &mut Connection,
) -> Result<Vec<ForeignChannel>, LinkError> {
    let channel = |row: &Row| {
        Some(ForeignChannel {
            name: row.text_at(0)?.to_owned(),
            source: row.text_at(1)?.to_owned(),
            runs: row.text_at(2)? == "1",
        })
    };
    match connection.query(CHANNELS).await {
        Ok(answer) => Ok((answer.rows.iter().filter_map(channel))
            .filter(|channel| channel.name != OWN_CHANNEL)
            .collect()),
        Err(LinkError::Server(error)) => {
            tracing::debug!(%error, "replication channels cannot be listed");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Why foreign channels may still run.
#[derive(Debug, Error)]
pub enum StopChannelsError {
    /// The server cannot be queried.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A channel cannot be stopped.
    #[error("{} cannot be stopped ({}), and would write what the ring lacks: run {}", .0, .1, .0.stop())]
    Runs(ForeignChannel, LinkError),
}

/// Stops the running foreign channels, and returns them. A channel finishes its present transaction first.
///
/// # Errors
/// When a channel cannot be stopped, or does not stop in time.
pub async fn stop_foreign_channels(
    connection: &mut Connection,
) -> Result<Vec<ForeignChannel>, StopChannelsError> {
    let all = foreign_channels(connection).await?;
    let running: Vec<_> = all.into_iter().filter(|channel| channel.runs).collect();
    for channel in &running {
        if let Err(error) = connection.execute(channel.stop()).await {
            return Err(StopChannelsError::Runs(channel.clone(), error));
        }
        tracing::warn!("{channel} was stopped, because this server is closed for writes");
    }
    Ok(running)
}

/// Restarts these channels.
///
/// # Errors
/// At the first channel that does not start.
pub async fn start_channels(
    connection: &mut Connection,
    channels: &[ForeignChannel],
) -> Result<(), LinkError> {
    for channel in channels {
        let start = format!("START REPLICA {}", channel.clause());
        connection.execute(start).await?;
        tracing::info!("{channel} was started again, because this server stays the primary");
    }
    Ok(())
}

/// Stops the threads of the member's channel and removes the channel, whichever process started the threads. They finish the current
/// transaction first.
///
/// # Errors
/// When the server refuses.
pub async fn drop_channel(connection: &mut Connection) -> Result<(), LinkError> {
    let there = format!(
        "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration WHERE channel_name = '{OWN_CHANNEL}'"
    );
    let there = connection.query(there).await?;
    if there.value() == Some("0") {
        return Ok(());
    }
    let stop = format!("STOP REPLICA FOR CHANNEL '{OWN_CHANNEL}'");
    connection.query_within(stop, AWAY).await?;
    let reset = format!("RESET REPLICA ALL FOR CHANNEL '{OWN_CHANNEL}'");
    connection.execute(reset).await.map(drop)
}

// The source from which a server replicates.

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

/// How a replica checks that it is connected to its source. The replica never requests the source's public key, because a man in the middle
/// could answer with another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceTls {
    /// No TLS.
    Off,
    /// TLS with any certificate. For a source on the same host, and for rings without TLS.
    Unverified,
    /// TLS with a certificate that this CA signed.
    Verified {
        /// PEM file with the CA, on the replica's host; its mysqld reads it.
        ca_file: PathBuf,
        /// Whether the certificate must also name the source's host.
        identity: bool,
    },
}

impl SourceTls {
    /// Returns all TLS options, since `CHANGE REPLICATION SOURCE` keeps each option that it does not name.
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
    /// Returns the statement that sets this source on a replica. The replica retries while the source is unreachable. By default, a
    /// receiver gives up permanently after ten attempts (9.7), ten seconds with these options. `further` is appended: more options, and the
    /// channel.
    pub fn change(&self, further: &str) -> String {
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

// Changes that a server's own replica threads skip although the GTIDs count as executed: changes of filtered tables and schemas, and rows
// whose errors are skipped.

/// Options that skip rows which cannot be applied, or that commit transactions out of the log's order. In both generations of names.
const LENIENCE: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('replica_skip_errors', 'slave_skip_errors', \
     'replica_exec_mode', 'slave_exec_mode', 'replica_preserve_commit_order', 'slave_preserve_commit_order', 'binlog_order_commits')";
/// The server's filters, which every new channel copies. A removed filter is listed with an empty rule.
const FILTERS: &str = "SELECT filter_name, filter_rule FROM performance_schema.replication_applier_global_filters \
     WHERE filter_rule <> ''";
/// The columns of `SHOW REPLICA STATUS` with a channel's filters. Unlike [`FILTERS`], they do not need performance_schema.
const OF_A_CHANNEL: [&str; 7] = [
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Replicate_Rewrite_DB",
];

/// The settings by which replica threads skip rows or change the order of commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lenience {
    /// The variable that lists skipped errors, and its value; none by default. A change needs a restart.
    pub skips: Option<(String, String)>,
    /// The variable of the execution mode, and its value; `None` for STRICT.
    pub mode: Option<(String, String)>,
    /// Commit-order variables that are OFF. Readers then see a later transaction before an earlier one.
    pub unordered: Vec<String>,
}

/// Queries the settings by which the server skips rows that cannot be applied.
///
/// # Errors
/// When the connection fails.
pub async fn lenience(connection: &mut Connection) -> Result<Lenience, LinkError> {
    let variables = connection.query(LENIENCE).await?;
    let pair = |row: &Row| Some((row.text_at(0)?.to_lowercase(), row.text_at(1)?.to_owned()));
    Ok(judged(variables.rows.iter().filter_map(pair)))
}

/// Evaluates the variables. Pure. If both names of a variable exist, the newer one is used.
fn judged(variables: impl IntoIterator<Item = (String, String)>) -> Lenience {
    let mut all: Vec<_> = variables.into_iter().collect();
    all.sort();
    let of = |end: &str, harmless: &str| {
        let found = all.iter().find(|(name, value)| {
            name.ends_with(end) && !value.is_empty() && !value.eq_ignore_ascii_case(harmless)
        });
        found.cloned()
    };
    Lenience {
        skips: of("_skip_errors", "OFF"),
        mode: of("_exec_mode", "STRICT"),
        unordered: ["_preserve_commit_order", "binlog_order_commits"]
            .into_iter()
            .filter_map(|end| of(end, "ON").map(|(name, _)| name))
            .collect(),
    }
}

/// Returns the filters of a channel, from a row of `SHOW REPLICA STATUS`.
pub fn filters_of_channel(row: &Row) -> impl Iterator<Item = String> + '_ {
    let columns = OF_A_CHANNEL.into_iter();
    columns.filter_map(|column| named(column, row.text(column)?))
}

/// Queries the server's filters, which every new channel copies.
///
/// # Errors
/// When the connection fails, or the account lacks the privilege.
pub(crate) async fn filters_of_server(
    connection: &mut Connection,
) -> Result<Vec<String>, LinkError> {
    let filters = connection.query(FILTERS).await?;
    let rows = filters.rows.iter();
    let filters = rows.filter_map(|row| named(row.text_at(0)?, row.text_at(1)?));
    Ok(filters.collect())
}

/// Returns the filter in the form of the server's option for it.
pub(crate) fn named(filter: &str, rule: &str) -> Option<String> {
    let name = filter.to_lowercase().replace('_', "-");
    (!rule.is_empty()).then(|| format!("{name}={rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_channel_its_source_and_what_to_run_where() {
        let channel = |name: &str, runs| ForeignChannel {
            name: name.to_owned(),
            source: "10.0.0.9:3306".to_owned(),
            runs,
        };
        let table = [
            (false, true, "Start it at the new primary"),
            (false, false, "run START REPLICA FOR CHANNEL 'legacy'"),
            (true, true, "Run STOP REPLICA FOR CHANNEL 'legacy'"),
            (true, false, "RESET REPLICA ALL FOR CHANNEL 'legacy' here"),
        ];
        for (follows, runs, expected) in table {
            let advice = channel("legacy", runs).advice(follows);
            let named = "the replication channel `legacy` from 10.0.0.9:3306";
            assert!(
                advice.starts_with(named) && advice.contains(expected),
                "{advice}"
            );
        }
        let default = channel("", false).advice(false);
        assert!(
            default.contains("the default replication channel"),
            "{default}"
        );
        assert!(
            default.contains("START REPLICA FOR CHANNEL ''"),
            "{default}"
        );
    }
}

#[cfg(test)]
mod replication_source_tests {
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

#[cfg(test)]
mod left_out_tests {
    use super::*;

    #[test]
    fn rows_are_passed_over_by_what_both_generations_of_servers_name() {
        let said = |variables: &[(&str, &str)]| {
            let pairs = variables.iter();
            judged(pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
        };
        let some = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        let strict = [
            ("slave_skip_errors", "OFF"),
            ("slave_preserve_commit_order", "ON"),
            ("binlog_order_commits", "ON"),
            ("slave_exec_mode", "STRICT"),
            ("replica_skip_errors", "OFF"),
            ("replica_exec_mode", "STRICT"),
        ];
        assert_eq!(said(&strict), Lenience::default());
        assert_eq!(said(&[]), Lenience::default());
        let new = said(&[
            ("slave_exec_mode", "IDEMPOTENT"),
            ("replica_exec_mode", "IDEMPOTENT"),
        ]);
        assert_eq!(new.mode, some("replica_exec_mode", "IDEMPOTENT"));
        let any_order = said(&[
            ("slave_preserve_commit_order", "OFF"),
            ("replica_preserve_commit_order", "OFF"),
            ("binlog_order_commits", "OFF"),
        ]);
        assert_eq!(
            any_order.unordered,
            ["replica_preserve_commit_order", "binlog_order_commits"]
        );
        let old = said(&[("slave_skip_errors", "1032,1062")]);
        assert_eq!(old.skips, some("slave_skip_errors", "1032,1062"));
    }

    #[test]
    fn a_filter_is_called_by_its_option() {
        assert_eq!(
            named("Replicate_Wild_Ignore_Table", "shop.%").as_deref(),
            Some("replicate-wild-ignore-table=shop.%")
        );
        // `CHANGE REPLICATION FILTER … = ()` has left an empty rule.
        assert_eq!(named("REPLICATE_DO_DB", ""), None);
    }
}

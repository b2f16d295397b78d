//! A server's state before and during a conversion: sources, replicas, and obstacles to a ring. Sent over the network as JSON, so new
//! versions only add fields.

use binlog_format::gtid::{GtidSet, ParseGtidError, parse_gtid_owned};
use mysql_link::{ConnectOptions, Connection, LinkError, Row};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::channels::{filters_of_channel, filters_of_server, lenience};
use crate::provision::other_engines::other_engines;
use crate::settings::{
    Check, Depth, Observed, Requirements, SemiSyncNames, Severity, binlog_filters, not_persisted,
    observe, preflight,
};

/// A channel of a server's own replica threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicatesFrom {
    /// The channel's name; empty for the default one.
    pub channel: String,
    /// Host of the source.
    pub host: String,
    /// TCP port of the source.
    pub port: u16,
    /// User name of the channel's login at the source.
    pub user: String,
    /// The source's UUID; `None` before the first connection.
    pub uuid: Option<Uuid>,
    /// Whether the thread that receives transactions runs.
    pub receives: bool,
    /// True if the threads that apply transactions run.
    pub applies: bool,
    /// The last error of the receiving or applying threads.
    pub error: String,
}

/// One observation of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLook {
    /// `@@version` of the server.
    pub version: String,
    /// `@@server_uuid`; none where the server did not report it.
    pub uuid: Option<Uuid>,
    /// `@@port`: the port for TCP connections.
    pub port: u16,
    /// `gtid_executed` as text.
    pub executed: String,
    /// `gtid_owned` as text, read before `gtid_executed`. A transaction in the binlog that is not committed yet is in one of the two sets.
    #[serde(default)]
    pub owned: String,
    /// `gtid_purged` as text: transactions that the server has and cannot send.
    pub purged: String,
    /// Whether ordinary clients may write.
    pub writable: bool,
    /// True if the server accepts connections with TLS.
    pub tls: bool,
    /// Whether commits wait for an ACK.
    pub waits_for_acks: bool,
    /// How many commits wait for an ACK at the moment.
    pub waiting_commits: u64,
    /// True if the server acknowledges received transactions.
    pub acknowledges: bool,
    /// UUIDs of the attached replicas that acknowledge.
    pub ackers: Vec<Uuid>,
    /// The channels of the server's own replica threads.
    pub replicates_from: Vec<ReplicatesFrom>,
    /// Options by which the server's replica threads skip transactions. The GTIDs of skipped transactions count as executed nevertheless.
    #[serde(default)]
    pub leaves_out: Vec<String>,
    /// Problems that the member cannot fix, each with a remedy.
    pub obstacles: Vec<String>,
    /// Settings that a member changes when it begins to manage the server.
    pub to_be_set: Vec<String>,
    /// Persisted values that a member removes when it begins to manage the server.
    #[serde(default)]
    pub to_be_reset: Vec<String>,
}

impl ServerLook {
    /// `gtid_executed`.
    ///
    /// # Errors
    /// When the text is not a GTID set.
    pub fn executed(&self) -> Result<GtidSet, ParseGtidError> {
        self.executed.parse()
    }

    /// Returns `gtid_executed`, and transactions that are in the binlog or are being written to it.
    ///
    /// # Errors
    /// When one of the texts is not a GTID set.
    pub fn written(&self) -> Result<GtidSet, ParseGtidError> {
        Ok(self.executed()?.union(&parse_gtid_owned(&self.owned)?))
    }

    /// `gtid_purged`.
    ///
    /// # Errors
    /// When the text is not a GTID set.
    pub fn purged(&self) -> Result<GtidSet, ParseGtidError> {
        self.purged.parse()
    }

    /// True if the server replicates from the server with this UUID, with all threads running.
    pub fn follows(&self, source: Option<Uuid>) -> bool {
        let of_source = |from: &&ReplicatesFrom| from.uuid.is_some() && from.uuid == source;
        let channel = self.replicates_from.iter().find(of_source);
        channel.is_some_and(|from| from.receives && from.applies)
    }

    /// The errors of the server's channels.
    pub fn replication_errors(&self) -> String {
        let errors = self.replicates_from.iter().map(|from| from.error.as_str());
        errors.collect()
    }
}

/// Observes a server. Changes nothing.
///
/// # Errors
/// When the server cannot be reached, or refuses a query that the member's account may run.
pub async fn look(
    connect: &ConnectOptions,
    requirements: &Requirements,
) -> Result<ServerLook, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let mut observed = observe(&mut connection, Depth::Preflight).await?;
    observed.compare_place(requirements.binlog.as_ref());
    if observed.waiting_sessions() == 0 {
        observed.binlog_filters = binlog_filters(&mut connection).await?;
    }
    let in_memory = tables_in_memory(&mut connection).await?;
    let others = other_engines(&mut connection).await?;
    let (replicates_from, of_channels) = replicates_from(&mut connection).await?;
    let leaves_out = leaves_out(&mut connection, of_channels).await?;
    let open_start = open_start(&mut connection, &observed, requirements).await?;
    let acknowledges = !acknowledging(&mut connection).await?.is_empty();
    let tls = takes_tls(&mut connection).await?;
    let gtids = connection
        .query("SELECT @@GLOBAL.gtid_owned, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged, @@GLOBAL.port")
        .await?;
    connection.close().await;
    let text = |place| {
        let row = gtids.first();
        let text = row.and_then(|row: &Row| row.text_at(place));
        text.unwrap_or_default().replace('\n', "")
    };
    let ackers = observed.semi_sync_replicas.iter().flatten();
    let semi_sync = observed.semi_sync();
    let mut look = ServerLook {
        version: observed.version.to_string(),
        uuid: observed.server_uuid(),
        port: text(3).parse().unwrap_or(0),
        owned: text(0),
        executed: text(1),
        purged: text(2),
        writable: observed.is_writable(),
        tls,
        waits_for_acks: semi_sync.is_some_and(|names| observed.is_on(&names.enabled())),
        waiting_commits: observed.waiting_sessions(),
        acknowledges,
        ackers: ackers.filter_map(|acker| acker.uuid).collect(),
        replicates_from,
        leaves_out,
        ..ServerLook::default()
    };
    look.judge(&observed, requirements);
    look.obstacles.extend(open_start);
    look.obstacles.extend(of_tables_in_memory(&in_memory));
    look.obstacles.extend(of_other_engines(&others));
    Ok(look)
}

/// Returns why the next start of the server would be open for writes. For a server that no member starts and whose settings no member
/// changes.
async fn open_start(
    connection: &mut Connection,
    observed: &Observed,
    requirements: &Requirements,
) -> Result<Option<String>, LinkError> {
    if !requirements.starts_elsewhere || requirements.manage_settings {
        return Ok(None);
    }
    let names = observed.semi_sync();
    let names = names.unwrap_or_else(|| SemiSyncNames::of_version(observed.version));
    let lacking = not_persisted(connection, names).await?;
    Ok((!lacking.is_empty()).then(|| {
        format!(
            "its next start may be open for writes that do not wait for the ring, because mysql.mode is attach and mysql.manage_settings \
             is off; run: {}",
            lacking.join("; ")
        )
    }))
}

/// Some of the MEMORY tables that the account can see. The query does not open them.
async fn tables_in_memory(connection: &mut Connection) -> Result<Vec<String>, LinkError> {
    let tables = "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE engine = 'MEMORY' \
         AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1 LIMIT 5";
    let tables = connection.query(tables).await?;
    Ok(tables.values().map(str::to_owned).collect())
}

/// Returns the obstacle: in a ring, MEMORY tables prevent a restarted follower from taking over.
fn of_tables_in_memory(tables: &[String]) -> Option<String> {
    let some = some_of(tables)?;
    Some(format!(
        "it has tables in memory, {some}: mysqld empties each when it is used first after a start, in a transaction of its \
         own, with which a follower can neither follow nor become the primary; ALTER TABLE … ENGINE = InnoDB at the primary, or \
         drop them"
    ))
}

/// Returns the obstacle: rows in other engines exist before their transaction commits, and reprovisioning does not copy them.
fn of_other_engines(tables: &[String]) -> Option<String> {
    let some = some_of(tables)?;
    Some(format!(
        "it has tables of other engines than InnoDB, {some}: their rows are there before the ring has acknowledged them and cannot be \
         taken back, a follower that has to begin a transaction again writes them twice, and `witness reprovision` copies none of \
         them; ALTER TABLE … ENGINE = InnoDB at the primary, or drop them"
    ))
}

/// Names one table, and reports whether others exist.
fn some_of(tables: &[String]) -> Option<String> {
    match tables {
        [] => None,
        [only] => Some(only.clone()),
        [first, ..] => Some(format!("{first} and others")),
    }
}

impl ServerLook {
    /// Sorts the findings by whether the member or the operator must fix them.
    fn judge(&mut self, observed: &Observed, requirements: &Requirements) {
        for finding in preflight(observed, requirements) {
            match (finding.severity, finding.check) {
                (_, Check::Persisted) if requirements.manage_settings => {
                    self.to_be_reset.push(finding.found);
                }
                // A crash makes this advice relevant, and then it is too late to fix the cause.
                (_, Check::Persisted)
                | (
                    Severity::Advice,
                    Check::BinlogEncryption | Check::BinlogPlace | Check::AccountExpires,
                ) => self.obstacles.push(finding.to_string()),
                // Acknowledging replicas are checked separately: a plan step stops them.
                (Severity::Advice, _) | (_, Check::ForeignAcker | Check::SemiSyncStatus) => {}
                (Severity::Unprotected, check) if is_set_by_the_member(check) => {
                    self.to_be_set.push(finding.found);
                }
                _ => self.obstacles.push(finding.to_string()),
            }
        }
    }
}

/// True if the member's plan fixes this setting without a restart of the server.
fn is_set_by_the_member(check: Check) -> bool {
    matches!(
        check,
        Check::SyncBinlog
            | Check::RedoFlush
            | Check::BinlogErrorAction
            | Check::BinlogFormat
            | Check::TransactionCache
            | Check::StatementCache
            | Check::SemiSyncPlugin
            | Check::SemiSyncEnabled
            | Check::SemiSyncTimeout
            | Check::SemiSyncReplicaCount
            | Check::SemiSyncWaitNoReplica
            | Check::SemiSyncWaitPoint
    )
}

/// Queries the channels and their filters.
async fn replicates_from(
    connection: &mut Connection,
) -> Result<(Vec<ReplicatesFrom>, Vec<String>), LinkError> {
    let channels = connection.query("SHOW REPLICA STATUS").await?;
    let channel = |row: &Row| {
        let text = |column| row.text(column).unwrap_or_default().to_owned();
        ReplicatesFrom {
            channel: text("Channel_Name"),
            host: text("Source_Host"),
            port: text("Source_Port").parse().unwrap_or(0),
            user: text("Source_User"),
            uuid: text("Source_UUID").parse().ok(),
            // A receiver that reconnects counts as running.
            receives: match text("Replica_IO_Running").as_str() {
                "Yes" => true,
                "Connecting" => text("Last_IO_Error").is_empty(),
                _ => false,
            },
            applies: text("Replica_SQL_Running") == "Yes",
            error: last_error(row),
        }
    };
    let filters = channels.rows.iter().flat_map(filters_of_channel).collect();
    Ok((channels.rows.iter().map(channel).collect(), filters))
}

/// Returns the filters of the server's channels, and the server's filters, which a new channel would copy.
async fn leaves_out(
    connection: &mut Connection,
    of_channels: Vec<String>,
) -> Result<Vec<String>, LinkError> {
    let mut all = of_channels;
    all.extend(filters_of_server(connection).await?);
    let lenience = lenience(connection).await?;
    let passed_over = [lenience.skips, lenience.mode].into_iter().flatten();
    all.extend(passed_over.map(|(name, value)| format!("{name}={value}")));
    all.sort();
    all.dedup();
    Ok(all)
}

/// Returns the names of the variables that make the server acknowledge received transactions.
pub(super) async fn acknowledging(connection: &mut Connection) -> Result<Vec<String>, LinkError> {
    let enabled = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled')";
    let enabled = connection.query(enabled).await?;
    let rows = enabled.rows.iter();
    let on = rows.filter(|row| row.text_at(1) == Some("ON"));
    let names = on.filter_map(|row| row.text_at(0));
    Ok(names.map(str::to_owned).collect())
}

pub(crate) async fn takes_tls(connection: &mut Connection) -> Result<bool, LinkError> {
    let enabled = "SELECT VALUE FROM performance_schema.tls_channel_status WHERE CHANNEL = 'mysql_main' AND PROPERTY = 'Enabled'";
    let enabled = connection.query(enabled).await?;
    let is_yes = |value: &str| value.eq_ignore_ascii_case("yes");
    Ok(enabled.value().is_some_and(is_yes))
}

// The state of an unmanaged server for clients of plain replication. A cheap query, run every second.

/// One observation of an unmanaged server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainServer {
    /// True if ordinary clients may write and the server replicates from no other server.
    pub writable: bool,
    /// Whether `offline_mode` blocks ordinary accounts.
    pub offline: bool,
    /// True if the server replicates through a channel whose threads all run.
    pub replicates: bool,
    /// The reported lag behind the source, in seconds.
    pub lag_seconds: Option<u64>,
    /// Why the channel does not run; empty where the server reports no error.
    pub error: String,
}

/// Queries a server. Changes nothing.
///
/// # Errors
/// When the server cannot be reached.
pub async fn look_at_plain(connect: &ConnectOptions) -> Result<PlainServer, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let settings = connection
        .query("SELECT @@GLOBAL.read_only OR @@GLOBAL.super_read_only, @@GLOBAL.offline_mode")
        .await?;
    let channels = connection.query("SHOW REPLICA STATUS").await?;
    connection.close().await;
    let is_on = |place| settings.first().and_then(|row| row.text_at(place)) == Some("1");
    let seen = channels.rows.iter().map(channel);
    Ok(plain_server(is_on(0), is_on(1), seen.collect()))
}

/// One channel: whether it runs, its lag, and its last error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Channel {
    runs: bool,
    lag_seconds: Option<u64>,
    error: String,
}

fn channel(row: &Row) -> Channel {
    let text = |column| row.text(column).unwrap_or_default();
    Channel {
        runs: text("Replica_IO_Running") == "Yes" && text("Replica_SQL_Running") == "Yes",
        lag_seconds: text("Seconds_Behind_Source").parse().ok(),
        error: last_error(row),
    }
}

/// The last error of the receiving or the applying thread of a channel.
fn last_error(row: &Row) -> String {
    let errors = ["Last_IO_Error", "Last_SQL_Error"].into_iter();
    let mut errors = errors.filter_map(|column| row.text(column));
    let last = errors.find(|error| !error.is_empty());
    last.unwrap_or_default().to_owned()
}

fn plain_server(read_only: bool, offline: bool, channels: Vec<Channel>) -> PlainServer {
    let running = channels.iter().find(|channel| channel.runs);
    PlainServer {
        writable: !read_only && channels.is_empty(),
        offline,
        replicates: running.is_some(),
        lag_seconds: running.and_then(|channel| channel.lag_seconds),
        error: match running {
            Some(_) => String::new(),
            None => channels.into_iter().map(|channel| channel.error).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_replicates_is_no_primary_also_when_it_is_open() {
        let runs = |lag| Channel {
            runs: true,
            lag_seconds: Some(lag),
            error: String::new(),
        };
        let broken = Channel {
            error: "duplicate key".to_owned(),
            ..Channel::default()
        };
        for (read_only, channels, writable, replicates, error) in [
            (false, vec![], true, false, ""),
            (true, vec![], false, false, ""),
            (false, vec![runs(0)], false, true, ""),
            (true, vec![runs(3)], false, true, ""),
            (true, vec![broken], false, false, "duplicate key"),
        ] {
            let seen = plain_server(read_only, false, channels.clone());
            let found = (seen.writable, seen.replicates, seen.error.as_str());
            assert_eq!(found, (writable, replicates, error), "{channels:?}");
        }
        assert_eq!(
            plain_server(true, false, vec![runs(3)]).lag_seconds,
            Some(3)
        );
    }
}

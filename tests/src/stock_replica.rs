//! A stock replica of a member's binlog server, configured as an operator does.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::cluster::{BINLOG_PASSWORD, BINLOG_USER};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use testkit::wait::try_eventually;

use crate::written_rows::MAKE_ROWS;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/binlog-server.md");
const CONNECTED: Duration = Duration::from_secs(30);

/// Returns the number and the interval of reconnects that the documentation page recommends.
fn retries_of_the_page() -> Result<String> {
    let page = std::fs::read_to_string(PAGE)?;
    let statement = page
        .split_once("CHANGE REPLICATION SOURCE TO ")
        .and_then(|(_, rest)| rest.split_once(';'));
    let (options, _) = statement.context("the page has the statement")?;
    let retries = options.split(',').map(str::trim);
    let retries: Vec<_> = retries.filter(|option| option.contains("_RETRY")).collect();
    ensure!(!retries.is_empty(), "the page says how often: {options}");
    Ok(retries.join(", "))
}

/// A stock replica of a member's binlog server.
pub struct StockReplica {
    server: Mysqld,
}

impl StockReplica {
    /// Starts a fresh mysqld that replicates from `source`. `how` contains further options of CHANGE REPLICATION SOURCE.
    ///
    /// # Errors
    /// If the replica does not start or does not connect.
    pub fn attach(server_id: u32, source: SocketAddr, how: &str) -> Result<Self> {
        let options = MysqldOptions::with_server_id(server_id);
        let statements = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{BINLOG_USER}', \
             SOURCE_PASSWORD = '{BINLOG_PASSWORD}', {}, SOURCE_HEARTBEAT_PERIOD = 1, {how}; START REPLICA",
            source.ip(),
            source.port(),
            retries_of_the_page()?,
        );
        Self::start(&MysqlTree::require(), options, &statements)
    }

    /// Starts a replica of the oldest MySQL, by GTIDs, with workers that use the log's sequence numbers. It begins as if restored from a
    /// backup of a primary that had these GTIDs and no rows. It has the tables already, because it cannot read a newer server's password
    /// format.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_oldest(server_id: u32, source: SocketAddr, gtids: &str) -> Result<Self> {
        let arguments = [
            "--slave-parallel-type=LOGICAL_CLOCK",
            "--slave-parallel-workers=4",
        ];
        let options = MysqldOptions::with_server_id(server_id).with_arguments(arguments);
        let statements = format!(
            "SET GLOBAL gtid_purged = '{gtids}'; SET sql_log_bin = 0; {MAKE_ROWS}; SET sql_log_bin = 1; \
             CHANGE MASTER TO MASTER_HOST = '{}', MASTER_PORT = {}, MASTER_USER = '{BINLOG_USER}', \
             MASTER_PASSWORD = '{BINLOG_PASSWORD}', MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1, \
             MASTER_AUTO_POSITION = 1; START SLAVE",
            source.ip(),
            source.port(),
        );
        Self::start(&MysqlTree::require_oldest(), options, &statements)
    }

    fn start(tree: &MysqlTree, options: MysqldOptions, statements: &str) -> Result<Self> {
        let server = Mysqld::launch_with(tree, options)?;
        server.client().sql(statements)?;
        let replica = Self { server };
        let is_on = || Ok(replica.connection()?.0 == "ON");
        let connected = try_eventually("the replica is connected", CONNECTED, is_on);
        connected.with_context(|| replica.words())?;
        Ok(replica)
    }

    /// Returns the state of the connection (`ON`, `CONNECTING`, `OFF`), and its last error.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn connection(&self) -> Result<(String, String)> {
        let query = "SELECT service_state, last_error_message FROM performance_schema.replication_connection_status";
        let rows = self.client().sql(query)?.0;
        let row = rows.into_iter().next().context("it is no replica")?;
        let mut columns = row.into_iter();
        Ok((
            columns.next().unwrap_or_default(),
            columns.next().unwrap_or_default(),
        ))
    }

    /// Returns the administrator's client.
    #[must_use]
    pub fn client(&self) -> MysqlClient {
        self.server.client()
    }

    /// Waits until the replica has the primary's executed transactions, and compares the tables of some schemas.
    ///
    /// # Errors
    /// If the replica does not have them in time, or the tables differ.
    pub fn equals(&self, primary: &MysqlClient, schemas: &[&str], limit: Duration) -> Result<()> {
        let executed = primary.gtid_executed()?;
        let client = self.client();
        let caught_up = client.wait_for_gtids(&executed, limit);
        caught_up.with_context(|| self.words())?;
        ensure!(
            client.gtid_executed()? == executed,
            "it has more than the primary"
        );
        for schema in schemas {
            let (own, theirs) = (
                client.table_checksums(schema)?,
                primary.table_checksums(schema)?,
            );
            ensure!(own == theirs, "{schema}: {own:?} and {theirs:?}");
        }
        Ok(())
    }

    /// Returns the replication status as text.
    #[must_use]
    pub fn words(&self) -> String {
        let status = self.client().sql("SHOW REPLICA STATUS");
        format!("{status:?}\n{}", self.server.error_log())
    }
}

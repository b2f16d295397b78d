//! The servers of the comparisons: their data and their settings.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use tempfile::TempDir;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::sysbench::Sysbench;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};

/// Settings of all servers. `sync_binlog=1` and `innodb_flush_log_at_trx_commit=1` are set elsewhere. The last setting is only for
/// comparisons of followers.
pub(super) const SETTINGS: [&str; 3] = [
    "--innodb-buffer-pool-size=256M",
    "--innodb-redo-log-capacity=256M",
    "--binlog-row-metadata=FULL",
];

/// The data of a stopped server. Each server starts with a copy.
pub(super) struct Template {
    tree: MysqlTree,
    settings: &'static [&'static str],
    home: TempDir,
}

impl Template {
    /// Creates the data for comparisons of followers: the replication account, and the data that `prepare` adds.
    pub(super) fn of_followers(
        tree: &MysqlTree,
        prepare: impl FnOnce(&Mysqld) -> Result<()>,
    ) -> Result<Self> {
        Self::make(tree, &SETTINGS, TempDir::new()?, &[], prepare)
    }

    /// Creates the data for comparisons of commits, in a folder below `work`: sysbench's tables and the semi-sync plugin.
    pub(super) fn with_tables(
        tree: &MysqlTree,
        work: &Path,
        tables: u32,
        rows: u32,
    ) -> Result<Self> {
        // The tables are loaded without a binlog, so that `gtid_executed` stays empty. Replicas and members then have nothing to fetch
        // before the first measured transaction.
        let home = TempDir::new_in(work)?;
        Self::make(tree, &SETTINGS[..2], home, &["--skip-log-bin"], |server| {
            let client = server.client();
            client.install_plugin("rpl_semi_sync_source", "semisync_source.so")?;
            Sysbench::on(server).tables(tables, rows).prepare(server)?;
            let gtids = client.gtid_executed()?;
            ensure!(gtids.is_empty(), "the loaded data has a history: {gtids}");
            Ok(())
        })
    }

    fn make(
        tree: &MysqlTree,
        settings: &'static [&'static str],
        home: TempDir,
        arguments: &[&str],
        prepare: impl FnOnce(&Mysqld) -> Result<()>,
    ) -> Result<Self> {
        let template = Self {
            tree: tree.clone(),
            settings,
            home,
        };
        let options = MysqldOptions {
            data_dir: Some(template.home.path().join("data")),
            ..template.options(1, arguments)
        };
        let mut server = Mysqld::launch_with(tree, options)?;
        server.client().create_replication_user()?;
        prepare(&server)?;
        server.stop()?;
        Ok(template)
    }

    fn options(&self, server_id: u32, arguments: &[&str]) -> MysqldOptions {
        let arguments = self.settings.iter().chain(arguments).copied();
        MysqldOptions::with_server_id(server_id).with_arguments(arguments)
    }

    /// Starts a server on a copy of the data.
    pub(super) fn launch(&self, server_id: u32, arguments: &[&str]) -> Result<Mysqld> {
        let options = MysqldOptions {
            copy_of: Some(self.home.path().join("data")),
            ..self.options(server_id, arguments)
        };
        Mysqld::launch_with(&self.tree, options)
    }

    /// Creates a stopped server with a copy of the data in `folder`.
    pub(super) fn copy(&self, server_id: u32, folder: &Path) -> Result<Mysqld> {
        let options = MysqldOptions {
            data_dir: Some(folder.to_owned()),
            copy_of: Some(self.home.path().join("data")),
            ..self.options(server_id, &[])
        };
        Mysqld::prepare(&self.tree, options)
    }
}

/// Returns the values of these settings, read from a server.
pub(super) fn settings_of(client: &MysqlClient, names: &[&str]) -> Result<Value> {
    let settings = names.iter();
    let settings = settings.map(|name| Ok(((*name).to_owned(), client.variable(name)?.into())));
    Ok(settings.collect::<Result<Map<_, _>>>()?.into())
}

/// Returns the GTIDs that a server has executed and that are not in `before`.
pub(super) fn executed_since(client: &MysqlClient, before: &str) -> Result<String> {
    let subtract = "SELECT REPLACE(GTID_SUBTRACT(@@GLOBAL.gtid_executed";
    client.value(&format!("{subtract}, '{before}'), '\\n', '')"))
}

/// Returns the number of transactions in a GTID set.
pub(super) fn count(gtids: &str) -> Result<u64> {
    let mut count = 0;
    for source in gtids.split(',') {
        for interval in source.trim().split(':').skip(1) {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            let (first, last): (u64, u64) = (first.parse()?, last.parse()?);
            count += last - first + 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_counted() {
        let set =
            "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-3:7, bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb:5-5";
        assert_eq!(count(set).unwrap(), 5);
    }
}

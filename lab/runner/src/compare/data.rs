//! The data that every setup starts from: loaded once, then copied for each.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::sysbench::Sysbench;
use testkit::mysqld::{Mysqld, MysqldOptions};

/// Settings of every mysqld, primaries and replicas alike, beyond those that the fixture states (`sync_binlog=1`,
/// `innodb_flush_log_at_trx_commit=1`). Everything else is as MySQL ships it.
const SETTINGS: [&str; 2] = [
    "--innodb-buffer-pool-size=256M",
    "--innodb-redo-log-capacity=256M",
];

/// The size of sysbench's tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSizes {
    pub(super) tables: u32,
    pub(super) rows: u32,
}

/// A stopped server's data directory with sysbench's tables, the accounts and the plugin in it.
pub(super) struct LoadedData {
    tree: MysqlTree,
    folder: PathBuf,
}

impl LoadedData {
    /// Loads it into `folder`.
    pub(super) fn load(tree: &MysqlTree, folder: PathBuf, sizes: TableSizes) -> Result<Self> {
        let mut server = Mysqld::prepare(
            tree,
            MysqldOptions {
                data_dir: Some(folder.clone()),
                ..options(1)
            },
        )?;
        // Without a binlog the load adds no GTID: every setup starts from an empty history, and no acknowledger has
        // anything to fetch before the first measured transaction.
        server.add_arguments(["--skip-log-bin"]);
        server.start()?;
        let client = server.client();
        client.create_replication_user()?;
        client.install_plugin("rpl_semi_sync_source", "semisync_source.so")?;
        Sysbench::on(&server)
            .tables(sizes.tables, sizes.rows)
            .prepare(&server)?;
        let gtids = client.gtid_executed()?;
        ensure!(gtids.is_empty(), "the loaded data has a history: {gtids}");
        server.stop()?;
        Ok(Self {
            tree: tree.clone(),
            folder,
        })
    }

    /// A stopped server on a copy of the data.
    pub(super) fn copy(&self, server_id: u32, folder: &Path) -> Result<Mysqld> {
        let options = MysqldOptions {
            data_dir: Some(folder.to_owned()),
            copy_of: Some(self.folder.clone()),
            ..options(server_id)
        };
        Mysqld::prepare(&self.tree, options)
    }
}

fn options(server_id: u32) -> MysqldOptions {
    MysqldOptions::with_server_id(server_id).with_arguments(SETTINGS)
}

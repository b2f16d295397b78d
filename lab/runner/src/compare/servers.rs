//! The servers of the comparisons of followers: what they start from, and how much they have.

use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

/// Settings of all of them beyond those that the fixture states (`sync_binlog=1`, `innodb_flush_log_at_trx_commit=1`).
pub(super) const SETTINGS: [&str; 3] = [
    "--innodb-buffer-pool-size=256M",
    "--innodb-redo-log-capacity=256M",
    "--binlog-row-metadata=FULL",
];

/// The data of a stopped server, of which each gets a copy.
pub(super) struct Template {
    tree: MysqlTree,
    folder: PathBuf,
    _work: TempDir,
}

impl Template {
    /// Makes it: the account of replicas, and what `prepare` adds.
    pub(super) fn make(
        tree: &MysqlTree,
        prepare: impl FnOnce(&Mysqld) -> Result<()>,
    ) -> Result<Self> {
        let work = TempDir::new()?;
        let folder = work.path().join("template");
        let mut server = Mysqld::launch_with(
            tree,
            MysqldOptions {
                data_dir: Some(folder.clone()),
                ..options(1)
            },
        )?;
        server.client().create_replication_user()?;
        prepare(&server)?;
        server.stop()?;
        Ok(Self {
            tree: tree.clone(),
            folder,
            _work: work,
        })
    }

    /// A server that runs on a copy.
    pub(super) fn launch(&self, server_id: u32, arguments: &[&str]) -> Result<Mysqld> {
        let options = MysqldOptions {
            copy_of: Some(self.folder.clone()),
            ..options(server_id).with_arguments(arguments.iter().copied())
        };
        Mysqld::launch_with(&self.tree, options)
    }
}

fn options(server_id: u32) -> MysqldOptions {
    MysqldOptions::with_server_id(server_id).with_arguments(SETTINGS)
}

/// How many transactions a set has.
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

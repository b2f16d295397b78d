//! A ring with several database members, which start a mysqld each. It has the clients' account and the table of acknowledged rows.
//! Members 1 and 2 are witnesses; member 0 and the members from 3 on are database members.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::cluster::{
    ChildServer, Cluster, ClusterOptions, MemberDatabase, Profile, witness_binary,
};
use testkit::mysql_tree::MysqlTree;

use crate::written_rows::MAKE_ROWS;

const READY_LIMIT: Duration = Duration::from_secs(90);

/// Starts a ring with this many database members; the first one is the primary.
///
/// # Errors
/// If the ring does not start; the message contains the members' last log lines.
pub fn replicaset(databases: usize) -> Result<Cluster> {
    replicaset_with(databases, |options| options)
}

/// As [`replicaset`], with options changed by `adjust`.
///
/// # Errors
/// As [`replicaset`].
pub fn replicaset_with(
    databases: usize,
    adjust: impl FnOnce(ClusterOptions) -> ClusterOptions,
) -> Result<Cluster> {
    replicaset_in(vec![None; databases], adjust)
}

/// As [`replicaset_with`], with a database member for each data directory: at this path, or in a temporary folder.
///
/// # Errors
/// As [`replicaset`].
pub fn replicaset_in(
    data_dirs: Vec<Option<PathBuf>>,
    adjust: impl FnOnce(ClusterOptions) -> ClusterOptions,
) -> Result<Cluster> {
    let tree = MysqlTree::require();
    let prepare = |(data_dir, server_id)| ChildServer::prepare(&tree, server_id, data_dir);
    let prepared = data_dirs.into_iter().zip(1..).map(prepare);
    let prepared: Vec<ChildServer> = prepared.collect::<Result<_>>()?;
    let mut databases = prepared.into_iter().map(MemberDatabase::from);
    let first = databases.next().context("a replicaset has a database")?;
    let options = adjust(ClusterOptions::new(first).with_more(databases));
    let mut set = Cluster::prepare(&witness_binary(Profile::Dev)?, options)?;
    set.bootstrap()?;
    // An administrator's writes to a replica would be errant, so they are written to the primary.
    set.promote_the_first(READY_LIMIT)?;
    set.create_client(0, MAKE_ROWS)?;
    Ok(set)
}

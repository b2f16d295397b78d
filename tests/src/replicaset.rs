//! A ring with several database members, each with a mysqld as its child, the clients' account and the table of acknowledged rows. Members
//! 0 and 3 onwards are database members, 1 and 2 witnesses.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::cluster::{
    ChildServer, Cluster, ClusterOptions, MemberDatabase, Profile, witness_binary,
};
use testkit::mysql_tree::MysqlTree;

use crate::written_rows::MAKE_ROWS;

const READY_LIMIT: Duration = Duration::from_secs(90);

/// A ring with so many database members; the first one is the primary.
///
/// # Errors
/// When it does not start; the message holds the members' last log lines.
pub fn replicaset(databases: usize) -> Result<Cluster> {
    replicaset_with(databases, |options| options)
}

/// The same with changed options.
///
/// # Errors
/// As [`replicaset`].
pub fn replicaset_with(
    databases: usize,
    adjust: impl FnOnce(ClusterOptions) -> ClusterOptions,
) -> Result<Cluster> {
    replicaset_in(vec![None; databases], adjust)
}

/// The same with a database member for each data directory: a permanent or a temporary one.
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
    // An administrator's writes to a replica would be errant.
    set.promote_the_first(READY_LIMIT)?;
    set.create_client(0, MAKE_ROWS)?;
    Ok(set)
}

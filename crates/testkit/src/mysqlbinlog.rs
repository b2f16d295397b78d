//! Stock `mysqlbinlog` over binlog files, a server's or a ring member's.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::bounded_run::{self, Finished};
use crate::mysql_tree::MysqlTree;

const READ_LIMIT: Duration = Duration::from_secs(300);

/// Runs `mysqlbinlog` with `arguments` on `files` (which it reads as one stream, in this order) and returns what it did,
/// whether it succeeded or not.
///
/// # Errors
/// When the tree has no `mysqlbinlog`, or it does not end in time.
pub fn mysqlbinlog<P: AsRef<Path>>(
    tree: &MysqlTree,
    arguments: &[&str],
    files: &[P],
) -> Result<Finished> {
    let mut command = tree.optional("mysqlbinlog", tree.mysqlbinlog.as_ref())?;
    command.arg("--no-defaults").args(arguments);
    command.args(files.iter().map(AsRef::as_ref));
    bounded_run::run("mysqlbinlog", command, Vec::new(), READ_LIMIT)
}

/// Reads `files` with every checksum verified, and returns the SQL that they stand for, ready for the `mysql` client.
///
/// # Errors
/// When mysqlbinlog does not accept a file.
pub fn verified_sql<P: AsRef<Path>>(tree: &MysqlTree, files: &[P]) -> Result<String> {
    let done = mysqlbinlog(tree, &["--verify-binlog-checksum"], files)?;
    // Some damage is a warning to mysqlbinlog; it is none here.
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    anyhow::ensure!(!said.contains("ERROR"), "mysqlbinlog: {}", said.trim());
    done.into_text("mysqlbinlog")
}

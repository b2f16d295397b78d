//! Data directories: initialised once per tree and version, then copied, because a copy takes a tenth of the time.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::options::account_option;
use crate::bounded_run;
use crate::mysql_tree::MysqlTree;

const INITIALISE_LIMIT: Duration = Duration::from_secs(180);
/// Small, so that copies are cheap; the server adjusts it to its own setting when it starts. Older ones do not know it.
const TEMPLATE_REDO_LOG: &str = "--loose-innodb-redo-log-capacity=16M";

/// Puts a freshly initialised data directory (root without a password, TLS and RSA keys generated) at `target`.
pub(super) fn fresh(tree: &MysqlTree, target: &Path) -> Result<()> {
    copy(&template(tree)?, target)
}

/// Copies the data directory of a stopped server. The copy gets a server UUID of its own at its first start.
pub(super) fn copy(original: &Path, target: &Path) -> Result<()> {
    ensure!(
        !target.exists(),
        "the data directory {} exists already",
        target.display()
    );
    copy_folder(original, target)
        .with_context(|| format!("cannot copy {} to {}", original.display(), target.display()))
}

fn copy_folder(original: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(original)? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else if entry.file_name() != "auto.cnf" {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// The template of this tree, made if it is not there. One process makes it while others wait.
fn template(tree: &MysqlTree) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (&tree.mysqld, &tree.version, TEMPLATE_REDO_LOG).hash(&mut hasher);
    let folder = MysqlTree::folder().join("templates");
    let name = format!("{}-{:016x}", tree.version, hasher.finish());
    let done = folder.join(&name);
    if done.is_dir() {
        return Ok(done);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = File::create(folder.join(format!("{name}.lock")))?;
    lock.lock()
        .context("cannot lock the data directory template")?;
    if !done.is_dir() {
        let half = tempfile::Builder::new()
            .prefix("initialising-")
            .tempdir_in(&folder)?;
        initialise(tree, &half.path().join("data"))?;
        fs::rename(half.path().join("data"), &done)?;
    }
    Ok(done)
}

fn initialise(tree: &MysqlTree, data_dir: &Path) -> Result<()> {
    let mut command = tree.command(&tree.mysqld);
    command
        .arg("--no-defaults")
        .args(tree.server_options())
        .args(account_option());
    command.args([
        format!("--datadir={}", data_dir.display()).as_str(),
        "--initialize-insecure",
        "--disable-log-bin",
        "--secure-file-priv=",
        TEMPLATE_REDO_LOG,
    ]);
    bounded_run::run(
        "mysqld --initialize-insecure",
        command,
        Vec::new(),
        INITIALISE_LIMIT,
    )?
    .into_text("mysqld --initialize-insecure")?;
    Ok(())
}

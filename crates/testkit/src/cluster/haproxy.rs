//! A real HAProxy with a configuration of the test's. Dropped, it is killed.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::bounded_run;
use crate::mysql_tree::MysqlTree;

const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// A running HAProxy. Dropped, it is killed.
#[derive(Debug)]
pub struct Haproxy {
    child: Child,
    home: TempDir,
}

impl Haproxy {
    /// Starts it, after it has found the configuration good.
    ///
    /// # Errors
    /// When the tree has none, or it does not like the configuration; with its words.
    pub fn start(tree: &MysqlTree, configuration: &str) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("haproxy-").tempdir()?;
        let file = home.path().join("haproxy.cfg");
        fs::write(&file, configuration)?;
        let command = || {
            let mut command = tree.optional("haproxy", tree.haproxy.as_ref())?;
            command.arg("-db").arg("-f").arg(&file);
            anyhow::Ok(command)
        };
        let mut check = command()?;
        check.arg("-c");
        bounded_run::run("haproxy -c", check, Vec::new(), CHECK_LIMIT)?.into_text("haproxy -c")?;
        let mut running = command()?;
        running.stdin(Stdio::null()).stdout(Stdio::null());
        running.stderr(File::create(home.path().join("stderr"))?);
        let child = running.spawn().context("haproxy does not start")?;
        Ok(Self { child, home })
    }

    /// What it told of servers that went and came.
    #[must_use]
    pub fn words(&self) -> String {
        fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // Both fail only for a child that has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

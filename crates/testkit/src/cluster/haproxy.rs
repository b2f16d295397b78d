//! A real HAProxy with the test's configuration.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::bounded_run::{self, KilledOnDrop};
use crate::mysql_tree::MysqlTree;

const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// A running HAProxy. Dropping it kills the process.
#[derive(Debug)]
pub struct Haproxy {
    _child: KilledOnDrop,
    home: TempDir,
}

impl Haproxy {
    /// Checks the configuration, then starts HAProxy.
    ///
    /// # Errors
    /// If the tree has no HAProxy, or HAProxy rejects the configuration; with its message.
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
        bounded_run::text("haproxy -c", check, CHECK_LIMIT)?;
        let mut running = command()?;
        running.stdin(Stdio::null()).stdout(Stdio::null());
        running.stderr(File::create(home.path().join("stderr"))?);
        let child = running.spawn().context("haproxy does not start")?;
        Ok(Self {
            _child: KilledOnDrop(child),
            home,
        })
    }

    /// Returns HAProxy's log, which shows servers going down and coming up.
    #[must_use]
    pub fn words(&self) -> String {
        fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }
}

//! The mysqld that a database member starts as its child. It is prepared here, and can be signalled whichever process started it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::mysql_tree::MysqlTree;
use crate::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use crate::signals;

const ROOT: &str = "root";
/// Small enough that three servers and their tests fit into the memory of a small machine.
const SMALL: [&str; 2] = [
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=32M",
];

/// A mysqld that its member starts. Dropping it kills the server; its member must end first, or it restarts the server.
#[derive(Debug)]
pub struct ChildServer {
    prepared: Mysqld,
    /// The member's account.
    user: String,
    /// True if it is started without its member's preloaded libraries.
    without_preload: bool,
}

impl ChildServer {
    /// A server with a fresh data directory, in a temporary folder or at `data_dir`, which is kept.
    ///
    /// # Errors
    /// When the data directory cannot be made.
    pub fn prepare(tree: &MysqlTree, server_id: u32, data_dir: Option<PathBuf>) -> Result<Self> {
        Ok(Self::of(Mysqld::prepare(
            tree,
            options(server_id, data_dir),
        )?))
    }

    /// A server whose data directory its member makes, at `data_dir`, which is kept.
    ///
    /// # Errors
    /// When there is no place for its socket.
    pub fn to_be_made(tree: &MysqlTree, server_id: u32, data_dir: PathBuf) -> Result<Self> {
        let options = options(server_id, Some(data_dir));
        Ok(Self::of(Mysqld::without_data(tree, options)?))
    }

    fn of(prepared: Mysqld) -> Self {
        Self {
            prepared,
            user: ROOT.to_owned(),
            without_preload: false,
        }
    }

    /// Started without its member's preloaded libraries.
    #[must_use]
    pub fn without_preload(mut self) -> Self {
        self.without_preload = true;
        self
    }

    /// With another account for the member than `root`, which the member creates with the data.
    #[must_use]
    pub fn with_account(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// The lines of `[mysql]` for its member.
    pub(super) fn toml_lines(&self) -> Vec<String> {
        let prepared = &self.prepared;
        let tree = prepared.tree();
        let mut extra_args = tree.server_options();
        if rustix::process::geteuid().is_root() {
            extra_args.push("--user=root".to_owned());
        }
        extra_args.extend([
            "--bind-address=127.0.0.1".to_owned(),
            "--mysqlx=OFF".to_owned(),
            "--secure-file-priv=".to_owned(),
            format!("--server-id={}", prepared.server_id()),
            "--log-bin=binlog".to_owned(),
        ]);
        extra_args.extend(SMALL.map(str::to_owned));
        let before: &[&str] = match self.without_preload {
            true => &["/usr/bin/env", "-u", "LD_PRELOAD"],
            false => &[],
        };
        let words = before.iter().map(Into::into);
        let mysqld: Vec<String> = words
            .chain(tree.words(&tree.mysqld))
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        vec![
            format!("user = {:?}", self.user),
            "mode = \"child\"".to_owned(),
            format!("mysqld = {mysqld:?}"),
            format!("extra_args = {extra_args:?}"),
            format!("datadir = {:?}", prepared.data_dir()),
            format!("socket = {:?}", prepared.socket()),
            format!("port = {}", prepared.address().port()),
        ]
    }

    /// The tree that it is started from.
    #[must_use]
    pub fn tree(&self) -> &MysqlTree {
        self.prepared.tree()
    }

    /// The administrator's client.
    #[must_use]
    pub fn client(&self) -> MysqlClient {
        self.prepared.client()
    }

    /// Its data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.prepared.data_dir()
    }

    /// Its TCP address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.prepared.address()
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.prepared.socket()
    }

    /// Its process, if it runs: the one with its data directory in the command line.
    #[must_use]
    pub fn process(&self) -> Option<Pid> {
        let argument = format!("--datadir={}", self.prepared.data_dir().display());
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let id = ids.find(|id| {
            let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let mut words = command.split(|byte| *byte == 0);
            words.any(|word| word == argument.as_bytes())
        });
        Pid::from_raw(id?)
    }

    /// Sends it a signal. Returns whether it ran.
    ///
    /// # Errors
    /// When the signal is not permitted.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(pid) = self.process() else {
            return Ok(false);
        };
        match signals::send(pid, signal) {
            Err(error) if error.downcast_ref() == Some(&Errno::SRCH) => Ok(false),
            other => other.context("cannot signal mysqld").map(|()| true),
        }
    }

    /// Kills it, if it runs.
    ///
    /// # Errors
    /// When the signal is not permitted.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL).map(drop)
    }
}

fn options(server_id: u32, data_dir: Option<PathBuf>) -> MysqldOptions {
    MysqldOptions {
        data_dir,
        ..MysqldOptions::with_server_id(server_id)
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // It outlives its member.
        let _ = self.kill();
    }
}

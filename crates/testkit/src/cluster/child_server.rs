//! The mysqld that a database member starts as its child process. It is prepared here. Signals can be sent to it whatever process
//! started it.

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
/// Settings with which three servers and their tests fit into the memory of a small machine.
const SMALL: [&str; 2] = [
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=32M",
];

/// A mysqld that its member starts. Dropping this kills the server. End the member first, because it would restart the server.
#[derive(Debug)]
pub struct ChildServer {
    prepared: Mysqld,
    /// The account that the member uses.
    user: String,
    /// True if the server is started without the libraries preloaded for its member.
    without_preload: bool,
}

impl ChildServer {
    /// Prepares a server with a fresh data directory, in a temporary folder, or at `data_dir`, which is kept.
    ///
    /// # Errors
    /// If the data directory cannot be created.
    pub fn prepare(tree: &MysqlTree, server_id: u32, data_dir: Option<PathBuf>) -> Result<Self> {
        Ok(Self::of(Mysqld::prepare(
            tree,
            options(server_id, data_dir),
        )?))
    }

    /// Prepares a server without data. Its member creates the data directory at `data_dir`, which is kept.
    ///
    /// # Errors
    /// If there is no place for the server's socket.
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

    /// Starts the server without the libraries preloaded for its member.
    #[must_use]
    pub fn without_preload(mut self) -> Self {
        self.without_preload = true;
        self
    }

    /// Uses another account than `root` for the member. The member creates the account together with the data.
    #[must_use]
    pub fn with_account(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Returns the lines of `[mysql]` in the member's configuration.
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

    /// Returns the tree from which the server is started.
    #[must_use]
    pub fn tree(&self) -> &MysqlTree {
        self.prepared.tree()
    }

    /// Returns the administrator's client.
    #[must_use]
    pub fn client(&self) -> MysqlClient {
        self.prepared.client()
    }

    /// Returns the path of the data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.prepared.data_dir()
    }

    /// Returns the TCP address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.prepared.address()
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.prepared.socket()
    }

    /// Returns the server's process if it is running: the process with its data directory in the command line.
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

    /// Sends a signal to the server. Returns whether it was running.
    ///
    /// # Errors
    /// If the signal is not permitted.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(pid) = self.process() else {
            return Ok(false);
        };
        match signals::send(pid, signal) {
            Err(error) if error.downcast_ref() == Some(&Errno::SRCH) => Ok(false),
            other => other.context("cannot signal mysqld").map(|()| true),
        }
    }

    /// Kills the server if it is running.
    ///
    /// # Errors
    /// If the signal is not permitted.
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
        // The server outlives its member.
        let _ = self.kill();
    }
}

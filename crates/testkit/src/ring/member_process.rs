//! One `witness run` process and its folder.

use std::fs;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::bounded_run::{cargo, wait_within};
use crate::mysql_tree::MysqlTree;
use crate::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use crate::ring::options::Beside;
use crate::{bounded_run, figures};

const STOP_LIMIT: Duration = Duration::from_secs(30);
const SHOWN_LINES: usize = 15;

#[derive(Debug)]
pub(super) struct MemberProcess {
    name: String,
    directory: PathBuf,
    config: PathBuf,
    http: SocketAddr,
    child: Option<Child>,
}

impl MemberProcess {
    pub(super) fn new(name: String, directory: PathBuf, config: PathBuf, http: SocketAddr) -> Self {
        Self {
            name,
            directory,
            config,
            http,
            child: None,
        }
    }

    pub(super) fn start(
        &mut self,
        wrapper: &[&str],
        binary: &Path,
        arguments: &[&str],
    ) -> Result<()> {
        ensure!(self.child.is_none(), "member {} runs already", self.name);
        let output = self.output_file()?;
        let mut command = match wrapper.split_first() {
            None => Command::new(binary),
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(binary);
                command
            }
        };
        let child = command
            .arg("run")
            .arg("--config")
            .arg(&self.config)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        let mut child = self.take()?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    pub(super) fn stop(&mut self) -> Result<ExitStatus> {
        let child = self
            .child
            .as_ref()
            .with_context(|| format!("member {} does not run", self.name))?;
        kill_process(Pid::from_child(child), Signal::TERM)?;
        self.wait_for_exit(STOP_LIMIT)
    }

    pub(super) fn wait_for_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        let mut child = self.take()?;
        match wait_within(&mut child, limit)? {
            Some(status) => Ok(status),
            None => {
                self.child = Some(child);
                anyhow::bail!(
                    "member {} still runs after {limit:?}\n{}",
                    self.name,
                    self.last_words()
                )
            }
        }
    }

    /// A sentence, if the process has ended without being asked to.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!("member {} ended ({status})", self.name))
    }

    pub(super) fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn config(&self) -> &Path {
        &self.config
    }

    pub(super) fn http(&self) -> SocketAddr {
        self.http
    }

    pub(super) fn output(&self) -> String {
        std::fs::read(self.output_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub(super) fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        format!("--- {} ---\n  {shown}\n", self.name)
    }

    fn take(&mut self) -> Result<Child> {
        self.child
            .take()
            .with_context(|| format!("member {} does not run", self.name))
    }

    fn output_path(&self) -> PathBuf {
        self.directory.join("output.log")
    }

    fn output_file(&self) -> Result<File> {
        let path = self.output_path();
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only for a child that has been waited for already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// The mysqld beside a database member that is its child: prepared here, started by the member, and signalled as the system
// would, whoever started it.

/// Small enough that three servers and what runs beside them fit into the memory of a small machine.
const SMALL: [&str; 2] = [
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=32M",
];

/// A mysqld that its member starts. Dropping it kills the server; its member, which would start it again, has to end before.
#[derive(Debug)]
pub struct ChildServer {
    prepared: Mysqld,
}

impl ChildServer {
    /// A server with a fresh data directory, in a temporary folder or at `data_dir`, where it stays.
    ///
    /// # Errors
    /// When the data directory cannot be made.
    pub fn prepare(tree: &MysqlTree, server_id: u32, data_dir: Option<PathBuf>) -> Result<Self> {
        let options = MysqldOptions {
            data_dir,
            ..MysqldOptions::with_server_id(server_id)
        };
        Ok(Self {
            prepared: Mysqld::prepare(tree, options)?,
        })
    }

    /// How the member runs it.
    #[must_use]
    pub fn beside(&self) -> Beside {
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
        let words = tree.words(&tree.mysqld);
        let words = words.into_iter();
        Beside::Child {
            mysqld: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            extra_args,
            datadir: prepared.data_dir().to_owned(),
            socket: prepared.socket(),
            port: prepared.address().port(),
        }
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
    pub fn data_dir(&self) -> PathBuf {
        self.prepared.data_dir().to_owned()
    }

    /// Where it listens over TCP.
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

    /// Sends it a signal; says whether it ran.
    ///
    /// # Errors
    /// When it may not be signalled.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(pid) = self.process() else {
            return Ok(false);
        };
        match kill_process(pid, signal) {
            Err(Errno::SRCH) => Ok(false),
            other => {
                other.context("cannot signal mysqld")?;
                Ok(true)
            }
        }
    }

    /// Kills it, if it runs.
    ///
    /// # Errors
    /// When it may not be signalled.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL).map(drop)
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // It outlives its member.
        let _ = self.kill();
    }
}

// The binaries that a test or a comparison runs.

/// A cold build on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// How it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// With debug assertions, the engine's included.
    Dev,
    /// As it is shipped.
    Release,
}

impl Profile {
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// Set by whoever has built the whole workspace a moment ago, as `cargo xtask test` has: the binary in the target folder is
/// taken as it is. A build of the one package would choose other features of its dependencies and compile them anew.
pub const BUILT_VARIABLE: &str = "RING_BINARY_IS_BUILT";

/// Builds the binary if it is not up to date, and says where it is. See [`BUILT_VARIABLE`].
///
/// # Errors
/// When it does not compile.
pub fn witness_binary(profile: Profile) -> Result<PathBuf> {
    build(
        &["--package", "witness-bin", "--bin", "witness"],
        "witness",
        profile,
    )
}

/// Builds the database member without a mysqld if it is not up to date, and says where it is. See [`BUILT_VARIABLE`].
///
/// # Errors
/// When it does not compile.
pub fn embedded_member(profile: Profile) -> Result<PathBuf> {
    build(
        &["--package", "witness-tests", "--example", "embedded_member"],
        "examples/embedded_member",
        profile,
    )
}

/// Builds the clients that look for the primary if they are not up to date, and says where the program is. See
/// [`BUILT_VARIABLE`].
///
/// # Errors
/// When it does not compile.
pub fn primary_clients(profile: Profile) -> Result<PathBuf> {
    build(
        &["--package", "witness-tests", "--example", "primary_clients"],
        "examples/primary_clients",
        profile,
    )
}

/// Builds the program that does faults to a ring if it is not up to date, and says where it is. See [`BUILT_VARIABLE`].
///
/// # Errors
/// When it does not compile.
pub fn nemesis_binary(profile: Profile) -> Result<PathBuf> {
    build(
        &["--package", "nemesis", "--bin", "nemesis"],
        "nemesis",
        profile,
    )
}

/// `file` is where cargo puts it, below the profile's folder.
fn build(target: &[&str], file: &str, profile: Profile) -> Result<PathBuf> {
    let built = figures::target_folder().join(profile.folder()).join(file);
    if std::env::var_os(BUILT_VARIABLE).is_some() && built.is_file() {
        return Ok(built);
    }
    let name = target.last().copied().unwrap_or_default();
    let mut cargo = cargo();
    cargo.args(["build", "--message-format=json"]).args(target);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    let messages = bounded_run::run("cargo build", cargo, Vec::new(), BUILD_LIMIT)?
        .into_text("cargo build")?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo did not say where it put the binary")
}

//! A real mysqld for a test, with its own data directory, a free port, a short socket path, and GTIDs.
//!
//! The owner of a [`Mysqld`] may start, stop, kill, pause and query it. Dropping it kills the server and removes its files. It sends
//! signals to no other process. Every call has a time limit.

pub mod client;
pub mod group_replication;
pub mod paced;
mod replication;
pub mod sysbench;
pub mod workload;

use std::fs;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::bounded_run::{self, KilledOnDrop};
use crate::mysql_tree::MysqlTree;
pub use crate::mysqld::client::{MysqlClient, PendingSql, Rows, TableChecksums};
pub use crate::mysqld::replication::{REPLICATION_PASSWORD, REPLICATION_USER};
use crate::ports::free_address;
use crate::signals;
use crate::wait::try_eventually;

/// If a server has not answered within this time, its start has failed. The limit is long, because recovery is slow on a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(90);

/// A mysqld with a data directory of its own.
#[derive(Debug)]
pub struct Mysqld {
    tree: MysqlTree,
    options: MysqldOptions,
    address: SocketAddr,
    child: Option<KilledOnDrop>,
    data_dir: PathBuf,
    /// The folder of the socket and the logs. It also contains the data directory, unless the options name another place.
    home: TempDir,
}

impl Mysqld {
    /// Creates and starts a server with the default options.
    ///
    /// # Errors
    /// If the server cannot be created or started.
    pub fn launch(tree: &MysqlTree) -> Result<Self> {
        Self::launch_with(tree, MysqldOptions::default())
    }

    /// Creates and starts a server.
    ///
    /// # Errors
    /// If the server cannot be created or started.
    pub fn launch_with(tree: &MysqlTree, options: MysqldOptions) -> Result<Self> {
        let mut server = Self::prepare(tree, options)?;
        server.start()?;
        Ok(server)
    }

    /// Creates a server with its data directory, but does not start it. Use [`Self::start`], or start another program with
    /// [`Mysqld::command_line`].
    ///
    /// # Errors
    /// If the data directory cannot be created.
    pub fn prepare(tree: &MysqlTree, options: MysqldOptions) -> Result<Self> {
        let server = Self::without_data(tree, options)?;
        match &server.options.copy_of {
            Some(original) => copy(original, &server.data_dir)?,
            None => fresh(tree, &server.data_dir)?,
        }
        Ok(server)
    }

    /// Creates a server whose data directory another component will create.
    pub(crate) fn without_data(tree: &MysqlTree, options: MysqldOptions) -> Result<Self> {
        // The path of a socket may have at most 107 bytes, so the names are short.
        let home = tempfile::Builder::new()
            .prefix("my-")
            .tempdir()
            .context("cannot make a folder for mysqld")?;
        let data_dir = options
            .data_dir
            .clone()
            .unwrap_or_else(|| home.path().join("data"));
        Ok(Self {
            tree: tree.clone(),
            options,
            address: free_address()?,
            child: None,
            data_dir,
            home,
        })
    }

    /// Returns the program and the arguments that start this server. The options' own arguments are last.
    #[must_use]
    pub fn command_line(&self) -> Vec<String> {
        let mut words: Vec<String> = self
            .tree
            .words(&self.tree.mysqld)
            .into_iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words.push("--no-defaults".into());
        words.extend(self.tree.server_options());
        words.extend(account_option());
        words.extend([
            format!("--datadir={}", self.data_dir.display()),
            format!("--socket={}", self.socket().display()),
            format!("--pid-file={}", self.home.path().join("pid").display()),
            format!("--log-error={}", self.error_log_file().display()),
            format!("--bind-address={}", self.address.ip()),
            format!("--port={}", self.address.port()),
        ]);
        words.extend(self.options.arguments());
        words
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// If the server is running already, or does not answer in time; the message contains the end of its error log.
    pub fn start(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_until_it_answers(START_LIMIT)
    }

    /// Starts the server without waiting for it, for tests of the starting phase.
    ///
    /// # Errors
    /// If the server is running already, or cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "this mysqld runs already");
        let words = self.command_line();
        // Output before the error log is open also goes to this file.
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.error_log_file())?;
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", words[0]))?;
        self.child = Some(KilledOnDrop(child));
        Ok(())
    }

    /// Waits until the started server answers.
    ///
    /// # Errors
    /// If the server ended, or the limit passed.
    pub fn wait_until_it_answers(&mut self, limit: Duration) -> Result<()> {
        let client = self.client();
        let waited = try_eventually("mysqld answers", limit, || {
            let child = self.child.as_mut().context("this mysqld was not started")?;
            if let Some(status) = child.try_wait()? {
                self.child = None;
                bail!("mysqld ended while it started ({status})");
            }
            Ok(self.socket().exists() && client.sql("SELECT 1").is_ok())
        });
        waited.map_err(|error| anyhow!("{error:#}:\n{}", self.error_log_end()))
    }

    /// Stops the server with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// If the server is not running, or does not end in time; it is then killed.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let mut child = self.child.take().context("this mysqld does not run")?;
        match bounded_run::wait_within(&mut child, STOP_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("mysqld stopped with {status}:\n{}", self.error_log_end()),
            None => bail!(
                "mysqld did not stop within {STOP_LIMIT:?} and is killed:\n{}",
                self.error_log_end()
            ),
        }
    }

    /// Kills the server with SIGKILL, as a crash would, and waits for its end.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn kill(&mut self) -> Result<()> {
        let child = self.child.take().context("this mysqld does not run");
        child.map(drop)
    }

    /// Stops with SIGTERM and starts again.
    ///
    /// # Errors
    /// As [`Mysqld::stop`] and [`Mysqld::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    /// Freezes the server with SIGSTOP. After this returns, its connections stay open, and no request is answered.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues a frozen server (SIGCONT).
    ///
    /// # Errors
    /// If the server is not running.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// True if the server that this fixture started is running.
    pub fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the process id of the server that this fixture started.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(|child| child.id())
    }

    /// Adds arguments for the next start, after the existing arguments.
    pub fn add_arguments<I: IntoIterator<Item: Into<String>>>(&mut self, arguments: I) {
        self.options
            .arguments
            .extend(arguments.into_iter().map(Into::into));
    }

    /// Returns the tree from which the server is started.
    #[must_use]
    pub fn tree(&self) -> &MysqlTree {
        &self.tree
    }

    /// Returns the server's listen address: loopback with a port of its own, which stays the same after restarts.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server id.
    #[must_use]
    pub fn server_id(&self) -> u32 {
        self.options.server_id
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.home.path().join("sock")
    }

    /// Returns the path of the data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns a client that connects as `root` over the socket.
    #[must_use]
    pub fn client(&self) -> MysqlClient {
        MysqlClient::over_socket(&self.tree, &self.socket())
    }

    /// Returns the content of the error log so far.
    #[must_use]
    pub fn error_log(&self) -> String {
        fs::read(self.error_log_file())
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    fn error_log_file(&self) -> PathBuf {
        self.home.path().join("error.log")
    }

    fn error_log_end(&self) -> String {
        let log = self.error_log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("this mysqld does not run")?;
        signals::send(Pid::from_child(child), signal).context("cannot signal mysqld")
    }
}

// Data directories. They are initialised once per tree and version and then copied, because a copy takes a tenth of the time.

const INITIALISE_LIMIT: Duration = Duration::from_secs(180);
/// Small, so that copies are cheap. The server resizes the redo log to its own setting when it starts. Older versions lack the option.
const TEMPLATE_REDO_LOG: &str = "--loose-innodb-redo-log-capacity=16M";

/// Creates a freshly initialised data directory at `target`: root has no password, and TLS and RSA keys exist.
pub(super) fn fresh(tree: &MysqlTree, target: &Path) -> Result<()> {
    copy(&template(tree)?, target)
}

/// Copies the data directory of a stopped server. The copy gets its own server UUID at its first start.
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

/// Returns the template of this tree, which is created on first use. One process creates it while others wait.
fn template(tree: &MysqlTree) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    // The program of a server with a keyring is a link; both servers use the same template.
    let program = fs::canonicalize(&tree.mysqld)?;
    (program, &tree.version, TEMPLATE_REDO_LOG).hash(&mut hasher);
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
    bounded_run::text("mysqld --initialize-insecure", command, INITIALISE_LIMIT).map(drop)
}

// Start options of a test's mysqld.

/// Options of a test's mysqld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqldOptions {
    /// `--server-id`.
    pub server_id: u32,
    /// Arguments at the end of the command line, so that they override the fixture's own.
    pub arguments: Vec<String>,
    /// The data directory, which is kept; `None`: in a temporary folder that is removed with the fixture.
    pub data_dir: Option<PathBuf>,
    /// The data directory of a stopped server that is copied; `None`: a freshly initialised one.
    pub copy_of: Option<PathBuf>,
}

/// Settings for a server that lives for seconds. Most of its start and stop time is for memory of histories and caches that no test uses.
const SMALL: [&str; 15] = [
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-buffer-size=4M",
    "--table-open-cache=400",
    "--table-definition-cache=400",
    "--performance-schema-digests-size=500",
    "--performance-schema-max-digest-length=256",
    "--performance-schema-max-sql-text-length=256",
    "--performance-schema-max-memory-classes=0",
    "--performance-schema-events-statements-history-size=0",
    "--performance-schema-events-statements-history-long-size=0",
    "--performance-schema-events-stages-history-size=0",
    "--performance-schema-events-stages-history-long-size=0",
    "--performance-schema-events-transactions-history-long-size=0",
    "--performance-schema-events-waits-history-size=0",
    "--performance-schema-events-waits-history-long-size=0",
];

impl Default for MysqldOptions {
    fn default() -> Self {
        Self {
            server_id: 1,
            arguments: Vec::new(),
            data_dir: None,
            copy_of: None,
        }
    }
}

impl MysqldOptions {
    /// The default options with this server id.
    #[must_use]
    pub fn with_server_id(server_id: u32) -> Self {
        Self {
            server_id,
            ..Self::default()
        }
    }

    /// Adds further arguments.
    #[must_use]
    pub fn with_arguments<I: IntoIterator<Item: Into<String>>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Returns the arguments that do not depend on the server's folders.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            format!("--server-id={}", self.server_id),
            "--log-bin=binlog".into(),
            "--gtid-mode=ON".into(),
            "--enforce-gtid-consistency=ON".into(),
            // The project requires durable commits. These are the defaults; they are set so that a test can rely on them.
            "--sync-binlog=1".into(),
            "--innodb-flush-log-at-trx-commit=1".into(),
            // The X protocol would need its own port and socket.
            "--mysqlx=OFF".into(),
            "--secure-file-priv=".into(),
        ];
        all.extend(SMALL.map(str::to_owned));
        all.extend(self.arguments.iter().cloned());
        all
    }
}

/// Returns `--user=root` if this process is root: mysqld refuses to run as root without it.
pub(super) fn account_option() -> Option<String> {
    rustix::process::geteuid()
        .is_root()
        .then(|| "--user=root".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_arguments_come_last() {
        let options = MysqldOptions::with_server_id(7).with_arguments(["--gtid-mode=OFF"]);
        let arguments = options.arguments();
        assert_eq!(arguments.first().map(String::as_str), Some("--server-id=7"));
        assert_eq!(
            arguments.last().map(String::as_str),
            Some("--gtid-mode=OFF")
        );
    }
}

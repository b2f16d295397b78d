//! A source whose binlogs are applied to a second server by `witness apply`, in a separate process.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use binlog_format::gtid::GtidSet;
use testkit::bounded_run;
use testkit::cluster::{Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::workload::{Load, Workload};
use testkit::mysqld::{Mysqld, MysqldOptions};

/// Time limit for one run of the applier.
const LIMIT: Duration = Duration::from_secs(120);

/// A server with transactions, and a second server to which they are applied.
pub struct Pair {
    /// The server with the transactions.
    pub source: Mysqld,
    /// The server to which they are applied.
    pub target: Mysqld,
    witness: PathBuf,
}

impl Pair {
    /// Starts two empty servers.
    ///
    /// # Errors
    /// If a server does not start, or the binary does not compile.
    pub fn new() -> Result<Self> {
        Self::with_target_arguments([])
    }

    /// Starts two empty servers; the target with further arguments.
    ///
    /// # Errors
    /// As [`Pair::new`].
    pub fn with_target_arguments<const N: usize>(arguments: [&str; N]) -> Result<Self> {
        let tree = MysqlTree::require();
        let target = MysqldOptions::with_server_id(2).with_arguments(arguments);
        Ok(Self {
            source: Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?,
            target: Mysqld::launch_with(&tree, target)?,
            witness: witness_binary(Profile::Dev)?,
        })
    }

    /// Starts two empty servers of different trees, one for the source and one for the target.
    ///
    /// # Errors
    /// As [`Pair::new`].
    pub fn of_trees(source: &MysqlTree, target: &MysqlTree) -> Result<Self> {
        Ok(Self {
            source: Mysqld::launch_with(source, MysqldOptions::with_server_id(1))?,
            target: Mysqld::launch_with(target, MysqldOptions::with_server_id(2))?,
            witness: witness_binary(Profile::Dev)?,
        })
    }

    /// Starts two servers; the source then runs a workload.
    ///
    /// # Errors
    /// As [`Pair::new`], or with the server's message.
    pub fn after(workload: Workload, load: Load) -> Result<Self> {
        let pair = Self::new()?;
        workload.prepare(&pair.source)?;
        workload.run(&pair.source, load)?;
        Ok(pair)
    }

    /// Returns the command `witness apply` from the source's files to the target, with further arguments.
    ///
    /// # Errors
    /// If the source's files cannot be listed.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command_without_files(arguments);
        command.args(self.source.binlog_files()?);
        Ok(command)
    }

    /// As [`Pair::command`], without the source's files, so that another source can be added.
    #[must_use]
    pub fn command_without_files(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.witness);
        command.args(["--output", "json", "apply", "--to-user", "root", "--to"]);
        command.arg(self.target.socket()).args(arguments);
        command
    }

    /// Applies the source's files to their end. Returns the applier's report.
    ///
    /// # Errors
    /// If the applier fails; with its output.
    pub fn apply(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        let done = self.run(arguments)?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {said}", done.status);
        serde_json::from_slice(&done.stdout).with_context(|| format!("unexpected report: {said}"))
    }

    /// Runs the applier to its end, and returns its output even if it fails.
    ///
    /// # Errors
    /// If the applier cannot be started, or hangs.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        let done = bounded_run::run("witness apply", self.command(arguments)?, Vec::new(), LIMIT)?;
        Ok(Output {
            status: done.status,
            stdout: done.stdout,
            stderr: done.stderr,
        })
    }

    /// Starts the applier, and kills it after the time `after`, unless it has ended before. Returns whether it had ended.
    ///
    /// # Errors
    /// If the applier cannot be started, or fails before it is killed.
    pub fn apply_and_kill(&self, arguments: &[&str], after: Duration) -> Result<bool> {
        let mut started = None;
        self.apply_and_kill_once(arguments, || {
            let started = *started.get_or_insert_with(Instant::now);
            std::thread::sleep(Duration::from_millis(2));
            Ok(started.elapsed() >= after)
        })
    }

    /// Starts the applier, and kills it when the target has `more` further transactions, unless it has ended before. Returns
    /// whether it had ended.
    ///
    /// # Errors
    /// As [`Pair::apply_and_kill`], or if the target does not receive that many transactions.
    pub fn apply_and_kill_behind(&self, arguments: &[&str], more: u64) -> Result<bool> {
        let wanted = self.applied()? + more;
        let deadline = Instant::now() + LIMIT;
        self.apply_and_kill_once(arguments, || {
            ensure!(Instant::now() < deadline, "the target does not get more");
            Ok(self.applied()? >= wanted)
        })
    }

    /// Starts the applier, polls `is_time`, and kills the applier when it is true.
    fn apply_and_kill_once(
        &self,
        arguments: &[&str],
        mut is_time: impl FnMut() -> Result<bool>,
    ) -> Result<bool> {
        let mut command = self.command(arguments)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child: Child = command.spawn()?;
        while !is_time()? {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "it ended by itself: {status}");
                return Ok(true);
            }
        }
        child.kill()?;
        child.wait()?;
        Ok(false)
    }

    /// Returns how often a session has taken its turn to commit since the target's start.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn turns_taken(&self) -> Result<u64> {
        let taken = "SELECT COALESCE(SUM(count_star), 0) FROM performance_schema.events_statements_summary_by_digest \
                     WHERE digest_text LIKE 'UPDATE `witness_applier`%'";
        Ok(self.target.client().value(taken)?.parse()?)
    }

    /// Returns how many of the source's transactions the target has.
    fn applied(&self) -> Result<u64> {
        let gtids: GtidSet = self.target.client().gtid_executed()?.parse()?;
        Ok(u64::try_from(gtids.count())?)
    }

    /// Checks that the target has the same tables and GTIDs as the source.
    ///
    /// # Errors
    /// If there is a difference; with the first one.
    pub fn compare(&self, schema: &str) -> Result<()> {
        let (source, target) = (self.source.client(), self.target.client());
        let (written, applied) = (source.gtid_executed()?, target.gtid_executed()?);
        ensure!(written == applied, "written {written}, applied {applied}");
        let (written, applied) = (
            source.table_checksums(schema)?,
            target.table_checksums(schema)?,
        );
        ensure!(
            written == applied,
            "written {written:?}, applied {applied:?}"
        );
        Ok(())
    }
}

//! sysbench's `oltp_write_only` against a server: the load of the fault tests and of the commit latency comparison.
//!
//! It logs in as `root` over the server's socket. (Debian's sysbench speaks through MariaDB's client library, which loads
//! `caching_sha2_password` from a plugin folder of its own: in an unpacked tree `$MARIADB_PLUGIN_DIR` has to name it. Over a socket
//! the server takes the password as it is; over TCP without TLS the library asks for the server's RSA key by itself. Both
//! were tried on 9.7.4 and work; TLS does not without certificate files for the client.)

mod report;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bounded_run::{self, Running};
use crate::mysql_tree::MysqlTree;
use crate::mysqld::Mysqld;

pub use report::{Interval, SysbenchReport};

/// Granted beyond a run's own duration before it counts as hung.
const GRACE: Duration = Duration::from_secs(60);
const PREPARE_LIMIT: Duration = Duration::from_secs(300);
const SCHEMA: &str = "sbtest";

/// Which errors of the server sysbench passes over (and repeats the transaction) instead of ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoredErrors {
    /// Deadlocks, lock wait timeouts and changed records: sysbench's own default. Everything else ends the run.
    Conflicts,
    /// All of them.
    All,
}

/// A load, before it runs.
#[derive(Clone, Debug)]
pub struct Sysbench {
    tree: MysqlTree,
    socket: PathBuf,
    /// Number of tables.
    pub tables: u32,
    /// Rows in each.
    pub table_size: u32,
    /// Client threads.
    pub threads: u32,
    /// How long it runs.
    pub duration: Duration,
    /// Ends it earlier: after so many transactions.
    pub events: Option<u64>,
    /// Errors that do not end it.
    pub ignored_errors: IgnoredErrors,
    /// Transactions per second in all; `None`: as many as there can be.
    pub rate: Option<u32>,
    /// Granted beyond `duration`, for loads that are meant to stall at their end.
    pub grace: Duration,
}

/// A load that runs. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct SysbenchRun {
    running: Running,
    limit: Duration,
}

impl Sysbench {
    /// A small load on `server`: 4 tables of 10,000 rows, one thread, ten seconds. Rows are chosen uniformly, so that what is
    /// measured is the commit and not the wait for a few hot rows.
    #[must_use]
    pub fn on(server: &Mysqld) -> Self {
        Self {
            tree: server.tree().clone(),
            socket: server.socket(),
            tables: 4,
            table_size: 10_000,
            threads: 1,
            duration: Duration::from_secs(10),
            events: None,
            ignored_errors: IgnoredErrors::Conflicts,
            rate: None,
            grace: GRACE,
        }
    }

    /// The schema that it uses.
    #[must_use]
    pub fn schema() -> &'static str {
        SCHEMA
    }

    /// With this many client threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Running this long.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Ending after so many transactions, if the time has not passed before.
    #[must_use]
    pub fn events(mut self, events: u64) -> Self {
        self.events = Some(events);
        self
    }

    /// With this many tables of this many rows.
    #[must_use]
    pub fn tables(mut self, tables: u32, rows: u32) -> Self {
        (self.tables, self.table_size) = (tables, rows);
        self
    }

    /// Makes the schema and the tables.
    ///
    /// # Errors
    /// With sysbench's message.
    pub fn prepare(&self, server: &Mysqld) -> Result<()> {
        server
            .client()
            .sql(&format!("CREATE DATABASE IF NOT EXISTS {SCHEMA}"))?;
        let mut command = self.command()?;
        command.arg("prepare");
        bounded_run::run("sysbench prepare", command, Vec::new(), PREPARE_LIMIT)?
            .into_text("sysbench prepare")?;
        Ok(())
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it fails, with sysbench's message, or hangs.
    pub fn run(&self) -> Result<SysbenchReport> {
        self.start()?.finish()
    }

    /// Starts it and returns at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> Result<SysbenchRun> {
        let mut command = self.command()?;
        command.args(["--histogram=on", "--report-interval=1", "run"]);
        let running = Running::start("sysbench", command, Vec::new())?;
        Ok(SysbenchRun {
            running,
            limit: self.duration + self.grace,
        })
    }

    fn command(&self) -> Result<Command> {
        let mut command = self
            .tree
            .optional("sysbench", self.tree.sysbench.as_ref())?;
        let scripts = self
            .tree
            .sysbench_scripts
            .as_ref()
            .context("the sysbench of this MySQL comes without oltp_write_only.lua")?;
        // The script includes its neighbours by module name.
        command.env("LUA_PATH", scripts.join("?.lua"));
        if let Some(plugins) = &self.tree.client_plugin_dir {
            command.env("MARIADB_PLUGIN_DIR", plugins);
        }
        command.arg(scripts.join("oltp_write_only.lua")).args([
            format!("--tables={}", self.tables),
            format!("--table-size={}", self.table_size),
            format!("--threads={}", self.threads),
            format!("--time={}", self.duration.as_secs().max(1)),
            format!("--mysql-db={SCHEMA}"),
            "--mysql-user=root".into(),
            format!("--mysql-socket={}", self.socket.display()),
            "--rand-type=uniform".into(),
        ]);
        if self.ignored_errors == IgnoredErrors::All {
            command.arg("--mysql-ignore-errors=all");
        }
        command.args(self.events.map(|events| format!("--events={events}")));
        command.args(self.rate.map(|rate| format!("--rate={rate}")));
        Ok(command)
    }
}

impl SysbenchRun {
    /// Whether it has ended by now.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_finished(&mut self) -> Result<bool> {
        self.running.is_finished()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it failed, with sysbench's message, or hangs.
    pub fn finish(self) -> Result<SysbenchReport> {
        let done = self.running.finish(self.limit)?;
        // sysbench tells why it gives up on either stream.
        let said = format!(
            "{}\n{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        let fatal: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("FATAL"))
            .collect();
        anyhow::ensure!(
            done.status.success() && fatal.is_empty(),
            "sysbench failed ({}): {}",
            done.status,
            fatal.join("; ")
        );
        SysbenchReport::parse(&said)
    }
}

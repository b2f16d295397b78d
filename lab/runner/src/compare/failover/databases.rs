//! The source of commits: a writer inside the process of each database member, or a mysqld for each database member with clients that
//! search for the primary.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use testkit::bounded_run::{self, KilledOnDrop};
use testkit::cluster::{CLIENT, CLIENT_PASSWORD, ChildServer, Cluster, MemberDatabase};
use testkit::mysql_tree::MysqlTree;

use crate::compare::failover::events::Accounts;
use crate::compare::failover::options::{Options, Programs};

const VERIFY_LIMIT: Duration = Duration::from_secs(300);
const END_LIMIT: Duration = Duration::from_secs(60);
const TABLE: &str = "compare.numbered";
const CLIENTS: u32 = 8;

/// The databases of the ring, and their clients.
pub(super) struct Databases {
    /// True if the databases are mysqlds.
    mysql: bool,
    /// The program of a database member with a writer, or of the clients.
    program: PathBuf,
    commits_per_second: u32,
    /// The running clients, if the databases are mysqlds.
    clients: Option<KilledOnDrop>,
}

impl Databases {
    pub(super) fn new(options: &Options, programs: &Programs) -> Self {
        Self {
            mysql: options.mysql,
            program: programs.database.clone(),
            commits_per_second: options.commits_per_second,
            clients: None,
        }
    }

    /// Returns the database of a member.
    pub(super) fn of_member(&self, server_id: u32) -> Result<MemberDatabase> {
        if self.mysql {
            return Ok(ChildServer::prepare(&MysqlTree::require(), server_id, None)?.into());
        }
        Ok(MemberDatabase::Embedded {
            program: self.program.clone(),
        })
    }

    /// Returns the additional arguments of a database member. The member writes its acknowledged commits to the file `account`.
    pub(super) fn arguments(&self, account: &Path) -> Vec<String> {
        if self.mysql {
            return Vec::new();
        }
        vec![
            "--acknowledged".to_owned(),
            account.display().to_string(),
            "--commits-per-second".to_owned(),
            self.commits_per_second.to_string(),
        ]
    }

    /// Starts the commits in a new ring. Member 0 is the first primary. `account` returns the file for the acknowledged commits of a
    /// member.
    pub(super) fn begin(
        &mut self,
        ring: &Cluster,
        account: impl Fn(usize) -> PathBuf,
    ) -> Result<()> {
        if !self.mysql {
            return Ok(());
        }
        ring.create_client(
            0,
            &format!(
                "CREATE DATABASE compare; \
                 CREATE TABLE {TABLE} (id BIGINT UNSIGNED PRIMARY KEY, note VARCHAR(255))"
            ),
        )?;
        let mut command = Command::new(&self.program);
        for member in ring.databases() {
            let (http, socket) = (ring.http(member), ring.server(member).socket());
            let account = account(member);
            let place = format!("{http},{},{}", socket.display(), account.display());
            command.args(["--server", &place]);
        }
        command
            .args(["--user", CLIENT, "--password", CLIENT_PASSWORD])
            .args(["--table", TABLE, "--clients", &CLIENTS.to_string()])
            .arg("--commits-per-second")
            .arg(self.commits_per_second.to_string())
            .stdin(Stdio::null());
        let clients = command.spawn().context("cannot start the clients")?;
        self.clients = Some(KilledOnDrop(clients));
        Ok(())
    }

    /// Stops the commits.
    pub(super) fn end(&mut self, ring: &Cluster) -> Result<()> {
        if self.mysql {
            return self.end_clients();
        }
        let mut members = ring.databases().into_iter();
        members.try_for_each(|index| ring.signal(index, Signal::USR1))
    }

    fn end_clients(&mut self) -> Result<()> {
        let Some(mut clients) = self.clients.take() else {
            return Ok(());
        };
        let pid = Pid::from_child(&clients);
        kill_process(pid, Signal::TERM).context("the clients had ended")?;
        let Some(status) = bounded_run::wait_within(&mut clients, END_LIMIT)? else {
            bail!("the clients did not end within {END_LIMIT:?}");
        };
        ensure!(status.success(), "the clients ended with {status}");
        Ok(())
    }

    /// Compares the mysqlds' tables while the members run. The result includes the number of trimmed binlog tails. `None`: the databases
    /// are not mysqlds.
    pub(super) fn compare(&self, accounts: &Accounts, ring: &Cluster) -> Result<Option<Verdict>> {
        if !self.mysql {
            return Ok(None);
        }
        let mut acknowledged = BTreeSet::new();
        for path in accounts.paths().filter(|path| path.exists()) {
            for line in fs::read_to_string(path)?.lines() {
                let id = line.split(' ').nth(1).and_then(|id| id.parse::<u64>().ok());
                acknowledged.insert(id.with_context(|| format!("not a line of a client: {line}"))?);
            }
        }
        ring.same_tables("compare")?;
        let mut lost = BTreeSet::new();
        let mut trimmed = 0;
        for member in ring.databases() {
            let rows = ring
                .client(member)
                .sql(&format!("SELECT id FROM {TABLE}"))?;
            let there: BTreeSet<u64> = rows
                .0
                .iter()
                .filter_map(|row| row.first()?.parse().ok())
                .collect();
            lost.extend(acknowledged.difference(&there).copied());
            let kept = ring.directory(member).join("trimmed/mysqld");
            let documents = fs::read_dir(kept).into_iter().flatten().flatten();
            trimmed += documents
                .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
                .count();
        }
        Ok(Some(Verdict {
            acknowledged: acknowledged.len() as u64,
            lost: lost.into_iter().map(Value::from).collect(),
            // The logs were already compared while the members ran.
            log_ends: Vec::new(),
            trimmed: Some(trimmed),
        }))
    }

    /// Searches for every acknowledged commit in every log. The members must have ended.
    pub(super) fn verdict(&self, accounts: &Accounts, ring: &Cluster) -> Result<Verdict> {
        let mut command = Command::new(&self.program);
        command.arg("lost");
        for path in accounts.paths().filter(|path| path.exists()) {
            command.arg("--acknowledged").arg(path);
        }
        for index in 0..ring.size() {
            // The working folder of a member's process is its data directory, which also has the configuration.
            command.arg("--data-dir").arg(ring.directory(index));
        }
        let text = bounded_run::text("embedded_member lost", command, VERIFY_LIMIT)?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// The result of the check that every acknowledged commit is everywhere.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Verdict {
    /// Number of acknowledged commits.
    pub(super) acknowledged: u64,
    /// The acknowledged commits that a log or a table lacks.
    pub(super) lost: Vec<Value>,
    log_ends: Vec<String>,
    /// Number of times that the tail of a mysqld's binlog was trimmed, because the ring had not committed it.
    #[serde(default)]
    pub(super) trimmed: Option<usize>,
}

impl Verdict {
    /// Returns an error if a log or a table lacks an acknowledged commit, or if the logs end at different entries.
    pub(super) fn ensure_nothing_is_lost(&self) -> Result<()> {
        let shown = self.lost.first().map(Value::to_string).unwrap_or_default();
        ensure!(
            self.lost.is_empty(),
            "{} acknowledged commits are missing somewhere, the first is {shown}",
            self.lost.len()
        );
        let ends: BTreeSet<&String> = self.log_ends.iter().collect();
        ensure!(
            ends.len() <= 1,
            "the logs end at different entries: {ends:?}"
        );
        Ok(())
    }
}

//! What commits in the ring: a writer inside of every database member's process, or a mysqld beside it and clients that look
//! for the primary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use testkit::bounded_run;
use testkit::mysql_tree::MysqlTree;
use testkit::ring::{Beside, ChildServer, FarRing};

use crate::compare::failover::events::Accounts;
use crate::compare::failover::options::{Options, Programs};

const VERIFY_LIMIT: Duration = Duration::from_secs(300);
const END_LIMIT: Duration = Duration::from_secs(60);
/// The account of clients, without any right to write where `read_only` is on.
const CLIENT: &str = "app";
const CLIENT_PASSWORD: &str = "app-password";
const TABLE: &str = "compare.numbered";
const CLIENTS: u32 = 8;

/// See the module.
pub(super) enum Databases {
    /// A writer in the member's process.
    Embedded {
        /// The program of a database member.
        program: PathBuf,
        commits_per_second: u32,
    },
    /// A mysqld beside the member.
    Mysqld(Mysqlds),
}

/// mysqlds and their clients.
pub(super) struct Mysqlds {
    /// With their members' indexes.
    servers: BTreeMap<usize, ChildServer>,
    program: PathBuf,
    commits_per_second: u32,
    clients: Option<Child>,
}

impl Databases {
    /// Prepares them for the database members with these indexes.
    pub(super) fn prepare(
        options: &Options,
        programs: &Programs,
        members: impl IntoIterator<Item = usize>,
    ) -> Result<Self> {
        let commits_per_second = options.commits_per_second;
        if !options.mysql {
            return Ok(Self::Embedded {
                program: programs.database.clone(),
                commits_per_second,
            });
        }
        let tree = MysqlTree::require();
        let servers = members
            .into_iter()
            .zip(1..)
            .map(|(member, server_id)| Ok((member, ChildServer::prepare(&tree, server_id, None)?)));
        Ok(Self::Mysqld(Mysqlds {
            servers: servers.collect::<Result<_>>()?,
            program: programs.database.clone(),
            commits_per_second,
            clients: None,
        }))
    }

    /// What a database member runs.
    pub(super) fn member_program<'a>(&'a self, witness: &'a Path) -> &'a Path {
        match self {
            Self::Embedded { program, .. } => program,
            Self::Mysqld(_) => witness,
        }
    }

    /// What stands beside it.
    pub(super) fn beside(&self, member: usize) -> Option<Beside> {
        match self {
            Self::Embedded { .. } => None,
            Self::Mysqld(mysqlds) => Some(mysqlds.servers.get(&member)?.beside()),
        }
    }

    /// Further TOML of every member's file.
    pub(super) fn toml(&self) -> &'static str {
        match self {
            Self::Embedded { .. } => "[mysql]\nmode = \"attach\"\napply = \"off\"\n",
            Self::Mysqld(_) => "",
        }
    }

    /// Further arguments of a database member, whose acknowledged commits go to `account`.
    pub(super) fn arguments(&self, account: &Path) -> Vec<String> {
        match self {
            Self::Embedded {
                commits_per_second, ..
            } => vec![
                "--acknowledged".to_owned(),
                account.display().to_string(),
                "--commits-per-second".to_owned(),
                commits_per_second.to_string(),
            ],
            Self::Mysqld(_) => Vec::new(),
        }
    }

    /// Begins to commit, in a ring that was just made and whose first primary is beside member 0. `account` is where the
    /// acknowledged commits of a member go.
    pub(super) fn begin(
        &mut self,
        ring: &FarRing,
        account: impl Fn(usize) -> PathBuf,
    ) -> Result<()> {
        let Self::Mysqld(mysqlds) = self else {
            return Ok(());
        };
        let primary = mysqlds.servers.get(&0).context("member 0 has a mysqld")?;
        primary.client().sql(&format!(
            "CREATE USER {CLIENT} IDENTIFIED BY '{CLIENT_PASSWORD}'; GRANT ALL ON *.* TO {CLIENT}; \
             REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM {CLIENT}; CREATE DATABASE compare; \
             CREATE TABLE {TABLE} (id BIGINT UNSIGNED PRIMARY KEY, note VARCHAR(255))"
        ))?;
        let mut command = Command::new(&mysqlds.program);
        for (member, server) in &mysqlds.servers {
            let (http, socket) = (ring.http(*member), server.socket());
            let account = account(*member);
            let place = format!("{http},{},{}", socket.display(), account.display());
            command.args(["--server", &place]);
        }
        command
            .args(["--user", CLIENT, "--password", CLIENT_PASSWORD])
            .args(["--table", TABLE, "--clients", &CLIENTS.to_string()])
            .arg("--commits-per-second")
            .arg(mysqlds.commits_per_second.to_string())
            .stdin(Stdio::null());
        mysqlds.clients = Some(command.spawn().context("cannot start the clients")?);
        Ok(())
    }

    /// Kills what is beside a member that was killed.
    pub(super) fn kill(&self, member: usize) -> Result<()> {
        match self {
            Self::Embedded { .. } => Ok(()),
            Self::Mysqld(mysqlds) => match mysqlds.servers.get(&member) {
                Some(server) => server.kill(),
                None => Ok(()),
            },
        }
    }

    /// Whether the primary's and the followers' mysqlds are what they should be.
    pub(super) fn standing(&self, ring: &FarRing, leader: usize) -> Result<()> {
        let Self::Mysqld(mysqlds) = self else {
            return Ok(());
        };
        for member in mysqlds.servers.keys() {
            let question = match *member == leader {
                true => "/primary",
                false => "/replica?lag=1s",
            };
            let answer = ring.get(*member, question)?;
            let name = &ring.member(*member).name;
            ensure!(answer.status == 200, "{name} {question}: {}", answer.body);
        }
        Ok(())
    }

    /// Ends the committing.
    pub(super) fn end(&mut self, ring: &FarRing) -> Result<()> {
        match self {
            Self::Embedded { .. } => {
                let members = (0..ring.size()).filter(|index| ring.member(*index).database);
                for index in members {
                    ring.signal(index, Signal::USR1)?;
                }
                Ok(())
            }
            Self::Mysqld(mysqlds) => mysqlds.end_clients(),
        }
    }

    /// Whether all mysqlds have executed the same.
    pub(super) fn are_level(&self) -> bool {
        let Self::Mysqld(mysqlds) = self else {
            return true;
        };
        let sets = mysqlds.servers.values();
        let sets: Result<BTreeSet<String>> =
            sets.map(|server| server.client().gtid_executed()).collect();
        sets.is_ok_and(|sets| sets.len() == 1)
    }

    /// Compares the mysqlds' tables, while they run; how many binlogs' ends were cut off meanwhile.
    pub(super) fn compare(&self, accounts: &Accounts, ring: &FarRing) -> Result<Option<Equal>> {
        match self {
            Self::Embedded { .. } => Ok(None),
            Self::Mysqld(mysqlds) => mysqlds.compare(accounts, ring).map(Some),
        }
    }

    /// Holds every acknowledged commit against every log, after the members' end.
    pub(super) fn verdict(
        &self,
        accounts: &Accounts,
        ring: &FarRing,
        equal: Option<Equal>,
    ) -> Result<Verdict> {
        let Self::Embedded { program, .. } = self else {
            let equal = equal.context("the tables were not compared")?;
            return Ok(equal.into());
        };
        let mut command = Command::new(program);
        command.arg("lost");
        for path in accounts.paths().filter(|path| path.exists()) {
            command.arg("--acknowledged").arg(path);
        }
        for index in 0..ring.size() {
            // The folder of a process also holds its configuration.
            command.arg("--data-dir").arg(ring.directory(index));
        }
        let done = bounded_run::run("embedded_member lost", command, Vec::new(), VERIFY_LIMIT)?;
        Ok(serde_json::from_str(
            &done.into_text("embedded_member lost")?,
        )?)
    }
}

impl Mysqlds {
    fn end_clients(&mut self) -> Result<()> {
        let Some(mut clients) = self.clients.take() else {
            return Ok(());
        };
        let pid = Pid::from_child(&clients);
        kill_process(pid, Signal::TERM).context("the clients had ended")?;
        let Some(status) = bounded_run::wait_within(&mut clients, END_LIMIT)? else {
            clients.kill()?;
            clients.wait()?;
            bail!("the clients did not end within {END_LIMIT:?}");
        };
        ensure!(status.success(), "the clients ended with {status}");
        Ok(())
    }

    fn compare(&self, accounts: &Accounts, ring: &FarRing) -> Result<Equal> {
        let mut acknowledged = BTreeSet::new();
        for path in accounts.paths().filter(|path| path.exists()) {
            for line in fs::read_to_string(path)?.lines() {
                let id = line.split(' ').nth(1).and_then(|id| id.parse::<u64>().ok());
                acknowledged.insert(id.with_context(|| format!("not a line of a client: {line}"))?);
            }
        }
        let mut lost = BTreeSet::new();
        let mut tables = Vec::new();
        let mut trimmed = 0;
        for (member, server) in &self.servers {
            let client = server.client();
            let rows = client.sql(&format!("SELECT id FROM {TABLE}"))?;
            let there: BTreeSet<u64> = rows
                .0
                .iter()
                .filter_map(|row| row.first()?.parse().ok())
                .collect();
            lost.extend(acknowledged.difference(&there).copied());
            tables.push(client.table_checksums("compare")?);
            let kept = ring.directory(*member).join("trimmed/mysqld");
            let documents = fs::read_dir(kept).into_iter().flatten().flatten();
            trimmed += documents
                .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
                .count();
        }
        ensure!(
            tables.windows(2).all(|pair| pair[0] == pair[1]),
            "the mysqlds' tables differ"
        );
        Ok(Equal {
            acknowledged: acknowledged.len() as u64,
            lost,
            trimmed,
        })
    }
}

impl Drop for Mysqlds {
    fn drop(&mut self) {
        if let Some(mut clients) = self.clients.take() {
            // It may have ended.
            let _ = clients.kill();
            let _ = clients.wait();
        }
    }
}

/// What a comparison of the mysqlds found; their tables were the same.
pub(super) struct Equal {
    acknowledged: u64,
    lost: BTreeSet<u64>,
    trimmed: usize,
}

impl From<Equal> for Verdict {
    fn from(equal: Equal) -> Self {
        Self {
            acknowledged: equal.acknowledged,
            lost: equal.lost.into_iter().map(Value::from).collect(),
            // They were found equal while the members ran.
            log_ends: Vec::new(),
            trimmed: Some(equal.trimmed),
        }
    }
}

/// Whether what was acknowledged is everywhere.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Verdict {
    /// How many commits were acknowledged.
    pub(super) acknowledged: u64,
    /// Those that are missing somewhere.
    pub(super) lost: Vec<Value>,
    log_ends: Vec<String>,
    /// How many times the end of a mysqld's binlog was cut off, because the ring had not committed it.
    #[serde(default)]
    pub(super) trimmed: Option<usize>,
}

impl Verdict {
    /// Fails when an acknowledged commit is missing anywhere, or the logs differ in length.
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

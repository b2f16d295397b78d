//! A ring of member processes in several regions, each at a place of its own of a [`DistanceNetwork`]. Which program a member
//! runs is its own: `witness`, or one that takes `run --config FILE` as it does.
//!
//! Members are numbered from 0 in the order in which they are given. Dropping the ring kills the processes that it started.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::distance::{DistanceNetwork, Place};
use crate::ring::http::{HttpAnswer, http_get};
use crate::ring::log_files::LogFiles;
use crate::ring::member_process::MemberProcess;
use crate::ring::options::{BINLOG_PASSWORD, BINLOG_USER, Beside};

const RAFT_PORT: u16 = 7400;
const HTTP_PORT: u16 = 7401;
const BINLOG_PORT: u16 = 7402;

/// One member of it.
#[derive(Clone, Debug)]
pub struct FarMember {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub region: String,
    /// Whether it is a database member.
    pub database: bool,
    /// What it runs.
    pub program: PathBuf,
    /// What stands beside it, where its own file has to say so.
    pub beside: Option<Beside>,
    /// Whether its mysqld applies by its own replica threads, from its binlog server.
    pub native: bool,
}

/// How such a ring is made.
#[derive(Clone, Debug)]
pub struct FarRingOptions {
    /// Its members.
    pub members: Vec<FarMember>,
    /// One way, within a region.
    pub inside: Duration,
    /// One way, between regions.
    pub across: Duration,
    /// Further TOML of every member's file, whole sections.
    pub toml: String,
    /// Further lines of the section `[mysql]`, of those who have one.
    pub mysql: Vec<String>,
    /// Where the members' folders go and stay; `None`: a temporary folder.
    pub folder: Option<PathBuf>,
}

/// A ring over a network with distance. Dropping it kills the processes that it started.
#[derive(Debug)]
pub struct FarRing {
    options: FarRingOptions,
    members: Vec<MemberProcess>,
    /// The members' numbers in the ring.
    ids: Vec<u64>,
    network: DistanceNetwork,
    folder: PathBuf,
    home: Option<TempDir>,
}

impl FarRing {
    /// Makes the network and writes the members' configuration files. No process runs yet.
    ///
    /// # Errors
    /// When the network cannot be made here, or a file cannot be written.
    pub fn prepare(options: FarRingOptions) -> Result<Self> {
        let network = DistanceNetwork::build(options.members.len())?;
        let regions: Vec<&str> = options
            .members
            .iter()
            .map(|member| member.region.as_str())
            .collect();
        network.set_distances(&regions, options.inside, options.across);
        let (folder, home) = match &options.folder {
            Some(folder) => (folder.clone(), None),
            None => {
                let home = tempfile::Builder::new()
                    .prefix("far-ring-")
                    .tempdir()
                    .context("cannot make a folder for the ring")?;
                (home.path().to_owned(), Some(home))
            }
        };
        let mut ring = Self {
            members: Vec::new(),
            ids: (1..).take(options.members.len()).collect(),
            options,
            network,
            folder,
            home,
        };
        for index in 0..ring.size() {
            let process = ring.process_of(index)?;
            ring.members.push(process);
        }
        ring.write_configs()?;
        Ok(ring)
    }

    /// Puts a new member, which has a number and a name that the ring never had, at the place of one whose process has ended.
    /// All members' configuration files name it instead of the old one; the old one's folder stays.
    ///
    /// # Errors
    /// When the old one still runs, or a file cannot be written.
    pub fn replace(&mut self, index: usize) -> Result<()> {
        let old = &self.members[index];
        ensure!(
            old.process_id().is_none(),
            "member {} still runs",
            self.options.members[index].name
        );
        let id = self.ids.iter().max().map_or(1, |highest| highest + 1);
        self.ids[index] = id;
        let member = &mut self.options.members[index];
        member.name = format!("{}-{id}", if member.database { "db" } else { "witness" });
        self.members[index] = self.process_of(index)?;
        self.write_configs()
    }

    fn process_of(&self, index: usize) -> Result<MemberProcess> {
        let name = &self.options.members[index].name;
        let directory = self.folder.join(name);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let config = directory.join("witness.toml");
        let http = self.address(index, HTTP_PORT);
        Ok(MemberProcess::new(name.clone(), directory, config, http))
    }

    fn write_configs(&self) -> Result<()> {
        for index in 0..self.size() {
            let config = self.members[index].config();
            std::fs::write(config, self.toml(index))
                .with_context(|| format!("cannot write {}", config.display()))?;
        }
        Ok(())
    }

    fn address(&self, index: usize, port: u16) -> SocketAddr {
        SocketAddr::from((self.network.address(Place::member(index)), port))
    }

    fn toml(&self, own: usize) -> String {
        let (id, http) = (self.ids[own], self.address(own, HTTP_PORT));
        let directory = self.members[own].directory();
        let mut text = format!(
            "data_dir = {directory:?}\n\n[ring]\nname = \"far\"\n\n[member]\nid = {id}\n\n\
             [http]\nlisten = \"{http}\"\n\n[logging]\nformat = \"json\"\n\n{}\n",
            self.options.toml
        );
        let member = &self.options.members[own];
        if let Some(beside) = &member.beside {
            let mut lines = beside.toml_lines();
            lines.extend(self.options.mysql.iter().cloned());
            if member.native {
                lines.push("apply = \"native\"".to_owned());
            }
            let _ = writeln!(text, "[mysql]\n{}\n", lines.join("\n"));
        }
        if member.native {
            let _ = writeln!(
                text,
                "[binlog_server]\nlisten = \"{}\"\nuser = {BINLOG_USER:?}\npassword = {BINLOG_PASSWORD:?}\n",
                self.address(own, BINLOG_PORT)
            );
        }
        for (index, member) in self.options.members.iter().enumerate() {
            let kind = match member.database {
                true => "database",
                false => "witness",
            };
            let _ = writeln!(
                text,
                "[[members]]\nid = {}\nname = {:?}\nregion = {:?}\nkind = \"{kind}\"\naddress = \"{}\"\n",
                self.ids[index],
                member.name,
                member.region,
                self.address(index, RAFT_PORT)
            );
        }
        text
    }

    /// How many members it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.options.members.len()
    }

    /// A member's number in the ring.
    #[must_use]
    pub fn id(&self, index: usize) -> u64 {
        self.ids[index]
    }

    /// Where the other members reach a member.
    #[must_use]
    pub fn raft_address(&self, index: usize) -> SocketAddr {
        self.address(index, RAFT_PORT)
    }

    /// Where a member answers HTTP.
    #[must_use]
    pub fn http(&self, index: usize) -> SocketAddr {
        self.members[index].http()
    }

    /// A member's process id, if it was started and not seen to end.
    #[must_use]
    pub fn process_id(&self, index: usize) -> Option<u32> {
        self.members[index].process_id()
    }

    /// The binlog files of a member.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log_files(&self, index: usize) -> Result<LogFiles> {
        LogFiles::read(&self.members[index].directory().join("log"))
    }

    /// Waits for a member that ends by itself.
    ///
    /// # Errors
    /// When it does not run, or goes on running.
    pub fn wait_for_exit(&mut self, index: usize, limit: Duration) -> Result<ExitStatus> {
        self.members[index].wait_for_exit(limit)
    }

    /// What a member is.
    #[must_use]
    pub fn member(&self, index: usize) -> &FarMember {
        &self.options.members[index]
    }

    /// The network between the members.
    #[must_use]
    pub fn network(&self) -> &DistanceNetwork {
        &self.network
    }

    /// Starts a member's process at its place, with further arguments.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start(&mut self, index: usize, arguments: &[&str]) -> Result<()> {
        let program = &self.options.members[index].program;
        let wrapper = self.network.wrapper(index);
        self.members[index].start(&wrapper, program, arguments)
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.members[index].kill()
    }

    /// SIGTERM, and its exit status.
    ///
    /// # Errors
    /// When it does not run, or does not end within half a minute.
    pub fn stop(&mut self, index: usize) -> Result<ExitStatus> {
        self.members[index].stop()
    }

    /// Sends a member's process a signal.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, index: usize, signal: Signal) -> Result<()> {
        let pid = self.members[index].process_id();
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let name = &self.options.members[index].name;
        let pid = pid.with_context(|| format!("member {name} does not run"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// A GET request to a member, over the harness's own way.
    ///
    /// # Errors
    /// When the member does not answer.
    pub fn get(&self, index: usize, path: &str) -> Result<HttpAnswer> {
        http_get(self.members[index].http(), path)
    }

    /// A member's data directory.
    #[must_use]
    pub fn directory(&self, index: usize) -> &Path {
        self.members[index].directory()
    }

    /// A member's configuration file.
    #[must_use]
    pub fn config(&self, index: usize) -> &Path {
        self.members[index].config()
    }

    /// What a member wrote to standard error in all its lives.
    #[must_use]
    pub fn output(&self, index: usize) -> String {
        self.members[index].output()
    }

    /// A sentence, if a member's process has ended without being asked to.
    pub fn ended(&mut self) -> Option<String> {
        self.members.iter_mut().find_map(MemberProcess::ended)
    }

    /// The members' last log lines.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.members.iter().map(MemberProcess::last_words).collect()
    }

    /// Keeps the members' folders after the end, and says where they are.
    pub fn keep_folder(&mut self) -> &Path {
        if let Some(home) = &mut self.home {
            home.disable_cleanup(true);
        }
        &self.folder
    }
}

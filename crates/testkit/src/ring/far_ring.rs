//! A ring of member processes in several regions, each at a place of its own of a [`DistanceNetwork`]. Which program a member
//! runs is its own: `witness`, or one that takes `run --config FILE` as it does.
//!
//! Members are numbered from 0 in the order in which they are given. Dropping the ring kills the processes that it started.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::http::{HttpAnswer, http_get};
use super::member_process::MemberProcess;
use crate::distance::{DistanceNetwork, Place};

const RAFT_PORT: u16 = 7400;
const HTTP_PORT: u16 = 7401;

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
}

/// See the module.
#[derive(Debug)]
pub struct FarRing {
    options: FarRingOptions,
    members: Vec<MemberProcess>,
    network: DistanceNetwork,
    folder: TempDir,
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
        let folder = tempfile::Builder::new()
            .prefix("far-ring-")
            .tempdir()
            .context("cannot make a folder for the ring")?;
        let address =
            |index: usize, port| SocketAddr::from((network.address(Place::member(index)), port));
        let members = (0..options.members.len()).map(|index| {
            let name = &options.members[index].name;
            let directory = folder.path().join(name);
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            let config = directory.join("witness.toml");
            let text = toml(&options, index, &directory, &address);
            std::fs::write(&config, text)
                .with_context(|| format!("cannot write {}", config.display()))?;
            let http = address(index, HTTP_PORT);
            Ok(MemberProcess::new(name.clone(), directory, config, http))
        });
        Ok(Self {
            members: members.collect::<Result<_>>()?,
            options,
            network,
            folder,
        })
    }

    /// How many members it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
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
        self.folder.disable_cleanup(true);
        self.folder.path()
    }
}

fn toml(
    options: &FarRingOptions,
    own: usize,
    directory: &Path,
    address: &impl Fn(usize, u16) -> SocketAddr,
) -> String {
    let (id, http) = (own + 1, address(own, HTTP_PORT));
    let mut text = format!(
        "data_dir = {directory:?}\n\n[ring]\nname = \"far\"\n\n[member]\nid = {id}\n\n\
         [http]\nlisten = \"{http}\"\n\n[logging]\nformat = \"json\"\n\n{}\n",
        options.toml
    );
    for (index, member) in options.members.iter().enumerate() {
        let kind = if member.database {
            "database"
        } else {
            "witness"
        };
        let _ = writeln!(
            text,
            "[[members]]\nid = {}\nname = {:?}\nregion = {:?}\nkind = \"{kind}\"\naddress = \"{}\"\n",
            index + 1,
            member.name,
            member.region,
            address(index, RAFT_PORT)
        );
    }
    text
}

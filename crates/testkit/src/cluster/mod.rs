//! A ring of real `witness run` processes with their mysqlds. Tests of the whole system and the nemesis inject faults into it, and
//! comparisons measure it. The demonstration also uses it.
//!
//! Members are numbered from 0, in the order of the options. Dropping a cluster kills the processes that it started and no others.

mod child_server;
pub mod haproxy;
mod http;
mod log_files;
mod member_process;
mod observed;
mod options;
mod programs;
pub mod prometheus;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::bounded_run;
use crate::bounded_run::Finished;
pub use crate::cluster::child_server::ChildServer;
pub use crate::cluster::http::{
    HttpAnswer, http_get, http_get_within, http_head, http_options, http_order, http_post,
};
pub use crate::cluster::log_files::LogFiles;
use crate::cluster::member_process::MemberProcess;
pub use crate::cluster::observed::Level;
pub use crate::cluster::options::{
    BINLOG_PASSWORD, BINLOG_USER, ClusterOptions, MemberDatabase, MemberOptions,
};
pub use crate::cluster::programs::{
    BUILT_VARIABLE, Profile, embedded_member, nemesis_binary, primary_clients, program,
    simulator_binary, witness_binary,
};
use crate::distance::{DistanceNetwork, Links, Place};
use crate::mysqld::MysqlClient;
use crate::ports::free_addresses;
use crate::wait::try_eventually;

/// Time limit for a ring's first commit on a loaded machine.
const READY_LIMIT: Duration = Duration::from_secs(90);
const COMMAND_LIMIT: Duration = Duration::from_secs(90);
/// The clients' account. It may not write to a server with `read_only`.
pub const CLIENT: &str = "app";
/// The password of this account.
pub const CLIENT_PASSWORD: &str = "app-password";

/// A ring of real processes: see the module.
#[derive(Debug)]
pub struct Cluster {
    witness: PathBuf,
    /// The programs of members that run another build.
    other_builds: BTreeMap<usize, PathBuf>,
    // Fields are dropped in this order. Members are dropped before their mysqlds, which they would restart, and before their network and
    // folders.
    members: Vec<MemberProcess>,
    options: ClusterOptions,
    /// The members' ids in the ring.
    ids: Vec<u64>,
    places: Places,
    folder: PathBuf,
    home: Option<TempDir>,
}

/// The addresses on which members listen.
#[derive(Debug)]
enum Places {
    /// On loopback, three ports for each member.
    Loopback(Vec<SocketAddr>),
    /// An address for each member.
    Distant(DistanceNetwork),
}

/// The services for which a member listens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Port {
    Raft,
    Http,
    Binlog,
}

const PORTS: usize = 3;
const FIRST_PORT: u16 = 7400;

impl Cluster {
    /// Creates the network and writes the members' configuration files. Starts no process. `witness` is the program that members run.
    ///
    /// # Errors
    /// If the network cannot be created, no port is free, or a file cannot be written.
    pub fn prepare(witness: &Path, options: ClusterOptions) -> Result<Self> {
        let size = options.members.len();
        let places = match options.distance {
            None => Places::Loopback(free_addresses(PORTS * size)?),
            Some((inside, across)) => {
                let network = DistanceNetwork::build(size)?;
                let regions = options.members.iter().map(|member| &member.region);
                network.set_distances(&regions.collect::<Vec<_>>(), inside, across);
                Places::Distant(network)
            }
        };
        let (folder, home) = match &options.folder {
            Some(folder) => (folder.clone(), None),
            None => {
                let home = tempfile::Builder::new()
                    .prefix("ring-")
                    .tempdir()
                    .context("cannot make a folder for the ring")?;
                (home.path().to_owned(), Some(home))
            }
        };
        let mut cluster = Self {
            witness: witness.to_owned(),
            other_builds: BTreeMap::new(),
            members: Vec::new(),
            ids: (1..).take(size).collect(),
            options,
            places,
            folder,
            home,
        };
        for index in 0..size {
            cluster.members.push(cluster.process_of(index)?);
        }
        cluster.write_configs()?;
        Ok(cluster)
    }

    /// Starts a ring, and waits until it is bootstrapped and has a writable primary.
    ///
    /// # Errors
    /// If the ring is not ready in time; the message contains the members' last log lines.
    pub fn launch(witness: &Path, options: ClusterOptions) -> Result<Self> {
        let mut cluster = Self::prepare(witness, options)?;
        cluster.bootstrap()?;
        cluster.wait_until_primary(READY_LIMIT)?;
        Ok(cluster)
    }

    /// Starts all members; member 0 bootstraps the ring.
    ///
    /// # Errors
    /// If a member is running already, or cannot be started.
    pub fn bootstrap(&mut self) -> Result<()> {
        (1..self.size())
            .rev()
            .try_for_each(|index| self.start(index))?;
        self.start_with(0, &["--bootstrap"])
    }

    fn process_of(&self, index: usize) -> Result<MemberProcess> {
        MemberProcess::new(self.name(index), &self.folder)
    }

    /// Adds a member on loopback and returns its index. Configuration files contain the member after [`Self::write_configs`].
    ///
    /// # Errors
    /// If the other members are at a distance, no port is free, or the member's folder cannot be created.
    pub fn add(&mut self, member: MemberOptions) -> Result<usize> {
        let Places::Loopback(addresses) = &mut self.places else {
            bail!("a network with distance has as many places as it was made with");
        };
        addresses.extend(free_addresses(PORTS)?);
        let index = self.size();
        self.ids.push(index as u64 + 1);
        self.options.members.push(member);
        self.members.push(self.process_of(index)?);
        Ok(index)
    }

    /// Writes all members' configuration files again.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_configs(&self) -> Result<()> {
        for (index, member) in self.members.iter().enumerate() {
            let config = member.config();
            std::fs::write(config, self.toml(index, member.directory()))
                .with_context(|| format!("cannot write {}", config.display()))?;
        }
        Ok(())
    }

    /// Replaces a witness, after its process has ended, by one with a new id and name. All members' configuration files then contain
    /// the new witness instead of the old one. The folder of the old witness is kept.
    ///
    /// # Errors
    /// If the old process still runs, or a file cannot be written.
    pub fn replace_witness(&mut self, index: usize) -> Result<()> {
        let runs = self.process_id(index).is_some();
        ensure!(!runs, "member {} still runs", self.name(index));
        let id = self.ids.iter().max().map_or(1, |highest| highest + 1);
        self.ids[index] = id;
        self.options.members[index].name = format!("witness-{id}");
        self.members[index] = self.process_of(index)?;
        self.write_configs()
    }

    fn address(&self, index: usize, port: Port) -> SocketAddr {
        match &self.places {
            Places::Loopback(addresses) => addresses[PORTS * index + port as usize],
            Places::Distant(network) => {
                let address = network.address(Place::member(index));
                SocketAddr::from((address, FIRST_PORT + port as u16))
            }
        }
    }

    /// Returns the number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.options.members.len()
    }

    /// Returns a member's id in the ring.
    #[must_use]
    pub fn id(&self, index: usize) -> u64 {
        self.ids[index]
    }

    /// Returns a member's name.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        &self.options.members[index].name
    }

    /// Returns a member's region.
    #[must_use]
    pub fn region(&self, index: usize) -> &str {
        &self.options.members[index].region
    }

    /// Returns the members of a member's region, including the member itself.
    #[must_use]
    pub fn neighbours(&self, index: usize) -> Vec<usize> {
        let near = |other: &usize| self.region(*other) == self.region(index);
        (0..self.size()).filter(near).collect()
    }

    /// Returns the indexes of the database members.
    #[must_use]
    pub fn databases(&self) -> Vec<usize> {
        let members = self.options.members.iter().enumerate();
        let databases = members.filter(|(_, member)| member.is_database());
        databases.map(|(index, _)| index).collect()
    }

    /// Returns a member's Raft address.
    #[must_use]
    pub fn raft_address(&self, index: usize) -> SocketAddr {
        self.address(index, Port::Raft)
    }

    /// Returns a member's HTTP address.
    #[must_use]
    pub fn http(&self, index: usize) -> SocketAddr {
        self.address(index, Port::Http)
    }

    /// Returns the address of a member's binlog server, if it has one.
    #[must_use]
    pub fn binlog_server(&self, index: usize) -> SocketAddr {
        self.address(index, Port::Binlog)
    }

    /// Reads or changes the links between distant members.
    ///
    /// # Panics
    /// If the members are on loopback.
    pub fn links<T>(&self, use_them: impl FnOnce(&mut Links) -> T) -> T {
        match &self.places {
            Places::Distant(network) => network.links(use_them),
            Places::Loopback(_) => panic!("members on loopback have no links"),
        }
    }

    /// Sets the build that a member runs from its next start on; `None`: the ring's build.
    pub fn run_other_build(&mut self, index: usize, build: Option<PathBuf>) {
        match build {
            Some(build) => drop(self.other_builds.insert(index, build)),
            None => drop(self.other_builds.remove(&index)),
        }
    }

    /// Whether a member runs another build from its next start on.
    #[must_use]
    pub fn runs_other_build(&self, index: usize) -> bool {
        self.other_builds.contains_key(&index)
    }

    /// Starts a member's process.
    ///
    /// # Errors
    /// If the member is running already, or cannot be started.
    pub fn start(&mut self, index: usize) -> Result<()> {
        self.start_with(index, &[])
    }

    /// Starts a member's process with further arguments.
    ///
    /// # Errors
    /// If the member is running already, or cannot be started.
    pub fn start_with(&mut self, index: usize, arguments: &[&str]) -> Result<()> {
        self.start_through(index, &[], arguments)
    }

    /// Starts a member's process through another program, whose last arguments are `witness run …`.
    ///
    /// # Errors
    /// If the member is running already, or cannot be started.
    pub fn start_wrapped(&mut self, index: usize, wrapper: &[&str]) -> Result<()> {
        self.start_through(index, wrapper, &[])
    }

    fn start_through(&mut self, index: usize, wrapper: &[&str], arguments: &[&str]) -> Result<()> {
        let program = match &self.options.members[index].database {
            MemberDatabase::Embedded { program } => program,
            _ => self.other_builds.get(&index).unwrap_or(&self.witness),
        };
        let mut words: Vec<&str> = match &self.places {
            Places::Distant(network) => network.wrapper(index).into(),
            Places::Loopback(_) => Vec::new(),
        };
        words.extend(wrapper);
        self.members[index].start(&words, program, arguments)
    }

    /// Kills a member's process with SIGKILL.
    ///
    /// # Errors
    /// If the member is not running.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.members[index].kill()
    }

    /// Stops a member's process with SIGTERM, and returns its exit status.
    ///
    /// # Errors
    /// If the member is not running, or does not end within half a minute.
    pub fn stop(&mut self, index: usize) -> Result<ExitStatus> {
        self.members[index].stop()
    }

    /// Sends a signal to a member's process.
    ///
    /// # Errors
    /// If the member is not running.
    pub fn signal(&self, index: usize, signal: Signal) -> Result<()> {
        self.members[index].signal(signal)
    }

    /// Waits for the end of a member that ends without a signal.
    ///
    /// # Errors
    /// If the member is not running, or does not end within the limit.
    pub fn wait_for_exit(&mut self, index: usize, limit: Duration) -> Result<ExitStatus> {
        self.members[index].wait_for_exit(limit)
    }

    /// Fails if a member has ended unexpectedly.
    ///
    /// # Errors
    /// If a member has ended; with its name and exit status.
    pub fn look_after(&mut self) -> Result<()> {
        match self.members.iter_mut().find_map(MemberProcess::ended) {
            Some(ended) => bail!("{ended}"),
            None => Ok(()),
        }
    }

    /// Returns a member's process id, if it was started and its end was not observed yet.
    #[must_use]
    pub fn process_id(&self, index: usize) -> Option<u32> {
        self.members[index].process_id()
    }

    /// Returns the mysqld that a database member starts.
    ///
    /// # Panics
    /// If the member does not start a mysqld.
    #[must_use]
    pub fn server(&self, index: usize) -> &ChildServer {
        match &self.options.members[index].database {
            MemberDatabase::Child(server) => server,
            _ => panic!("{} starts no mysqld", self.name(index)),
        }
    }

    /// Returns the administrator's client for a database member's mysqld.
    ///
    /// # Panics
    /// As [`Cluster::server`].
    #[must_use]
    pub fn client(&self, index: usize) -> MysqlClient {
        self.server(index).client()
    }

    /// Returns the members that start a mysqld.
    #[must_use]
    pub fn with_a_server(&self) -> Vec<usize> {
        let members = self.options.members.iter().enumerate();
        let with =
            members.filter(|(_, member)| matches!(member.database, MemberDatabase::Child(_)));
        with.map(|(index, _)| index).collect()
    }

    /// Kills a database member and its mysqld, as when a host fails.
    ///
    /// # Errors
    /// If the member is not running.
    pub fn kill_host(&mut self, index: usize) -> Result<()> {
        // The member is killed first, because it would restart its mysqld.
        self.kill(index)?;
        match &self.options.members[index].database {
            MemberDatabase::Child(server) => server.kill(),
            _ => Ok(()),
        }
    }

    /// Creates the clients' account through the primary, and runs further statements.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn create_client(&self, primary: usize, further: &str) -> Result<()> {
        let made = self.client(primary).sql(&format!(
            "CREATE USER {CLIENT} IDENTIFIED BY '{CLIENT_PASSWORD}'; GRANT ALL ON *.* TO {CLIENT}; \
             REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM {CLIENT}; {further}"
        ));
        made.with_context(|| self.words()).map(drop)
    }

    /// Runs a `witness` command to its end.
    ///
    /// # Errors
    /// If the command does not end in time. If the command itself fails, that is in the result.
    pub fn cli(&self, arguments: &[&str]) -> Result<Finished> {
        self.cli_within(arguments, COMMAND_LIMIT)
    }

    /// As [`Self::cli`], with another limit.
    ///
    /// # Errors
    /// If the command does not end in time.
    pub fn cli_within(&self, arguments: &[&str], limit: Duration) -> Result<Finished> {
        let mut command = Command::new(&self.witness);
        command.args(arguments);
        let what = format!("witness {}", arguments.join(" "));
        bounded_run::run(what, command, Vec::new(), limit)
    }

    /// As [`Self::cli`], with a member's configuration.
    ///
    /// # Errors
    /// If the command does not end in time.
    pub fn cli_of(&self, index: usize, arguments: &[&str]) -> Result<Finished> {
        let config = self.config(index).display().to_string();
        self.cli(&[arguments, &["--config", &config]].concat())
    }

    /// Returns a member's data directory.
    #[must_use]
    pub fn directory(&self, index: usize) -> &Path {
        self.members[index].directory()
    }

    /// Returns the path of a member's configuration file.
    #[must_use]
    pub fn config(&self, index: usize) -> &Path {
        self.members[index].config()
    }

    /// Reads the binlog files of a member.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn log_files(&self, index: usize) -> Result<LogFiles> {
        LogFiles::read(&self.directory(index).join("log"))
    }

    /// Returns a member's standard error since its first start.
    #[must_use]
    pub fn output(&self, index: usize) -> String {
        self.members[index].output()
    }

    /// Returns the members' last log lines.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.members.iter().map(MemberProcess::last_words).collect()
    }

    /// Keeps the members' folders after the cluster is dropped, and returns their location.
    pub fn keep_folder(&mut self) -> &Path {
        if let Some(home) = &mut self.home {
            home.disable_cleanup(true);
        }
        &self.folder
    }

    /// Waits until `condition` holds. If a member ends before that, the error is immediate.
    ///
    /// # Errors
    /// If the limit passes; the message contains the members' last log lines.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let waited = try_eventually(what, limit, || {
            let holds = condition(self)?;
            if !holds {
                self.look_after()
                    .with_context(|| format!("while waiting until {what}"))?;
            }
            Ok(holds)
        });
        waited.with_context(|| self.last_words())
    }
}

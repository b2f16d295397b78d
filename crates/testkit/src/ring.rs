//! A ring of real `witness run` processes around one mysqld: what the whole-system tests kill, and what the comparisons
//! measure.
//!
//! Members are numbered from 0 here; member 0 is the database member. Dropping the ring kills the processes that it
//! started and no other.

mod far_ring;
mod http;
mod log_files;
mod member_process;
mod options;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::bounded_run;
use crate::bounded_run::Finished;
use crate::ports::free_addresses;
pub use crate::ring::far_ring::{FarMember, FarRing, FarRingOptions};
pub use crate::ring::http::{
    HttpAnswer, http_get, http_get_within, http_head, http_order, http_post,
};
pub use crate::ring::log_files::{FirstDifference, LogFiles};
use crate::ring::member_process::MemberProcess;
pub use crate::ring::member_process::{
    BUILT_VARIABLE, ChildServer, Profile, embedded_member, nemesis_binary, primary_clients,
    witness_binary,
};
pub use crate::ring::options::{BINLOG_PASSWORD, BINLOG_USER, Beside, RingOptions};
use crate::wait::{Patience, eventually, try_eventually};

/// How long a ring may take to its first commit on a loaded machine.
const READY_LIMIT: Duration = Duration::from_secs(60);
const CLI_LIMIT: Duration = Duration::from_secs(60);

/// The processes of one ring, with their folders.
#[derive(Debug)]
pub struct ProcessRing {
    binary: PathBuf,
    members: Vec<MemberProcess>,
    binlog_servers: Vec<SocketAddr>,
    /// Last, so that the folder outlives the processes.
    _home: Option<TempDir>,
}

impl ProcessRing {
    /// Writes the members' configuration files. No process runs yet.
    ///
    /// # Errors
    /// When a file cannot be written or no port is free.
    pub fn prepare(binary: &Path, options: &RingOptions) -> Result<Self> {
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
        let names = options.names();
        let addresses = free_addresses(3 * names.len())?;
        let places: Vec<options::Place> = names
            .into_iter()
            .zip(addresses.chunks(3))
            .enumerate()
            .map(|(index, (name, own))| options::Place {
                index,
                name,
                raft: own[0],
                http: own[1],
                binlog: own[2],
            })
            .collect();
        let members = places
            .iter()
            .map(|place| {
                let directory = folder.join(&place.name);
                std::fs::create_dir_all(&directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
                let config = directory.join("witness.toml");
                std::fs::write(&config, options.toml(place, &places, &directory))
                    .with_context(|| format!("cannot write {}", config.display()))?;
                Ok(MemberProcess::new(
                    place.name.clone(),
                    directory,
                    config,
                    place.http,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            binary: binary.to_owned(),
            members,
            binlog_servers: places.iter().map(|place| place.binlog).collect(),
            _home: home,
        })
    }

    /// A ring that is bootstrapped and whose primary takes writes.
    ///
    /// # Errors
    /// When it is not ready within a minute; the message holds the members' last log lines.
    pub fn launch(binary: &Path, options: &RingOptions) -> Result<Self> {
        let mut ring = Self::prepare(binary, options)?;
        for index in 1..ring.members.len() {
            ring.start(index)?;
        }
        ring.start_with(0, &["--bootstrap"])?;
        ring.wait_until_primary(READY_LIMIT)?;
        Ok(ring)
    }

    /// How many members it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Where a member's binlog server listens, if the ring was made with those.
    #[must_use]
    pub fn binlog_server(&self, index: usize) -> SocketAddr {
        self.binlog_servers[index]
    }

    /// Starts a member's process.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start(&mut self, index: usize) -> Result<()> {
        self.start_with(index, &[])
    }

    /// Starts a member's process with further arguments.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start_with(&mut self, index: usize, arguments: &[&str]) -> Result<()> {
        self.members[index].start(&[], &self.binary, arguments)
    }

    /// Starts a member's process through another program, which gets `witness run …` as its last arguments.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start_wrapped(&mut self, index: usize, wrapper: &[&str]) -> Result<()> {
        self.members[index].start(wrapper, &self.binary, &[])
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

    /// Waits for a member that ends by itself.
    ///
    /// # Errors
    /// When it does not run, or goes on running.
    pub fn wait_for_exit(&mut self, index: usize, limit: Duration) -> Result<ExitStatus> {
        self.members[index].wait_for_exit(limit)
    }

    /// A member's process id, if it runs.
    #[must_use]
    pub fn process_id(&self, index: usize) -> Option<u32> {
        self.members[index].process_id()
    }

    /// What a member wrote to standard error in all its lives.
    #[must_use]
    pub fn output(&self, index: usize) -> String {
        self.members[index].output()
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

    /// Where a member answers HTTP.
    #[must_use]
    pub fn http(&self, index: usize) -> SocketAddr {
        self.members[index].http()
    }

    /// A GET request to a member.
    ///
    /// # Errors
    /// When the member does not answer.
    pub fn get(&self, index: usize, path: &str) -> Result<HttpAnswer> {
        http_get(self.members[index].http(), path)
    }

    /// The binlog files of a member.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log_files(&self, index: usize) -> Result<LogFiles> {
        LogFiles::read(&self.members[index].directory().join("log"))
    }

    /// Runs the `witness` command line to its end.
    ///
    /// # Errors
    /// When it does not end within a minute; its own failure is in the result.
    pub fn cli(&self, arguments: &[&str]) -> Result<Finished> {
        self.cli_within(arguments, CLI_LIMIT)
    }

    /// The same for one that may take longer.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn cli_within(&self, arguments: &[&str], limit: Duration) -> Result<Finished> {
        let mut command = Command::new(&self.binary);
        command.args(arguments);
        bounded_run::run(
            format!("witness {}", arguments.join(" ")),
            command,
            Vec::new(),
            limit,
        )
    }

    /// Waits until the member beside the primary says that the primary takes writes.
    ///
    /// # Errors
    /// When it does not; the message holds the members' last log lines.
    pub fn wait_until_primary(&mut self, limit: Duration) -> Result<()> {
        self.wait_until("the primary takes writes", limit, |ring| {
            Ok(ring
                .get(0, "/primary")
                .is_ok_and(|answer| answer.status == 200))
        })
    }

    /// Waits until every member's files are the same bytes and have stopped growing.
    ///
    /// # Errors
    /// With the first difference, when that does not come about.
    pub fn wait_until_equal(&mut self, limit: Duration) -> Result<LogFiles> {
        let mut before: Option<LogFiles> = None;
        let patience = Patience::every(Duration::from_millis(200), limit);
        let waited = eventually("all members have the same files", patience, || {
            let first = self.log_files(0)?;
            for index in 1..self.size() {
                if let Some(found) = first.first_difference(&self.log_files(index)?) {
                    bail!("members 0 and {index} differ: {found}");
                }
            }
            if before.as_ref() == Some(&first) {
                return Ok(first);
            }
            before = Some(first);
            bail!("the log still grows")
        });
        waited.with_context(|| self.last_words())
    }

    /// Waits until `condition` holds. A member that ends meanwhile is an error at once.
    ///
    /// # Errors
    /// When the limit passes; the message holds the members' last log lines.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let waited = try_eventually(what, limit, || {
            if condition(self)? {
                return Ok(true);
            }
            match self.members.iter_mut().find_map(MemberProcess::ended) {
                Some(ended) => bail!("{ended} while waiting until {what}"),
                None => Ok(false),
            }
        });
        waited.with_context(|| self.last_words())
    }

    fn last_words(&self) -> String {
        self.members.iter().map(MemberProcess::last_words).collect()
    }
}

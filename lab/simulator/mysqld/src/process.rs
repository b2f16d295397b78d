//! The handle of a server, and the lifecycle of its process.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use tokio::sync::watch;

use crate::binlog::{self, Binlog, Identity};
use crate::commits::Commits;
use crate::engine::Engine;
use crate::lists::Lists;
use crate::options::MysqldOptions;
use crate::replica::Receiver;
use crate::server::{Running, Server};
use crate::variables::{CommandLine, Variables};

/// A simulated server. Clones share one server.
#[derive(Debug, Clone)]
pub struct Mysqld {
    server: Arc<Mutex<Server>>,
    /// The version of the server's state. Waiting tasks check the state again when the version changes.
    changed: watch::Sender<u64>,
}

/// The data lost in a power cut. Only data that is not synced can be lost. With `sync_binlog = 1`, that is no part of the binlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostTail {
    /// Maximum number of bytes lost at the end of the binlog.
    pub binlog_bytes: u64,
    /// Maximum number of the engine's last commits that become prepared transactions again. Only commits since the last sync of the redo
    /// log count.
    pub engine_commits: usize,
}

/// The shortest wait. The server's clock and the runtime's clock may round differently, so that a shorter wait could repeat without
/// progress.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Mysqld {
    /// Creates a server that is not running yet, and its data directory if that is missing.
    ///
    /// # Errors
    /// A message, if the directory cannot be created.
    pub fn new(options: MysqldOptions) -> Result<Self, String> {
        let folder = &options.data_dir;
        let made = || {
            fs::create_dir_all(folder)?;
            let uuid = options.server_uuid;
            fs::write(
                folder.join("auto.cnf"),
                format!("[auto]\nserver-uuid={uuid}\n"),
            )?;
            fs::write(folder.join("ibdata1"), "")
        };
        made().map_err(|error| format!("{}: {error}", folder.display()))?;
        let server = Server {
            accounts: options.accounts.clone(),
            options,
            engine: Engine::default(),
            clone_plugin: false,
            copy_report: None,
            lent: Arc::default(),
            arrived: None,
            persisted: BTreeMap::new(),
            channel: None,
            unknown: Vec::new(),
            paused: false,
            frozen: false,
            running: None,
            parting: BTreeMap::new(),
            version: 0,
            starts: 0,
        };
        Ok(Self {
            server: Arc::new(Mutex::new(server)),
            changed: watch::Sender::new(0),
        })
    }

    /// Starts the server with these command line arguments: runs recovery, and begins a binlog file.
    ///
    /// # Errors
    /// A message, if the server is already running or cannot read its files.
    pub fn start(&self, words: &[String]) -> Result<(), String> {
        self.act(|server| server.start(words))
    }

    /// Simulates SIGKILL: the process ends immediately. Waiting commits are in the binlog and not in the engine.
    pub fn kill(&self) {
        self.act(Server::die);
    }

    /// Simulates SIGTERM: the server accepts no more clients and ends later; see [`Self::is_running`].
    pub fn terminate(&self) {
        self.act(Server::begin_stop);
    }

    /// Simulates a power loss of the host: the process ends, and data that is not synced may be lost.
    ///
    /// # Errors
    /// A message, if the binlog file cannot be truncated.
    pub fn cut_power(&self, lost: LostTail) -> Result<(), String> {
        self.act(|server| {
            let cut = match &server.running {
                Some(running) => running.binlog.lose(lost.binlog_bytes),
                None => Ok(()),
            };
            server.engine.lose_commits(lost.engine_commits);
            server.die();
            cut.map_err(|error| error.to_string())
        })
    }

    /// Simulates SIGSTOP: connections stay open and get no answers.
    pub fn pause(&self) {
        self.act(|server| {
            server.paused = server.running.is_some();
            server.changed();
        });
    }

    /// Simulates SIGCONT.
    pub fn resume(&self) {
        self.act(|server| {
            server.paused = false;
            server.changed();
        });
    }

    /// Freezes or unfreezes the data directory, like a frozen or full file system. While it is frozen, commits wait and reads continue.
    pub fn freeze_disk(&self, frozen: bool) {
        self.act(|server| {
            server.frozen = frozen;
            server.changed();
        });
    }

    /// Returns whether the server's process exists.
    pub fn is_running(&self) -> bool {
        self.runs(|_| true)
    }

    /// Returns whether the server accepts connections. A stopping server does not.
    pub fn listens(&self) -> bool {
        self.act(|server| server.listens())
    }

    /// The number of starts of the server.
    pub fn starts(&self) -> u64 {
        self.act(|server| server.starts)
    }

    /// Returns whether ordinary accounts may write and the server is not paused.
    pub fn takes_writes(&self) -> bool {
        self.act(|server| {
            let open = |running: &Running| !running.read_only && running.stopping.is_none();
            !server.paused && server.running.as_ref().is_some_and(open)
        })
    }

    /// Returns whether ordinary accounts may write, even if the server is paused or stopping.
    pub fn is_open(&self) -> bool {
        self.runs(|running| !running.read_only)
    }

    /// Returns the committed lists.
    pub fn lists(&self) -> Lists {
        self.act(|server| server.engine.lists())
    }

    /// Returns `@@gtid_executed`. For a stopped server, returns the engine's GTIDs.
    pub fn gtid_executed(&self) -> GtidSet {
        self.act(|server| match &server.running {
            Some(running) => running.executed.clone(),
            None => server.engine.executed.clone(),
        })
    }

    /// Returns statements and arguments that the model does not know, verbatim.
    pub fn unknown_statements(&self) -> Vec<String> {
        self.act(|server| server.unknown.clone())
    }

    /// Returns whether a clone has removed the rows and no clone has completed since.
    pub fn lacks_its_data(&self) -> bool {
        self.act(|server| !server.engine.has_table() && server.arrived.is_none())
    }

    /// Returns whether a clone is running.
    pub fn copies(&self) -> bool {
        self.act(|server| server.copying().is_some())
    }

    /// Returns whether the replica's applier runs.
    pub fn applies(&self) -> bool {
        self.act(|server| {
            let channel = server.channel.as_ref();
            channel.is_some_and(|channel| channel.applies)
        })
    }

    /// Returns whether commits wait for an ACK, according to the settings.
    pub fn waits_for_acks(&self) -> bool {
        self.runs(|running| running.variables.is_on("rpl_semi_sync_source_enabled"))
    }

    /// Returns the channel's name and source host, and whether it is connected.
    pub fn channel(&self) -> Option<(String, String, bool)> {
        self.act(|server| {
            let channel = server.channel.as_ref()?;
            let connected = channel.receiver == Receiver::On;
            Some((channel.name.clone(), channel.source.host.clone(), connected))
        })
    }

    /// Returns the names of the accounts.
    pub fn account_names(&self) -> Vec<String> {
        self.act(|server| {
            let accounts = server.accounts.iter();
            accounts.map(|account| account.user.clone()).collect()
        })
    }

    /// Returns whether the process runs and `is` returns true.
    fn runs(&self, is: impl FnOnce(&Running) -> bool) -> bool {
        self.act(|server| server.running.as_ref().is_some_and(is))
    }

    /// Inspects the server without advancing it, because another task may be in the middle of its work.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&Server) -> R) -> R {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the server, then executes everything that is possible, and wakes waiting tasks.
    pub(crate) fn act<R>(&self, work: impl FnOnce(&mut Server) -> R) -> R {
        let mut server = self.lock();
        let before = server.version;
        if server.is_due() {
            server.advance();
        }
        let done = work(&mut server);
        if server.version != before {
            server.advance();
        }
        let version = server.version;
        drop(server);
        if version != before {
            self.changed.send_replace(version);
        }
        done
    }

    /// Waits until `ask` returns a result. Calls `ask` after each change of the server.
    pub(crate) async fn until<R>(&self, mut ask: impl FnMut(&mut Server) -> Option<R>) -> R {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let (found, wait) = self.act(|server| {
                let found = ask(server);
                let now = server.now();
                let wait = server.deadline().map(|at| at.saturating_sub(now));
                (found, wait)
            });
            if let Some(found) = found {
                return found;
            }
            // An error is impossible, because the server has the sender.
            match wait {
                None => drop(changed.changed().await),
                Some(wait) => {
                    let wait = wait.max(LEAST_WAIT);
                    drop(tokio::time::timeout(wait, changed.changed()).await);
                }
            }
        }
    }
}

impl Server {
    fn start(&mut self, words: &[String]) -> Result<(), String> {
        if self.running.is_some() {
            return Err("it runs already".to_owned());
        }
        let told = |error: std::io::Error| error.to_string();
        let line = CommandLine::of(words);
        self.unknown.extend(line.unknown.iter().cloned());
        self.take_in_what_has_come();
        let mut variables = Variables::at_start(&line, &self.persisted);
        variables.clone = self.clone_plugin;
        let folder = self.options.data_dir.clone();
        for (name, value) in [
            ("server_id", self.options.server_id.to_string()),
            ("server_uuid", self.options.server_uuid.to_string()),
            ("version", self.options.version.clone()),
            ("datadir", format!("{}/", folder.display())),
            (
                "log_bin_index",
                folder.join("binlog.index").display().to_string(),
            ),
        ] {
            variables.put(name, &value, None);
        }
        if variables.is_on("super_read_only") {
            variables.put("read_only", "ON", None);
        }
        let found = binlog::recover(&folder).map_err(told)?;
        for gtid in &found.to_recover {
            self.engine.commit(*gtid);
        }
        self.engine.roll_back_prepared();
        let executed = self.engine.executed.union(&found.logged);
        let identity = Identity {
            server_id: self.options.server_id,
            version: self.options.version.clone(),
        };
        let now = self.epoch_seconds();
        let unlogged = self.engine.executed.difference(&found.logged);
        let binlog = Binlog::begin(&folder, identity, found, unlogged, now).map_err(told)?;
        self.running = Some(Running {
            started: self.now(),
            read_only: variables.is_on("read_only"),
            super_read_only: variables.is_on("super_read_only"),
            variables,
            binlog,
            executed,
            sessions: BTreeMap::new(),
            // In a real mysqld, its own threads have the first ids.
            next_session: 8,
            commits: Commits::default(),
            row_locks: BTreeMap::new(),
            stopping: None,
        });
        self.parting.clear();
        self.paused = false;
        self.starts += 1;
        self.changed();
        if self.channel.is_some() && !line.skip_replica_start {
            // A configured channel starts with the server.
            drop(self.start_replica(false, None));
        }
        Ok(())
    }

    fn die(&mut self) {
        self.running = None;
        self.paused = false;
        self.end_replication();
        self.changed();
    }
}

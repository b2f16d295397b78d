//! The handle of a server, and its process's lifecycle.

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

/// A server. Clones share it.
#[derive(Debug, Clone)]
pub struct Mysqld {
    server: Arc<Mutex<Server>>,
    /// The server's version: waiters check again when it changes.
    changed: watch::Sender<u64>,
}

/// Losses of a power cut. Only unforced data can be lost: nothing of the binlog under `sync_binlog = 1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostTail {
    /// Maximum bytes at the end of the binlog.
    pub binlog_bytes: u64,
    /// Maximum commits of the engine: the last ones, after the last force of its log. They are prepared again.
    pub engine_commits: usize,
}

/// The shortest wait on the server's clock, which may differ from the runtime's in rounding.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Mysqld {
    /// A server that is not running yet. Creates its data directory if there is none.
    ///
    /// # Errors
    /// A message, when it cannot be created.
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

    /// Starts it with these command line arguments: recovery, and a new binlog file.
    ///
    /// # Errors
    /// A message, when it is running already or cannot read its files.
    pub fn start(&self, words: &[String]) -> Result<(), String> {
        self.act(|server| server.start(words))
    }

    /// SIGKILL: it ends immediately. Waiting commits are in the binlog, and not in the engine.
    pub fn kill(&self) {
        self.act(Server::die);
    }

    /// SIGTERM: it accepts no more clients, and ends by itself; see [`Self::is_running`].
    pub fn terminate(&self) {
        self.act(Server::begin_stop);
    }

    /// The host loses power: the process ends, and unforced data may be lost.
    ///
    /// # Errors
    /// A message, when the binlog's file cannot be truncated.
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

    /// SIGSTOP: connections stay, without answers.
    pub fn pause(&self) {
        self.act(|server| {
            server.paused = server.running.is_some();
            server.changed();
        });
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.act(|server| {
            server.paused = false;
            server.changed();
        });
    }

    /// Freezes or unfreezes the data directory, like a frozen or full file system: commits wait in the meantime, and reads continue.
    pub fn freeze_disk(&self, frozen: bool) {
        self.act(|server| {
            server.frozen = frozen;
            server.changed();
        });
    }

    /// Whether its process exists.
    pub fn is_running(&self) -> bool {
        self.runs(|_| true)
    }

    /// Whether it accepts connections: not while it is stopping.
    pub fn listens(&self) -> bool {
        self.act(|server| server.listens())
    }

    /// Number of its starts.
    pub fn starts(&self) -> u64 {
        self.act(|server| server.starts)
    }

    /// Whether ordinary accounts may write, and it is not paused.
    pub fn takes_writes(&self) -> bool {
        self.act(|server| {
            let open = |running: &Running| !running.read_only && running.stopping.is_none();
            !server.paused && server.running.as_ref().is_some_and(open)
        })
    }

    /// Whether ordinary accounts may write, even while it is paused or stopping.
    pub fn is_open(&self) -> bool {
        self.runs(|running| !running.read_only)
    }

    /// The engine's committed transactions.
    pub fn lists(&self) -> Lists {
        self.act(|server| server.engine.lists())
    }

    /// `@@gtid_executed`; of a stopped server, its engine's.
    pub fn gtid_executed(&self) -> GtidSet {
        self.act(|server| match &server.running {
            Some(running) => running.executed.clone(),
            None => server.engine.executed.clone(),
        })
    }

    /// Statements and arguments unknown to the model, verbatim.
    pub fn unknown_statements(&self) -> Vec<String> {
        self.act(|server| server.unknown.clone())
    }

    /// True if a copy has removed its rows and none has completed since.
    pub fn lacks_its_data(&self) -> bool {
        self.act(|server| !server.engine.has_table() && server.arrived.is_none())
    }

    /// True if a copy is running.
    pub fn copies(&self) -> bool {
        self.act(|server| server.copying().is_some())
    }

    /// Whether its replica threads apply.
    pub fn applies(&self) -> bool {
        self.act(|server| {
            let channel = server.channel.as_ref();
            channel.is_some_and(|channel| channel.applies)
        })
    }

    /// Whether commits wait for an ACK, by its settings.
    pub fn waits_for_acks(&self) -> bool {
        self.runs(|running| running.variables.is_on("rpl_semi_sync_source_enabled"))
    }

    /// Its channel's name and source host, and whether it is connected.
    pub fn channel(&self) -> Option<(String, String, bool)> {
        self.act(|server| {
            let channel = server.channel.as_ref()?;
            let connected = channel.receiver == Receiver::On;
            Some((channel.name.clone(), channel.source.host.clone(), connected))
        })
    }

    /// Accounts by their names.
    pub fn account_names(&self) -> Vec<String> {
        self.act(|server| {
            let accounts = server.accounts.iter();
            accounts.map(|account| account.user.clone()).collect()
        })
    }

    /// Inspects the server without advancing it: another task may be in the middle of its work.
    /// True if it runs, and `is` so.
    fn runs(&self, is: impl FnOnce(&Running) -> bool) -> bool {
        self.act(|server| server.running.as_ref().is_some_and(is))
    }

    pub(crate) fn peek<R>(&self, look: impl FnOnce(&Server) -> R) -> R {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on the server, advances it, and wakes waiters.
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

    /// Waits until the server has a result for the caller, whose `ask` runs after each change.
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
            // The server owns the sender, which outlives the wait.
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
            // The first ids are those of mysqld's own threads.
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
            // With a configured channel, it starts.
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

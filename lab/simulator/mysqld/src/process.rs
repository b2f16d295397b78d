//! The handle of a server, and the life of its process.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::statement::Threads;
use crate::variables::{CommandLine, Variables};

/// A server. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Mysqld {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<Server>,
    /// The server's version: whoever waits for something looks again when it changes.
    changed: watch::Sender<u64>,
}

/// What a loss of power takes. Only what was not forced can be lost: nothing of the binlog under `sync_binlog = 1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostTail {
    /// Bytes at the end of the binlog, at most.
    pub binlog_bytes: u64,
    /// Commits of the engine, at most: the last ones, behind the last force of its log. They are prepared again.
    pub engine_commits: usize,
}

/// The shortest wait for a moment of the server's clock, which may differ from the runtime's in rounding.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Mysqld {
    /// A server that does not run yet. Its data directory is made where there is none.
    ///
    /// # Errors
    /// In words, when it cannot be made.
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
            shared: Arc::new(Shared {
                server: Mutex::new(server),
                changed: watch::Sender::new(0),
            }),
        })
    }

    /// Starts it with the words of a command line behind the program's name: recovery, and a new binlog file.
    ///
    /// # Errors
    /// In words, when it runs already or cannot read its files.
    pub fn start(&self, words: &[String]) -> Result<(), String> {
        self.act(|server| server.start(words))
    }

    /// SIGKILL: it is gone at once. What waited is in the binlog, and not in the engine.
    pub fn kill(&self) {
        self.act(Server::die);
    }

    /// SIGTERM: nobody is let in any more, and it ends by itself; see [`Self::is_running`].
    pub fn terminate(&self) {
        self.act(Server::begin_stop);
    }

    /// The host loses power: it is gone, and what was not forced may be.
    ///
    /// # Errors
    /// In words, when the binlog's file cannot be cut.
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

    /// SIGSTOP: connections stay, and nothing answers.
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

    /// Nothing can be written to the data directory, as behind a frozen file system or a full one, or it can be again: commits
    /// wait meanwhile, and everything that reads goes on.
    pub fn freeze_disk(&self, frozen: bool) {
        self.act(|server| {
            server.frozen = frozen;
            server.changed();
        });
    }

    /// Whether its process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.act(|server| server.running.is_some())
    }

    /// Whether it takes connections: one that was asked to stop takes none any more.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.act(|server| {
            let running = server.running.as_ref();
            running.is_some_and(|running| running.stopping.is_none())
        })
    }

    /// How often it was started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.act(|server| server.starts)
    }

    /// Whether it lets ordinary accounts write, and does not stand still.
    #[must_use]
    pub fn takes_writes(&self) -> bool {
        self.act(|server| {
            let open = |running: &Running| !running.read_only && running.stopping.is_none();
            !server.paused && server.running.as_ref().is_some_and(open)
        })
    }

    /// Whether ordinary accounts may write, also where it stands still or is about to end.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.act(|server| {
            let running = server.running.as_ref();
            running.is_some_and(|running| !running.read_only)
        })
    }

    /// What is committed in the engine.
    #[must_use]
    pub fn lists(&self) -> Lists {
        self.act(|server| server.engine.lists())
    }

    /// `@@gtid_executed`; of a server that does not run what its engine has.
    #[must_use]
    pub fn gtid_executed(&self) -> GtidSet {
        self.act(|server| match &server.running {
            Some(running) => running.executed.clone(),
            None => server.engine.executed().clone(),
        })
    }

    /// Statements and words of the command line that the model does not know, as they came.
    #[must_use]
    pub fn unknown_statements(&self) -> Vec<String> {
        self.act(|server| server.unknown.clone())
    }

    /// Whether a copy has taken its rows away and none has come since.
    #[must_use]
    pub fn lacks_its_data(&self) -> bool {
        self.act(|server| !server.engine.has_table() && server.arrived.is_none())
    }

    /// Whether a copy is under way.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.act(|server| server.copying().is_some())
    }

    /// Whether its replica threads apply.
    #[must_use]
    pub fn applies(&self) -> bool {
        self.act(|server| {
            let channel = server.channel.as_ref();
            channel.is_some_and(|channel| channel.applies)
        })
    }

    /// Whether commits wait for an ACK, as its settings have it.
    #[must_use]
    pub fn waits_for_acks(&self) -> bool {
        self.act(|server| {
            let running = server.running.as_ref();
            running.is_some_and(|running| running.variables.is_on("rpl_semi_sync_source_enabled"))
        })
    }

    /// The channel that it has, by its name, with the host of its source, and whether it is connected to that.
    #[must_use]
    pub fn channel(&self) -> Option<(String, String, bool)> {
        self.act(|server| {
            let channel = server.channel.as_ref()?;
            let connected = channel.receiver == Receiver::On;
            Some((channel.name.clone(), channel.source.host.clone(), connected))
        })
    }

    /// Accounts by their names.
    #[must_use]
    pub fn account_names(&self) -> Vec<String> {
        self.act(|server| {
            let names = server.accounts.iter().map(|account| account.user.clone());
            names.collect()
        })
    }

    /// Looks at the server as it is, without carrying anything out: another one looks, in the middle of its own work.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&Server) -> R) -> R {
        let server = self.shared.server.lock();
        look(&server.unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something to the server, carries out what follows from it, and wakes who waits.
    pub(crate) fn act<R>(&self, work: impl FnOnce(&mut Server) -> R) -> R {
        let mut server = self
            .shared
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
            self.shared.changed.send_replace(version);
        }
        done
    }

    /// Waits until the server has something for the caller, who is asked whenever it changes.
    pub(crate) async fn until<R>(&self, mut ask: impl FnMut(&mut Server) -> Option<R>) -> R {
        let mut changed = self.shared.changed.subscribe();
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
            // The sender is the server's own, and outlives the wait.
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
        variables.has_clone = self.clone_plugin;
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
            variables.put(name, &value, crate::variables::Source::CommandLine);
        }
        if variables.is_on("super_read_only") {
            variables.put("read_only", "ON", crate::variables::Source::CommandLine);
        }
        let found = binlog::recover(&folder).map_err(told)?;
        for gtid in &found.to_recover {
            self.engine.commit(*gtid);
        }
        self.engine.roll_back_prepared();
        let executed = self.engine.executed().union(&found.logged);
        let identity = Identity {
            server_id: self.options.server_id,
            version: self.options.version.clone(),
        };
        let now = self.epoch_seconds();
        let unlogged = self.engine.executed().difference(&found.logged);
        let binlog = Binlog::begin(&folder, identity, found, unlogged, now).map_err(told)?;
        self.running = Some(Running {
            started: self.now(),
            read_only: variables.is_on("read_only"),
            super_read_only: variables.is_on("super_read_only"),
            variables,
            binlog,
            executed,
            sessions: BTreeMap::new(),
            // The first numbers are those of mysqld's own threads.
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
            // The channel is there: it starts.
            drop(self.start_replica(Threads::Both, None));
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

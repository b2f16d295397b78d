//! Three members on loopback, which run in this process or as separate processes. The first member is the database member.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use binlog_format::gtid::GtidSet;
use binlog_store::SledMeta;
use futures::FutureExt;
use member::settings::Settings;
use member::status::Question;
use member::{MemberError, Opened, RingHandle, Surroundings};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};
use tokio_util::sync::CancellationToken;
use toml::Value;

use crate::config::{Sources, read};
use crate::demo::clients::{self, Writer};
use crate::demo::mysqld::Mysqld;
use crate::demo::screen::Scoreboard;
use crate::operator::Asker;
use crate::terminal::{Attempt, Failure};

/// The index of the database member.
pub(crate) const DATABASE: usize = 0;
pub(crate) const WITNESS_1: usize = 1;
pub(crate) const WITNESS_2: usize = 2;
pub(crate) const MEMBERS: usize = 3;
const NAMES: [&str; MEMBERS] = ["db-1", "witness-1", "witness-2"];

pub(crate) enum Cluster {
    /// Members in this process. A writer proposes transactions to the first member.
    Embedded(Vec<EmbeddedMember>),
    /// Members as processes, and the mysqld of the first member. The mysqld is dropped last, because a running member would restart it.
    Processes(Vec<MemberProcess>, Mysqld),
}

/// The running clients.
pub(crate) struct Load {
    stop: CancellationToken,
    writing: JoinHandle<Attempt<GtidSet>>,
}

impl Cluster {
    /// Creates three members with their files below `directory`, and an asker for their ring. No member
    /// runs yet.
    pub(crate) fn prepare(directory: &Path, mysqld: Option<Mysqld>) -> Attempt<(Self, Asker)> {
        let mysql = match &mysqld {
            Some(mysqld) => mysqld.section(),
            // A database member needs this section, but the writer replaces its mysqld.
            None => "mode = \"attach\"\napply = \"off\"".to_owned(),
        };
        let addresses = free_addresses()?;
        let configs = [DATABASE, WITNESS_1, WITNESS_2];
        let configs = configs.map(|own| config(own, directory, &addresses, &mysql));
        let settings = configs.iter().map(|toml| settings(toml.clone()));
        let settings = settings.collect::<Result<Vec<_>, _>>()?;
        let asker = Asker::new(&settings[DATABASE]).map_err(Failure::error)?;
        let cluster = match mysqld {
            None => {
                let without_mysqld = settings.into_iter().map(|settings| Settings {
                    mysql: None,
                    ..settings
                });
                Self::Embedded(without_mysqld.map(EmbeddedMember::new).collect())
            }
            Some(mysqld) => {
                let named = NAMES.into_iter().zip(&configs);
                let members = named.map(|(name, toml)| MemberProcess::new(directory, name, toml));
                Self::Processes(members.collect::<Result<_, _>>()?, mysqld)
            }
        };
        Ok((cluster, asker))
    }

    pub(crate) fn start(&mut self, at: usize, bootstrap: bool) -> Attempt {
        match self {
            Self::Embedded(members) => members[at].start(bootstrap),
            Self::Processes(members, _) => members[at].start(bootstrap),
        }
    }

    pub(crate) fn crash(&mut self, at: usize) -> Attempt {
        match self {
            Self::Embedded(members) => members[at].crash(),
            Self::Processes(members, _) => Ok(members[at].crash()?),
        }
    }

    /// Stops a member cleanly. The first member also stops its mysqld.
    pub(crate) async fn stop(&mut self, at: usize) -> Attempt {
        match self {
            Self::Embedded(members) => members[at].stop().await,
            Self::Processes(members, _) => members[at].stop().await,
        }
    }

    /// Returns a message if a member has ended without being stopped or crashed.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self {
            Self::Embedded(members) => members.iter_mut().find_map(EmbeddedMember::ended),
            Self::Processes(members, _) => members.iter_mut().find_map(MemberProcess::ended),
        }
    }

    /// Returns the last lines of each member's log file; empty for members in this process.
    pub(crate) fn last_lines(&self) -> String {
        match self {
            Self::Embedded(_) => String::new(),
            Self::Processes(members, _) => members.iter().map(MemberProcess::last_lines).collect(),
        }
    }

    /// Returns the health check of the first member that succeeds when clients can write.
    pub(crate) fn writable(&self) -> Question {
        match self {
            Self::Embedded(_) => Question::Leader,
            Self::Processes(..) => Question::Primary,
        }
    }

    /// Returns the number of rows that a reader sees; `None` without a mysqld.
    pub(crate) async fn visible_rows(&self) -> Attempt<Option<u64>> {
        match self {
            Self::Embedded(_) => Ok(None),
            Self::Processes(_, mysqld) => clients::visible_rows(&mysqld.account()).await.map(Some),
        }
    }

    /// Starts the clients.
    pub(crate) async fn start_load(&self, board: &Arc<Scoreboard>) -> Attempt<Load> {
        let (board, stop) = (board.clone(), CancellationToken::new());
        let writing = match self {
            Self::Embedded(members) => {
                let writer = Writer::new(members[DATABASE].ring(), board, stop.clone());
                tokio::spawn(writer.run())
            }
            Self::Processes(_, mysqld) => {
                clients::prepare_table(&mysqld.account()).await?;
                tokio::spawn(clients::insert(mysqld.account(), board, stop.clone()))
            }
        };
        Ok(Load { stop, writing })
    }
}

impl Load {
    /// Stops the clients after their current transactions, and returns the acknowledged transactions.
    pub(crate) async fn finish(self) -> Attempt<GtidSet> {
        self.stop.cancel();
        self.writing.await.map_err(Failure::error)?
    }
}

/// Returns the data directories of the members.
pub(crate) fn data_dirs(directory: &Path) -> [PathBuf; MEMBERS] {
    NAMES.map(|name| directory.join(name))
}

/// Returns an address with a free port for each member. A member keeps its address after a crash.
fn free_addresses() -> io::Result<Vec<SocketAddr>> {
    // All listeners are open at the same time, so that their ports differ.
    let listeners = NAMES
        .iter()
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// Returns a member's configuration file. A short heartbeat makes elections short, and the log files are so large that
/// the scenario does not fill one.
fn config(own: usize, directory: &Path, addresses: &[SocketAddr], mysql: &str) -> String {
    let data_dir = directory.join(NAMES[own]).display().to_string();
    let mut toml = format!(
        "data_dir = {}\nring.name = \"demo\"\nmember.id = {}\nraft.heartbeat = \"100ms\"\n\
         log.max_file_bytes = \"256MiB\"\nlog.disk_reserve_bytes = \"16MiB\"\n",
        Value::from(data_dir),
        own + 1
    );
    if own == DATABASE {
        let _ = writeln!(toml, "\n[mysql]\n{mysql}");
    }
    for (at, (name, address)) in NAMES.iter().zip(addresses).enumerate() {
        let id = at + 1;
        let kind = if at == DATABASE {
            "database"
        } else {
            "witness"
        };
        let _ = writeln!(
            toml,
            "\n[[members]]\nid = {id}\nname = \"{name}\"\nregion = \"here\"\nkind = \"{kind}\"\naddress = \"{address}\""
        );
    }
    toml
}

/// Returns the settings of the member with this configuration file.
pub(crate) fn settings(toml: String) -> Attempt<Settings> {
    let (config, problems) = read(&Sources {
        file: Some(("demo".to_owned(), toml)),
        ..Sources::default()
    });
    Ok(config.ok_or_else(|| Failure::error(problems))?.member)
}

// A member of the demonstration: in this process, or as a process of this program (`witness run`).

/// Time limit until all threads of a crashed member have ended.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// Two threads, so that a long write on one of them does not delay heartbeats.
const WORKER_THREADS: usize = 2;

/// A member in this process, with its own runtime. To drop the runtime simulates a crash, because the
/// member cannot send or write anything afterwards.
pub(crate) struct EmbeddedMember {
    settings: Settings,
    running: Option<Running>,
    ring: watch::Sender<Option<RingHandle>>,
}

struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), MemberError>>,
    runtime: Runtime,
}

impl EmbeddedMember {
    /// Creates a member that does not run yet.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            running: None,
            ring: watch::Sender::new(None),
        }
    }

    /// Returns a channel with the member's ring; `None` while the member does not take part in it.
    pub(crate) fn ring(&self) -> watch::Receiver<Option<RingHandle>> {
        self.ring.subscribe()
    }

    /// Starts the member, which opens its log and joins its ring in the background.
    pub(crate) fn start(&mut self, bootstrap: bool) -> Attempt {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name(&self.settings.own.name)
            .enable_all()
            .build()?;
        let stop = CancellationToken::new();
        let (settings, ring) = (self.settings.clone(), self.ring.clone());
        self.running = Some(Running {
            ended: runtime.spawn(live(settings, bootstrap, ring, stop.clone())),
            stop,
            runtime,
        });
        Ok(())
    }

    /// Crashes the member: its runtime is dropped with all tasks.
    pub(crate) fn crash(&mut self) -> Attempt {
        self.ring.send_replace(None);
        match self.running.take() {
            Some(Running { runtime, .. }) => block_in_place(|| {
                runtime.shutdown_timeout(RELEASE_LIMIT);
                self.wait_until_released()
            }),
            None => Ok(()),
        }
    }

    /// Stops the member cleanly, without a transfer of the leadership.
    pub(crate) async fn stop(&mut self) -> Attempt {
        self.ring.send_replace(None);
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        running.stop.cancel();
        let ended = running.ended.await;
        running.runtime.shutdown_background();
        ended.map_err(Failure::error)?.map_err(Failure::error)
    }

    /// Returns how the member has ended, if it has ended without being stopped or crashed.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let ended = (&mut self.running.as_mut()?.ended).now_or_never()?;
        let why = match ended {
            Ok(Ok(())) => "without an error".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Some(format!("member `{}` ended: {why}", self.settings.own.name))
    }

    /// Waits until a crashed member has released the lock of the hard state. Its writer thread holds the lock until it
    /// has finished its current write.
    fn wait_until_released(&self) -> Attempt {
        let meta = self.settings.data_dir.join("meta");
        let until = Instant::now() + RELEASE_LIMIT;
        while meta.is_dir()
            && let Err(error) = SledMeta::open(&meta)
        {
            if Instant::now() > until {
                return Err(Failure::error(format!("{}: {error}", meta.display())));
            }
            std::thread::sleep(RELEASE_POLL);
        }
        Ok(())
    }
}

impl Drop for EmbeddedMember {
    fn drop(&mut self) {
        // The member's files are no longer used, so an error does not matter.
        let _ = self.crash();
    }
}

/// Runs a member from its start until it fails or `stop` is cancelled.
async fn live(
    settings: Settings,
    bootstrap: bool,
    ring: watch::Sender<Option<RingHandle>>,
    stop: CancellationToken,
) -> Result<(), MemberError> {
    let mut opened = Opened::open(settings, Surroundings::default()).await?;
    let joined = opened.join(bootstrap).await?;
    let running = opened.take_part(joined).await?;
    ring.send_replace(Some(running.ring().clone()));
    tokio::select! {
        error = running.failed() => Err(error),
        () = stop.cancelled() => running.end_failed().await,
    }
}

/// Time limit for a member to stop. A member with a mysqld stops mysqld first.
const STOP_LIMIT: Duration = Duration::from_secs(60);
const STOP_POLL: Duration = Duration::from_millis(20);
const SHOWN_LINES: usize = 15;

/// A member that runs as a process.
pub(crate) struct MemberProcess {
    name: &'static str,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl MemberProcess {
    /// Writes the configuration to `NAME.toml` in `directory`. The process, which is not started yet, will log to
    /// `NAME.log`.
    pub(crate) fn new(directory: &Path, name: &'static str, toml: &str) -> Attempt<Self> {
        let [config, log] = ["toml", "log"].map(|kind| directory.join(format!("{name}.{kind}")));
        fs::write(&config, toml)?;
        Ok(Self {
            name,
            config,
            log,
            child: None,
        })
    }

    pub(crate) fn start(&mut self, bootstrap: bool) -> Attempt {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg("--config").arg(&self.config);
        command.args(bootstrap.then_some("--bootstrap"));
        // Variables in the operator's environment would change the configuration of these members.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("WITNESS_") {
                command.env_remove(variable);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        command.stderr(log);
        // Ctrl-C must reach only the demonstration, which then ends its members. So they are not in the terminal's foreground group.
        command.process_group(0);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn crash(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops the process (SIGTERM).
    ///
    /// # Errors
    /// When the process does not end within [`STOP_LIMIT`], or ends with an error.
    pub(crate) async fn stop(&mut self) -> Attempt {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        kill_process(Pid::from_child(child), Signal::TERM).map_err(Failure::error)?;
        let begun = Instant::now();
        let how = loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => break format!("ended with {status}"),
                None if begun.elapsed() < STOP_LIMIT => tokio::time::sleep(STOP_POLL).await,
                None => break format!("still runs {} s after SIGTERM", STOP_LIMIT.as_secs()),
            }
        };
        let (name, lines) = (self.name, self.last_lines());
        Err(Failure::error(format!("member `{name}` {how}\n{lines}")))
    }

    /// Returns how the process has ended, if it has ended without being stopped or killed.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!("member `{}` ended ({status})", self.name))
    }

    /// Returns the last lines of the member's log file.
    pub(crate) fn last_lines(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        format!("--- {} ---\n  {shown}\n", self.name)
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        // The kill fails only if the process has already ended.
        let _ = self.crash();
    }
}

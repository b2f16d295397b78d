//! The task that acts on the decisions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mysql_link::{ConnectOptions, ServerVersion};
use serde::Serialize;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::backoff::Backoff;
use crate::supervisor::command_line::ServerCommand;
use crate::supervisor::data_dir;
use crate::supervisor::decision::{
    Action, DataDir, Found, ProcessId, Situation, Stopping, Wanted, decide,
};
use crate::supervisor::drain::{Drained, drain};
use crate::supervisor::process;

/// How to run mysqld.
#[derive(Debug, Clone)]
pub struct SupervisorOptions {
    /// The command line.
    pub server: ServerCommand,
    /// The member's account. It is created when the data directory is initialised.
    pub account: ConnectOptions,
    /// Whether an empty data directory is initialised.
    pub may_initialise: bool,
    /// How long commits may take to drain before a stop.
    pub drain_limit: Duration,
    /// How long mysqld may take to stop once asked.
    pub stop_limit: Duration,
    /// How long an initialisation may take.
    pub initialise_limit: Duration,
    /// The first and the longest wait before mysqld is started again after it died.
    pub retry: (Duration, Duration),
}

impl SupervisorOptions {
    /// The defaults: ten seconds to drain, two minutes to stop.
    pub fn new(server: ServerCommand, mut account: ConnectOptions) -> Self {
        account.program_name = "witness-supervisor".to_owned();
        account.timeouts.connect = account.timeouts.connect.min(Duration::from_secs(2));
        account.timeouts.statement = account.timeouts.statement.min(Duration::from_secs(2));
        Self {
            server,
            account,
            may_initialise: false,
            drain_limit: Duration::from_secs(10),
            stop_limit: Duration::from_secs(120),
            initialise_limit: Duration::from_secs(300),
            retry: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }
}

/// What the supervisor is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SupervisorState {
    /// Nothing yet.
    Beginning,
    /// The data directory is being made.
    Initialising,
    /// mysqld runs. Whether it answers is the watch's to say.
    Running {
        /// Its process.
        pid: ProcessId,
        /// Whether it ran before this supervisor did.
        adopted: bool,
    },
    /// mysqld died or did not start; another attempt follows.
    Failed {
        /// Why, and what to check.
        cause: String,
    },
    /// Before a stop: commits finish.
    Draining {
        /// What is waited for.
        cause: String,
    },
    /// mysqld was asked to stop.
    Stopping {
        /// Its process.
        pid: ProcessId,
    },
    /// No mysqld runs, or it is left alone; the supervisor has ended.
    Ended,
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// What the supervisor is doing.
    pub state: SupervisorState,
    /// Since when.
    pub since: Instant,
    /// How often it has started mysqld.
    pub starts: u64,
}

/// Runs a mysqld.
#[derive(Debug)]
pub struct Supervisor {
    options: SupervisorOptions,
    wanted: watch::Receiver<Wanted>,
    status: watch::Sender<SupervisorStatus>,
    server: Option<Server>,
    version: Option<ServerVersion>,
    backoff: Backoff,
    not_before: Option<Instant>,
    stopping: Option<Stopping>,
}

/// The one that runs.
#[derive(Debug)]
struct Server {
    id: ProcessId,
    /// Where it is a child of this process.
    child: Option<Child>,
    since: Instant,
}

/// Tells a supervisor what is wanted, and sees what it does.
#[derive(Debug)]
pub struct SupervisorHandle {
    wanted: watch::Sender<Wanted>,
    status: watch::Receiver<SupervisorStatus>,
}

impl SupervisorHandle {
    /// What the supervisor is doing.
    pub fn status(&self) -> watch::Receiver<SupervisorStatus> {
        self.status.clone()
    }

    /// Stops mysqld and waits until it is gone. Ingest has to go on meanwhile, because commits that
    /// wait for their ACK are let finish; the gate has to be stopped before, because it opens.
    pub async fn stop(&self) {
        self.wanted.send_replace(Wanted::Stopped);
        self.ended().await;
    }

    /// Ends the supervisor and leaves mysqld running, for a member that is about to start again.
    pub async fn leave(&self) {
        self.wanted.send_replace(Wanted::LeftAlone);
        self.ended().await;
    }

    async fn ended(&self) {
        let mut status = self.status.clone();
        // An error means that the task is gone.
        let _ = status
            .wait_for(|status| status.state == SupervisorState::Ended)
            .await;
    }
}

/// A server that ran this long was in order: the next failure is a first one.
const IN_ORDER: Duration = Duration::from_secs(30);
/// Between two looks at a process that is not our child, and at a stop that is on its way.
const POLL: Duration = Duration::from_millis(100);
const VERSION_LIMIT: Duration = Duration::from_secs(30);

impl Supervisor {
    /// A supervisor that is not running yet.
    pub fn new(options: SupervisorOptions) -> (Self, SupervisorHandle) {
        let (wanted, wanted_receiver) = watch::channel(Wanted::Running);
        let beginning = SupervisorStatus {
            state: SupervisorState::Beginning,
            since: Instant::now(),
            starts: 0,
        };
        let (status, status_receiver) = watch::channel(beginning);
        let backoff = Backoff::new(options.retry.0, options.retry.1);
        let supervisor = Self {
            options,
            wanted: wanted_receiver,
            status,
            server: None,
            version: None,
            backoff,
            not_before: None,
            stopping: None,
        };
        (
            supervisor,
            SupervisorHandle {
                wanted,
                status: status_receiver,
            },
        )
    }

    /// Acts until it has stopped mysqld or is told to leave it alone. Dropping it leaves it alone too.
    pub async fn run(mut self) {
        loop {
            let action = match self.situation() {
                Ok(situation) => decide(&situation, Instant::now()),
                Err(cause) => {
                    self.fail(cause);
                    Action::Wait
                }
            };
            match action {
                Action::End => break,
                Action::Wait => self.something_changes().await,
                Action::Start => self.start().await,
                Action::Initialise => self.initialise().await,
                Action::RefuseEmpty => self.fail(self.empty_data_dir()),
                Action::Adopt(id) => self.adopt(id),
                Action::Drain(_) => self.drain().await,
                Action::Ask(id) => self.ask(id),
                Action::Kill(id) => self.kill(id).await,
            }
        }
        self.go(SupervisorState::Ended);
    }

    fn situation(&mut self) -> Result<Situation, String> {
        let found = self.found();
        let wanted = *self.wanted.borrow_and_update();
        if wanted != Wanted::Stopped {
            self.stopping = None;
        }
        let data_dir = match found {
            Found::Nothing => data_dir::look(&self.options.server.data_dir).map_err(|error| {
                format!(
                    "the data directory {} cannot be read: {error}",
                    self.options.server.data_dir.display()
                )
            })?,
            _ => DataDir::Ready,
        };
        Ok(Situation {
            found,
            data_dir,
            wanted,
            may_initialise: self.options.may_initialise,
            not_before: self.not_before,
            stopping: self.stopping,
            drain_limit: self.options.drain_limit,
            stop_limit: self.options.stop_limit,
        })
    }

    /// What runs; notices the end of the one that ran.
    fn found(&mut self) -> Found {
        let argument = self.options.server.data_dir_argument();
        let Some(server) = &mut self.server else {
            return process::find(&argument, &self.options.server.pid_file);
        };
        let ended = match &mut server.child {
            Some(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(ended_with(status)),
                Err(error) => Some(format!("mysqld cannot be waited for: {error}")),
            },
            None if process::serves(server.id, &argument) => None,
            None => Some("mysqld has ended".to_owned()),
        };
        let Some(cause) = ended else {
            return Found::Known(server.id);
        };
        let ran = server.since.elapsed();
        self.server = None;
        if *self.wanted.borrow() == Wanted::Running {
            if ran >= IN_ORDER {
                self.backoff.reset();
            }
            self.fail(format!("{cause} after {ran:.1?}{}", self.last_errors()));
        }
        // A wrapper may have ended before what it wrapped.
        process::find(&argument, &self.options.server.pid_file)
    }

    async fn something_changes(&mut self) {
        let child_ends = async {
            match self
                .server
                .as_mut()
                .and_then(|server| server.child.as_mut())
            {
                Some(child) => drop(child.wait().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = child_ends => {}
            changed = self.wanted.changed() => if changed.is_err() {
                // The handle is gone: nobody will ask for anything any more.
                tokio::time::sleep(POLL).await;
            },
            () = tokio::time::sleep(POLL) => {}
        }
    }

    async fn start(&mut self) {
        self.not_before = None;
        match self.try_start().await {
            Ok(server) => {
                info!(pid = server.id.0, "mysqld is started");
                self.status.send_modify(|status| status.starts += 1);
                self.go(SupervisorState::Running {
                    pid: server.id,
                    adopted: false,
                });
                self.server = Some(server);
            }
            Err(cause) => self.fail(format!("mysqld cannot be started: {cause}")),
        }
    }

    async fn try_start(&mut self) -> Result<Server, String> {
        let version = match self.version {
            Some(version) => version,
            None => self.ask_version().await?,
        };
        self.version = Some(version);
        let child = self
            .spawn(&self.options.server.words(version))
            .map_err(|error| error.to_string())?;
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .map(ProcessId);
        let id = id.ok_or("it ended at once")?;
        Ok(Server {
            id,
            child: Some(child),
            since: Instant::now(),
        })
    }

    async fn ask_version(&self) -> Result<ServerVersion, String> {
        let words = self.options.server.version_words();
        let (program, arguments) = words.split_first().ok_or("no command is configured")?;
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(VERSION_LIMIT, output).await {
            Ok(output) => output.map_err(|error| format!("`{}`: {error}", words.join(" ")))?,
            Err(_) => return Err(format!("`{}` does not end", words.join(" "))),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.split("Ver ").nth(1).and_then(|rest| rest.parse().ok());
        version.ok_or_else(|| {
            let told = String::from_utf8_lossy(&output.stderr);
            format!("`{}` tells no version: {text}{told}", words.join(" "))
        })
    }

    /// In a process group of its own, so that a Ctrl-C at the member's terminal does not reach it.
    fn spawn(&self, words: &[String]) -> io::Result<Child> {
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| io::Error::other("no command is configured"))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.options.server.error_log_file())?;
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
    }

    fn adopt(&mut self, id: ProcessId) {
        info!(pid = id.0, "mysqld runs already, and is taken over");
        self.server = Some(Server {
            id,
            child: None,
            since: Instant::now(),
        });
        self.go(SupervisorState::Running {
            pid: id,
            adopted: true,
        });
    }

    async fn initialise(&mut self) {
        self.not_before = None;
        info!(data_dir = %self.options.server.data_dir.display(), "the data directory is being initialised");
        self.go(SupervisorState::Initialising);
        if let Err(cause) = self.try_initialise().await {
            self.fail(format!(
                "the data directory cannot be initialised: {cause}{}",
                self.last_errors()
            ));
        }
    }

    async fn try_initialise(&mut self) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        let data_dir = self.options.server.data_dir.clone();
        data_dir::prepare(&data_dir).map_err(told)?;
        let statements = self.init_file();
        let has_account =
            data_dir::write_account(&statements, &self.options.account).map_err(told)?;
        let words = self
            .options
            .server
            .initialise_words(has_account.then(|| statements.to_string_lossy()).as_deref());
        let ended = self.run_bounded(&words).await;
        // It holds a password.
        if has_account {
            fs::remove_file(&statements).map_err(told)?;
        }
        let status = ended?;
        if !status.success() {
            return Err(ended_with(status));
        }
        warn!("root@localhost of the new server has no password: give it one");
        data_dir::finish(&data_dir).map_err(told)
    }

    async fn run_bounded(&self, words: &[String]) -> Result<ExitStatus, String> {
        let mut child = self.spawn(words).map_err(|error| error.to_string())?;
        let limit = self.options.initialise_limit;
        if let Ok(ended) = tokio::time::timeout(limit, child.wait()).await {
            return ended.map_err(|error| error.to_string());
        }
        child.kill().await.map_err(|error| error.to_string())?;
        Err(format!("it did not end within {limit:?} and was killed"))
    }

    async fn drain(&mut self) {
        let stopping = self.stopping.get_or_insert(Stopping {
            since: Instant::now(),
            drained: false,
            asked: None,
        });
        let left = self
            .options
            .drain_limit
            .saturating_sub(stopping.since.elapsed());
        let cause = match tokio::time::timeout(left, drain(&self.options.account)).await {
            Ok(Drained::Yes) => {
                stopping.drained = true;
                return;
            }
            Ok(Drained::No(cause)) => cause,
            Err(_) => "mysqld does not answer".to_owned(),
        };
        self.go(SupervisorState::Draining { cause });
        tokio::time::sleep(POLL.min(left)).await;
    }

    fn ask(&mut self, id: ProcessId) {
        info!(pid = id.0, "mysqld is asked to stop");
        if let Err(error) = process::ask(id) {
            warn!(pid = id.0, "mysqld cannot be signalled: {error}");
        }
        if let Some(stopping) = &mut self.stopping {
            stopping.asked = Some(Instant::now());
        }
        self.go(SupervisorState::Stopping { pid: id });
    }

    async fn kill(&mut self, id: ProcessId) {
        warn!(pid = id.0, "mysqld is killed");
        if let Err(error) = process::kill(id) {
            warn!(pid = id.0, "mysqld cannot be killed: {error}");
        }
        self.something_changes().await;
    }

    fn fail(&mut self, cause: String) {
        let wait = self.backoff.fail();
        error!(retry_in = ?wait, "{cause}");
        self.not_before = Some(Instant::now() + wait);
        self.go(SupervisorState::Failed { cause });
    }

    fn empty_data_dir(&self) -> String {
        format!(
            "the data directory {} is empty: restore a copy into it, or set mysql.initialize = true for a new server",
            self.options.server.data_dir.display()
        )
    }

    fn init_file(&self) -> PathBuf {
        self.options.server.pid_file.with_extension("init.sql")
    }

    /// The last lines of the error log that are errors, for a message.
    fn last_errors(&self) -> String {
        const SHOWN: usize = 3;
        let file = self.options.server.error_log_file();
        let log = end_of(&file).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let errors: Vec<&str> = text
            .lines()
            .rev()
            .filter(|line| line.contains("[ERROR]"))
            .take(SHOWN)
            .collect();
        match errors.is_empty() {
            true => format!("; see {}", file.display()),
            false => format!("; {} says: {}", file.display(), errors.join(" / ")),
        }
    }

    fn go(&self, state: SupervisorState) {
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            if changed {
                status.state = state;
                status.since = Instant::now();
            }
            changed
        });
    }
}

/// The last 64 KiB of a file.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    const SHOWN: u64 = 64 << 10;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN)))?;
    let mut end = Vec::new();
    file.take(SHOWN).read_to_end(&mut end)?;
    Ok(end)
}

fn ended_with(status: ExitStatus) -> String {
    format!("mysqld ended ({status})")
}

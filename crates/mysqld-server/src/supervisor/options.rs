//! How mysqld is run, with the time limits of every step; the interface of a supervisor; and the
//! guard of the moment before a start.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_link::ConnectOptions;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::STATEMENT_LIMIT;
use crate::supervisor::command_line::{AccountRights, ServerCommand};
use crate::supervisor::decision::{Found, ProcessId, Restart, Wanted};
use crate::supervisor::external::ExternalServer;
use crate::supervisor::launch::SupervisorError;
use crate::supervisor::process::{self, Mark};

/// Which mysqld the supervisor runs, and the time limits of its steps.
#[derive(Debug, Clone)]
pub struct SupervisorOptions {
    /// Program, arguments and files of mysqld.
    pub server: ServerCommand,
    /// How it is started and stopped when another program owns it: then of the command line only the places
    /// of its data, its binlog and its pid file matter.
    pub external: Option<Arc<dyn ExternalServer>>,
    /// The member's account. It is created when the data directory is initialised.
    pub account: ConnectOptions,
    /// The privileges of that account.
    pub rights: AccountRights,
    /// Whether persisted values that contradict the member's command line may be removed from `mysqld-auto.cnf` before a start. If
    /// not, such a server is not started.
    pub may_take_out_persisted: bool,
    /// True if an empty data directory is initialised.
    pub may_initialise: bool,
    /// How long commits may take to drain before a stop.
    pub drain_limit: Duration,
    /// The first and the longest wait before mysqld is started again after it died.
    pub retry: (Duration, Duration),
}

impl SupervisorOptions {
    /// The defaults: ten seconds to drain.
    pub fn new(server: ServerCommand, account: ConnectOptions) -> Self {
        Self {
            server,
            external: None,
            account: account.bounded("witness-supervisor", STATEMENT_LIMIT),
            rights: AccountRights::All,
            may_take_out_persisted: true,
            may_initialise: false,
            drain_limit: Duration::from_secs(10),
            retry: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    /// The process that serves the data directory.
    pub(super) fn find(&self) -> Found {
        let mark = self.mark();
        match &self.external {
            Some(external) => external.find(&mark),
            None => process::find(&mark),
        }
    }

    /// True if a process that served the data directory still does.
    pub(super) fn serves(&self, id: ProcessId) -> bool {
        let mark = self.mark();
        match &self.external {
            Some(external) => external.serves(id, &mark),
            None => process::serves(id, &mark),
        }
    }

    /// How the server is identified among the system's processes.
    pub(super) fn mark(&self) -> Mark {
        let works_in = || fs::canonicalize(&self.server.data_dir).ok();
        Mark {
            argument: self.server.data_dir_argument(),
            works_in: self.external.as_ref().and_then(|_| works_in()),
            pid_file: self.server.pid_file.clone(),
        }
    }

    /// Kills the server, if there is one.
    ///
    /// # Errors
    /// [`SupervisorError`].
    pub async fn kill(&self) -> Result<(), SupervisorError> {
        if let Some(external) = &self.external {
            return external.kill().await;
        }
        // A wrapper would start another one.
        Ok(process::kill_all(&self.mark())?)
    }
}

// The supervisor's reports, and its commands.

/// The supervisor's current activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorState {
    /// No check yet.
    Beginning,
    /// The data directory is being initialised.
    Initialising,
    /// mysqld runs. The watch reports whether it answers.
    Running {
        /// Process id of mysqld.
        pid: ProcessId,
        /// Whether it ran before this supervisor did.
        adopted: bool,
    },
    /// mysqld died or did not start; another attempt follows.
    Failed {
        /// Why, and what to check.
        cause: String,
    },
    /// mysqld is down, and must not start yet.
    Held {
        /// What it waits for, or the manual steps needed.
        cause: String,
    },
    /// Before a stop: commits complete.
    Draining {
        /// What the drain waits for, as a message.
        cause: String,
    },
    /// mysqld was asked to stop.
    Stopping {
        /// Process id of mysqld.
        pid: ProcessId,
    },
    /// No mysqld runs, or it is left alone; the supervisor has ended.
    Ended,
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// The supervisor's current activity.
    pub state: SupervisorState,
    /// Since when the state is unchanged.
    pub since: Instant,
    /// How often it has started mysqld.
    pub starts: u64,
    /// A problem in how the last one was started, and its fix. It does not prevent operation.
    pub warning: Option<String>,
}

/// Commands a supervisor, and receives its status.
#[derive(Debug)]
pub struct SupervisorHandle {
    pub(super) wanted: watch::Sender<Wanted>,
    /// Number of restart requests, and the kind of the last one.
    pub(super) restart: watch::Sender<(u64, Restart)>,
    /// True until a new data directory is initialised for mysqld.
    pub(super) new_data: watch::Sender<bool>,
    /// Whether this supervisor can initialise one.
    pub(super) initialises: bool,
    pub(super) status: watch::Receiver<SupervisorStatus>,
}

impl SupervisorHandle {
    /// The supervisor's current activity.
    pub fn status(&self) -> watch::Receiver<SupervisorStatus> {
        self.status.clone()
    }

    /// Stops mysqld and waits until it is gone. Ingest must continue in the meantime, because commits that
    /// wait for their ACK may complete; stop the controller before, because it opens the server.
    pub async fn stop(&self) {
        self.wanted.send_replace(Wanted::Stopped);
        self.ended().await;
    }

    /// Kills mysqld and restarts it. Unlike a stop, this does not let through commits that wait for an ACK.
    pub fn kill_and_restart(&self) {
        self.start_anew(Restart::Kill);
    }

    fn start_anew(&self, how: Restart) {
        self.restart.send_modify(|(times, last)| {
            *times += 1;
            *last = how;
        });
    }

    /// Stops mysqld cleanly, restarts it, and waits until another process runs. Ingest must continue in the meantime, and the
    /// server must not be opened.
    ///
    /// # Errors
    /// It does not start, or the supervisor has ended.
    pub async fn restart(&self) -> Result<(), SupervisorError> {
        let mut status = self.status.clone();
        let (starts, begun) = (status.borrow().starts, Instant::now());
        self.start_anew(Restart::Stop);
        let outcome = status.wait_for(|now| match &now.state {
            SupervisorState::Running { .. } => now.starts > starts,
            SupervisorState::Failed { .. } => now.since > begun,
            SupervisorState::Ended => true,
            _ => false,
        });
        let outcome = outcome.await.map(|status| status.state.clone());
        match outcome {
            Ok(SupervisorState::Running { .. }) => Ok(()),
            Ok(SupervisorState::Failed { cause }) => Err(SupervisorError::NotStarted(cause)),
            _ => Err(SupervisorError::SupervisorEnded),
        }
    }

    /// Requests a new data directory in place of one on which mysqld cannot start; the old one is renamed and kept.
    /// Returns whether the supervisor can: it cannot where other programs start mysqld.
    pub fn initialise_new_data(&self) -> bool {
        if self.initialises {
            self.new_data.send_replace(true);
        }
        self.initialises
    }

    /// Ends the supervisor and leaves mysqld running, for a member about to restart.
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

// The guard of the moment before a start.

/// Why a guard refuses: each guard has its own reasons.
pub type GuardError = Box<dyn std::error::Error + Send + Sync>;

/// Asked before each start of mysqld, the first one too, while none runs on the data directory.
pub trait StartGuard: Send + Sync + 'static {
    /// Its activity, for the status.
    fn what(&self) -> &str;

    /// Prepares for a start. Bounded, and cancel safe: after a drop, another call may follow immediately. Calls
    /// also follow after a refusal.
    ///
    /// # Errors
    /// Why mysqld must not start now.
    fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>>;

    /// Queries a mysqld that starts, or was started before this supervisor. Returns once it has answered.
    ///
    /// # Errors
    /// Why it must be killed and restarted.
    fn after_start<'a>(&'a self, _: &'a ConnectOptions) -> BoxFuture<'a, Result<(), GuardError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether mysqld may start again without the guard, as after a copy of another server's data.
    fn may_start_itself(&self) -> bool {
        false
    }

    /// Called before a running mysqld is asked to stop. Bounded.
    fn before_stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

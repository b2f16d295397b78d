//! The options and time limits for running mysqld, the interface of a supervisor, and the start guard's interface.

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
    /// How mysqld is started and stopped if another program owns it. Of the command line, only the locations of data, binlog and pid file
    /// matter then.
    pub external: Option<Arc<dyn ExternalServer>>,
    /// The member's account, created when the data directory is initialised.
    pub account: ConnectOptions,
    /// The privileges of that account.
    pub rights: AccountRights,
    /// True if contradicting persisted values may be removed from `mysqld-auto.cnf` before a start. If false, a server with such values is
    /// not started.
    pub may_take_out_persisted: bool,
    /// True if an empty data directory is initialised.
    pub may_initialise: bool,
    /// How long commits may take to drain before a stop.
    pub drain_limit: Duration,
    /// The shortest and the longest wait before mysqld is restarted after it died.
    pub retry: (Duration, Duration),
}

impl SupervisorOptions {
    /// The defaults, with ten seconds to drain.
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

    /// Finds the process that uses the data directory.
    pub(super) fn find(&self) -> Found {
        let mark = self.mark();
        match &self.external {
            Some(external) => external.find(&mark),
            None => process::find(&mark),
        }
    }

    /// True if a process that used the data directory still does.
    pub(super) fn serves(&self, id: ProcessId) -> bool {
        let mark = self.mark();
        match &self.external {
            Some(external) => external.serves(id, &mark),
            None => process::serves(id, &mark),
        }
    }

    /// What identifies the server among the system's processes.
    pub(super) fn mark(&self) -> Mark {
        let works_in = || fs::canonicalize(&self.server.data_dir).ok();
        Mark {
            argument: self.server.data_dir_argument(),
            works_in: self.external.as_ref().and_then(|_| works_in()),
            pid_file: self.server.pid_file.clone(),
        }
    }

    /// Kills the server if it runs.
    ///
    /// # Errors
    /// [`SupervisorError`].
    pub async fn kill(&self) -> Result<(), SupervisorError> {
        if let Some(external) = &self.external {
            return external.kill().await;
        }
        // A wrapper that survived would start another mysqld.
        Ok(process::kill_all(&self.mark())?)
    }
}

// The supervisor's reports and commands.

/// The supervisor's current activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorState {
    /// No check was made yet.
    Beginning,
    /// The data directory is being initialised.
    Initialising,
    /// mysqld runs. The watch, another task, reports whether mysqld answers.
    Running {
        /// Process id of mysqld.
        pid: ProcessId,
        /// True if mysqld ran before this supervisor started.
        adopted: bool,
    },
    /// mysqld died or did not start; another attempt follows.
    Failed {
        /// The cause, and what to check.
        cause: String,
    },
    /// mysqld is down, and must not start yet.
    Held {
        /// What the start waits for, or the manual steps needed.
        cause: String,
    },
    /// Commits complete before a stop.
    Draining {
        /// What the drain waits for, as a message.
        cause: String,
    },
    /// mysqld was asked to stop.
    Stopping {
        /// The member has requested a clean stop of mysqld.
        pid: ProcessId,
    },
    /// The supervisor has ended: mysqld was stopped, or keeps running without it.
    Ended,
}

/// The supervisor's state, its age, and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorStatus {
    /// The supervisor's current activity.
    pub state: SupervisorState,
    /// Since when the state is unchanged.
    pub since: Instant,
    /// How often the supervisor has started mysqld.
    pub starts: u64,
    /// A problem of the last start, and its fix. It does not prevent operation.
    pub warning: Option<String>,
}

/// Commands a supervisor, and receives its status.
#[derive(Debug)]
pub struct SupervisorHandle {
    pub(super) wanted: watch::Sender<Wanted>,
    /// Number of restart requests, and the kind of the last request.
    pub(super) restart: watch::Sender<(u64, Restart)>,
    /// True until a new data directory is initialised for mysqld.
    pub(super) new_data: watch::Sender<bool>,
    /// True if this supervisor can initialise a data directory.
    pub(super) initialises: bool,
    pub(super) status: watch::Receiver<SupervisorStatus>,
}

impl SupervisorHandle {
    /// The supervisor's current activity.
    pub fn status(&self) -> watch::Receiver<SupervisorStatus> {
        self.status.clone()
    }

    /// Stops mysqld and waits until it has ended. Ingest must continue in the meantime, because commits that wait for their ACK may
    /// complete. Stop the controller before this call, because the controller opens the server.
    pub async fn stop(&self) {
        self.wanted.send_replace(Wanted::Stopped);
        self.ended().await;
    }

    /// Kills mysqld and restarts it. Unlike a stop, this does not complete commits that wait for an ACK.
    pub fn kill_and_restart(&self) {
        self.start_anew(Restart::Kill);
    }

    fn start_anew(&self, how: Restart) {
        self.restart.send_modify(|(times, last)| {
            *times += 1;
            *last = how;
        });
    }

    /// Stops mysqld cleanly, restarts it, and waits until another process runs. Ingest must continue in the meantime, and the server must
    /// not be opened.
    ///
    /// # Errors
    /// mysqld does not start, or the supervisor has ended.
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

    /// Requests a new data directory in place of one on which mysqld cannot start. The old directory is renamed and kept. Returns false if
    /// other programs start mysqld, because the supervisor then cannot do that.
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
        // An error means that the supervisor's task has ended.
        let _ = status
            .wait_for(|status| status.state == SupervisorState::Ended)
            .await;
    }
}

// The guard that decides before each start.

/// Why a guard refuses. Each guard has its own reasons.
pub type GuardError = Box<dyn std::error::Error + Send + Sync>;

/// Decides before each start of mysqld, including the first. No mysqld uses the data directory at that moment.
pub trait StartGuard: Send + Sync + 'static {
    /// The guard's current activity, for the status.
    fn what(&self) -> &str;

    /// Prepares for a start. Has a time limit. If the future is dropped, another call may follow immediately. More calls also follow after
    /// a refusal.
    ///
    /// # Errors
    /// Why mysqld must not start now.
    fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>>;

    /// Checks a mysqld that is starting, or was started before this supervisor. Returns after mysqld has answered.
    ///
    /// # Errors
    /// Why mysqld must be killed and restarted.
    fn after_start<'a>(&'a self, _: &'a ConnectOptions) -> BoxFuture<'a, Result<(), GuardError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// True if mysqld may restart without the guard, as it does after a copy of another server's data.
    fn may_start_itself(&self) -> bool {
        false
    }

    /// Called before a running mysqld is asked to stop. Has a time limit.
    fn before_stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

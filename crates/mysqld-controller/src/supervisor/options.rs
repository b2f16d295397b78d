//! How mysqld is run, with the bounds of everything that it may take time for; what a supervisor tells of it and is told; and who
//! owns the moment before a start.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_link::ConnectOptions;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::STATEMENT_LIMIT;
use crate::supervisor::command_line::{AccountRights, ServerCommand};
use crate::supervisor::decision::{Found, ProcessId, Restart, Wanted};
use crate::supervisor::external::ExternalServer;
use crate::supervisor::process;
use crate::supervisor::process::Mark;

/// Which mysqld the supervisor runs, and how long its steps may take.
#[derive(Debug, Clone)]
pub struct SupervisorOptions {
    /// Program, arguments and files of mysqld.
    pub server: ServerCommand,
    /// How it is started and stopped when something else owns it: then of the command line only the places
    /// of its data, its binlog and its pid file matter.
    pub external: Option<Arc<dyn ExternalServer>>,
    /// The member's account. It is created when the data directory is initialised.
    pub account: ConnectOptions,
    /// What it may do then.
    pub rights: AccountRights,
    /// Whether what is persisted may be taken out of `mysqld-auto.cnf` before a start where it contradicts the member's command line. If
    /// not, such a server is not started.
    pub may_take_out_persisted: bool,
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
    pub fn new(server: ServerCommand, account: ConnectOptions) -> Self {
        Self {
            server,
            external: None,
            account: account.bounded("witness-supervisor", STATEMENT_LIMIT),
            rights: AccountRights::All,
            may_take_out_persisted: true,
            may_initialise: false,
            drain_limit: Duration::from_secs(10),
            stop_limit: Duration::from_secs(120),
            initialise_limit: Duration::from_secs(300),
            retry: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    /// What serves the data directory.
    pub(super) fn find(&self) -> Found {
        let mark = self.mark();
        match &self.external {
            Some(external) => external.find(&mark),
            None => process::find(&mark),
        }
    }

    /// Whether a process that served the data directory still does.
    pub(super) fn serves(&self, id: ProcessId) -> bool {
        let mark = self.mark();
        match &self.external {
            Some(external) => external.serves(id, &mark),
            None => process::serves(id, &mark),
        }
    }

    /// By what the server is known among the system's processes.
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
    /// In words.
    pub async fn kill(&self) -> Result<(), String> {
        if let Some(external) = &self.external {
            return external.kill().await;
        }
        // A wrapper would start another one.
        process::kill_all(&self.mark()).map_err(|error| error.to_string())
    }
}

// What a supervisor tells, and how it is told what is wanted.

/// What the supervisor is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SupervisorState {
    /// It has not looked yet.
    Beginning,
    /// The data directory is being made.
    Initialising,
    /// mysqld runs. Whether it answers is the watch's to say.
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
    /// mysqld is down, and may not start yet.
    Held {
        /// What is waited for, or what has to be done by hand.
        cause: String,
    },
    /// Before a stop: commits finish.
    Draining {
        /// What the drain waits for, in words.
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
    /// What the supervisor is doing.
    pub state: SupervisorState,
    /// Since when the state is as it is.
    pub since: Instant,
    /// How often it has started mysqld.
    pub starts: u64,
    /// What is wrong with how the last one was started, and what to do about it. It keeps mysqld from nothing.
    pub warning: Option<String>,
}

/// Tells a supervisor what is wanted, and sees what it does.
#[derive(Debug)]
pub struct SupervisorHandle {
    pub(super) wanted: watch::Sender<Wanted>,
    /// How often mysqld was to be started anew, and how the last time.
    pub(super) anew: watch::Sender<(u64, Restart)>,
    /// True until a new data directory is initialised for mysqld.
    pub(super) new_data: watch::Sender<bool>,
    /// Whether this supervisor can initialise one.
    pub(super) initialises: bool,
    pub(super) status: watch::Receiver<SupervisorStatus>,
}

impl SupervisorHandle {
    /// What the supervisor is doing.
    pub fn status(&self) -> watch::Receiver<SupervisorStatus> {
        self.status.clone()
    }

    /// Stops mysqld and waits until it is gone. Ingest has to go on meanwhile, because commits that
    /// wait for their ACK are let finish; the controller has to be stopped before, because it opens.
    pub async fn stop(&self) {
        self.wanted.send_replace(Wanted::Stopped);
        self.ended().await;
    }

    /// Kills mysqld and starts it again. What waits for an ACK in it is not let through by that, as it would be in a stop.
    pub fn kill_and_restart(&self) {
        self.start_anew(Restart::Kill);
    }

    fn start_anew(&self, how: Restart) {
        self.anew.send_modify(|(times, last)| {
            *times += 1;
            *last = how;
        });
    }

    /// Stops mysqld in good order, starts it again, and waits until another one runs. Ingest has to go on meanwhile, and nothing
    /// may open it.
    ///
    /// # Errors
    /// In words: it does not start, or the supervisor has ended.
    pub async fn restart(&self) -> Result<(), String> {
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
            Ok(SupervisorState::Failed { cause }) => Err(cause),
            _ => Err("the member stops to look after its mysqld".to_owned()),
        }
    }

    /// Has a new data directory initialised in the place of one on which mysqld cannot be started; the old one is renamed and kept.
    /// Whether the supervisor can: it cannot where other programs start mysqld.
    pub fn initialise_new_data(&self) -> bool {
        if self.initialises {
            self.new_data.send_replace(true);
        }
        self.initialises
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

// Who owns the moment before a start.

/// Asked before each start of mysqld, the first one too, while none runs on the data directory.
pub trait StartGuard: Send + Sync + 'static {
    /// What it does or waits for, for people to read meanwhile.
    fn what(&self) -> &str;

    /// Makes ready for a start. Bounded, and cancel safe: dropped, it may be asked again at once. It is
    /// asked again, too, after it has refused.
    ///
    /// # Errors
    /// In words, why mysqld must not start now.
    fn before_start(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Asks a mysqld that starts, or was started before this supervisor. Ends when it has answered.
    ///
    /// # Errors
    /// Why it must be killed and started again.
    fn after_start<'a>(&'a self, _: &'a ConnectOptions) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether mysqld may start again without the guard, as after a copy of another one's data.
    fn may_start_itself(&self) -> bool {
        false
    }

    /// Told before mysqld, which runs, is asked to stop. Bounded.
    fn before_stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

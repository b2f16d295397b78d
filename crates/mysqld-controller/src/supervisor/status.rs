//! What a supervisor tells, and how it is told what is wanted.

use std::time::Instant;

use serde::Serialize;
use tokio::sync::watch;

use crate::supervisor::decision::{ProcessId, Wanted};

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
    /// mysqld is down, and may not start yet.
    Held {
        /// What is waited for, or what has to be done by hand.
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
    /// What is wrong with how the last one was started, and what to do about it.
    pub warning: Option<String>,
}

/// Tells a supervisor what is wanted, and sees what it does.
#[derive(Debug)]
pub struct SupervisorHandle {
    pub(super) wanted: watch::Sender<Wanted>,
    /// How often mysqld was to be started anew.
    pub(super) anew: watch::Sender<u64>,
    pub(super) status: watch::Receiver<SupervisorStatus>,
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

    /// Kills mysqld and starts it again. What waits for an ACK in it is not let through by that, as it would be in a stop.
    pub fn kill_and_restart(&self) {
        self.anew.send_modify(|times| *times += 1);
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

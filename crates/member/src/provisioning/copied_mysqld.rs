//! The mysqld that receives a copy, and the waits during the copy: for an answer, for the data, for the restart, and for its role.

use std::sync::Arc;
use std::time::Duration;

use mysql_link::ConnectOptions;
use mysqld_controller::status::{RoleState, RoleStatus};
use mysqld_server::provision::{CloneAccount, CopyState, ProvisionError, executed, look};
use mysqld_server::supervisor::{SupervisorHandle, SupervisorState};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::protocol::{CommandEvent, CommandProgress, Refusal};

/// Interval between checks of a copy.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// How long a member's own mysqld may take to restart.
const COME_BACK: Duration = Duration::from_secs(600);
/// Number of failed starts after which mysqld gets a new data directory.
const FAILED_STARTS: u64 = 2;
/// How long an operator may take to start mysqld, if this member does not start it.
const BY_HAND: Duration = Duration::from_secs(3600);
/// How long a provisioned mysqld may take until it follows. After that, the command ends without this result.
const FOLLOW: Duration = Duration::from_secs(60);
/// How long the applier may take to stop, and how long a copy may take to begin.
pub(crate) const BEGIN: Duration = Duration::from_secs(60);

/// Why a copy did not complete.
pub(crate) struct Stop {
    /// True if mysqld may have begun to remove its data.
    pub(crate) begun: bool,
    pub(crate) why: String,
}

pub(crate) struct CopiedMysqld {
    pub(crate) connect: ConnectOptions,
    /// The role of mysqld in the ring; `None` if nothing is applied to it.
    pub(crate) role: Option<watch::Receiver<RoleStatus>>,
    /// True if the member applies the log itself; false if mysqld's own replica threads do.
    pub(crate) applies_rows: bool,
    /// The supervisor of mysqld; `None` if this member does not start it.
    pub(crate) supervisor: Option<Arc<SupervisorHandle>>,
}

impl CopiedMysqld {
    /// Returns why mysqld does not run, if this is known.
    pub(crate) fn why_down(&self) -> Option<String> {
        match &self.supervisor.as_ref()?.status().borrow().state {
            SupervisorState::Held { cause } | SupervisorState::Failed { cause } => {
                Some(cause.clone())
            }
            _ => None,
        }
    }

    /// Waits until mysqld answers. If this member starts mysqld, it gets a new data directory after two failed starts.
    ///
    /// # Errors
    /// If mysqld does not answer in time. If another program starts mysqld, also if it cannot be started.
    pub(crate) async fn answers(&self) -> Result<(), Refusal> {
        let mut deadline = Instant::now() + COME_BACK;
        let starts = |one: &Arc<SupervisorHandle>| one.status().borrow().starts;
        let before = self.supervisor.as_ref().map_or(0, starts);
        let mut new_data = false;
        loop {
            let Err(error) = executed(&self.connect).await else {
                return Ok(());
            };
            if let Some(supervisor) = &self.supervisor
                && !new_data
                && starts(supervisor) - before >= FAILED_STARTS
                && self.why_down().is_some()
            {
                new_data = true;
                deadline = Instant::now();
                if supervisor.initialise_new_data() {
                    deadline += COME_BACK;
                }
            }
            if Instant::now() >= deadline {
                let why = self.why_down().unwrap_or_else(|| error.to_string());
                return Err(Refusal::failed(
                    format!("mysqld does not run, and a copy needs one that does: {why}"),
                    "fix that; or empty its data directory, have it initialised (mysql.initialize = true), and try again",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until all data has arrived, or no more data arrives.
    pub(crate) async fn copied(
        &self,
        account: &CloneAccount,
        mut copying: Option<JoinHandle<Result<(), ProvisionError>>>,
        events: &CommandProgress,
    ) -> Result<(), Stop> {
        let mut ended = None;
        let began = Instant::now();
        loop {
            if let Some(task) = copying.take_if(|task| task.is_finished()) {
                ended = Some(match task.await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                });
            }
            match look(&self.connect, account).await {
                CopyState::There | CopyState::Ending => return Ok(()),
                CopyState::UnderWay { stage, bytes, of } => {
                    events.tell(&CommandEvent::Copied { stage, bytes, of });
                }
                // The connection may end together with mysqld, which then restarts, with or without the copy.
                CopyState::Down(_) if copying.is_none() => return Ok(()),
                CopyState::Down(_) => {}
                CopyState::Not { begun, error } => {
                    let why = ended.clone().or(error);
                    if copying.is_none() || began.elapsed() > BEGIN {
                        let why = why.unwrap_or_else(|| "mysqld copies nothing".to_owned());
                        return Err(Stop { begun, why });
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until mysqld runs with the copied data.
    pub(crate) async fn restarted(&self, account: &CloneAccount) -> Result<(), Stop> {
        let limit = self.supervisor.as_ref().map_or(BY_HAND, |_| COME_BACK);
        let deadline = Instant::now() + limit;
        loop {
            let why = match look(&self.connect, account).await {
                CopyState::There => return Ok(()),
                CopyState::Not { error, .. } => {
                    let why = error.unwrap_or_else(|| "mysqld came back without it".to_owned());
                    return Err(Stop { begun: true, why });
                }
                CopyState::Down(why) => self.why_down().unwrap_or(why),
                CopyState::Ending | CopyState::UnderWay { .. } => {
                    "mysqld does not restart".to_owned()
                }
            };
            if Instant::now() >= deadline {
                return Err(Stop { begun: true, why });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns the role of mysqld: waits at most for [`FOLLOW`] until it follows.
    pub(crate) async fn followed(&self) -> Result<RoleState, Refusal> {
        let Some(mut role) = self.role.clone() else {
            return Ok(RoleState::Unknown);
        };
        let works =
            |status: &RoleStatus| matches!(status.state, RoleState::Following | RoleState::Primary);
        // The status shows why mysqld does not follow yet.
        drop(tokio::time::timeout(FOLLOW, role.wait_for(works)).await);
        let state = role.borrow().state.clone();
        Ok(state)
    }
}

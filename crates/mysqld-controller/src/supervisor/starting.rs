//! Starting mysqld: asks the guard, runs the command, and checks how it booted.

use std::time::Duration;

use spilling_bytes::long_work;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::settings::WHY;
use crate::supervisor::decision::{Found, ProcessId, Wanted};
use crate::supervisor::external::booted_open;
use crate::supervisor::launch::SupervisorError;
use crate::supervisor::options::SupervisorState;
use crate::supervisor::persisted_file;
use crate::supervisor::supervisor_task::{Server, Supervisor};

/// From a check that found nothing to its confirmation.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// How long a child is asked whether it booted open: its command line ensures that it did not.
const CHILD_LIMIT: Duration = Duration::from_secs(60);

impl Supervisor {
    pub(super) async fn start(&mut self) {
        // A starting program shows no arguments for a moment: check twice before starting
        // a second server on one data directory.
        tokio::time::sleep(SECOND_LOOK).await;
        if self.found() != Found::Nothing {
            return;
        }
        self.not_before = None;
        if !self.may_start().await || self.found() != Found::Nothing {
            return;
        }
        match self.try_start().await {
            Ok(server) => {
                info!(pid = server.id.0, "mysqld is started");
                self.status.send_modify(|status| {
                    status.starts += 1;
                    status.warning.clone_from(&self.unguarded);
                });
                self.guarded = Some(self.identity(server.id));
                self.look_how_it_booted();
                self.check_start();
                self.go(SupervisorState::Running {
                    pid: server.id,
                    adopted: false,
                });
                self.server = Some(server);
            }
            Err(cause) => self.fail(format!("mysqld cannot be started: {cause}")),
        }
    }

    /// Asks the guard, at regular intervals: what it waits for may happen at any moment.
    async fn may_start(&mut self) -> bool {
        let Some(guard) = self.guard.clone() else {
            return true;
        };
        if !matches!(self.status.borrow().state, SupervisorState::Held { .. }) {
            self.go(SupervisorState::Held {
                cause: guard.what().to_owned(),
            });
        }
        let unwanted = self.unwanted();
        let answer = tokio::select! {
            answer = guard.before_start() => answer,
            () = unwanted => return false,
        };
        let Err(cause) = answer else {
            return true;
        };
        let cause = cause.to_string();
        self.not_before = Some(Instant::now() + self.options.retry.0);
        if self.go(SupervisorState::Held {
            cause: cause.clone(),
        }) {
            warn!("mysqld is not started: {cause}");
        }
        false
    }

    /// Completes when mysqld should no longer run.
    pub(super) fn unwanted(&self) -> impl Future<Output = ()> + use<> {
        let mut wanted = self.wanted.clone();
        async move {
            if wanted
                .wait_for(|wanted| *wanted != Wanted::Running)
                .await
                .is_err()
            {
                // The handle is gone: the goal cannot change.
                std::future::pending().await
            }
        }
    }

    /// Values persisted while the member was away override every command line: with them, mysqld would boot open for writes, or
    /// commit without the ring.
    async fn without_contradictions(&self) -> Result<(), SupervisorError> {
        let (data_dir, may) = (
            self.options.server.data_dir.clone(),
            self.options.may_take_out_persisted,
        );
        let look = long_work::on_disk(move || persisted_file::contradicting(&data_dir, may));
        let found = look.await.map_err(SupervisorError::PersistedFile)?;
        let words: Vec<_> = found
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let words = words.join(", ");
        match (found.is_empty(), may) {
            (true, _) => Ok(()),
            (false, true) => {
                warn!("{words}: taken out of mysqld-auto.cnf, where it was persisted; {WHY}");
                Ok(())
            }
            (false, false) => Err(SupervisorError::Persisted(words)),
        }
    }

    async fn try_start(&mut self) -> Result<Server, SupervisorError> {
        self.without_contradictions().await?;
        // A start command may return before its mysqld is visible: that one has passed the guard.
        self.guarded = None;
        if let Some(external) = &self.options.external {
            external.start().await?;
            let Found::Unknown(id) = self.options.find() else {
                return Err(SupervisorError::NotFound);
            };
            return Ok(Server {
                id,
                child: None,
                since: Instant::now(),
            });
        }
        let version = match self.version {
            Some(version) => version,
            None => self.options.server.ask_version().await?,
        };
        self.version = Some(version);
        self.log_before = self.options.server.error_log_len();
        let child = self
            .options
            .server
            .spawn(&self.options.server.words(version))?;
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .map(ProcessId);
        let id = id.ok_or(SupervisorError::EndedAtOnce)?;
        Ok(Server {
            id,
            child: Some(child),
            since: Instant::now(),
        })
    }

    /// Lets the guard query the started server, and kills it where it must restart.
    pub(super) fn check_start(&self) {
        let Some(guard) = self.guard.clone() else {
            return;
        };
        let options = self.options.clone();
        tokio::spawn(async move {
            if let Err(why) = guard.after_start(&options.account).await {
                error!("{why}");
                if let Err(cause) = options.kill().await {
                    warn!("mysqld cannot be killed: {cause}");
                }
            }
        });
    }

    /// A child's command line decides that, unless a persisted value was set in between; the configuration of an external one may not.
    fn look_how_it_booted(&self) {
        let external = self.options.external.as_ref();
        let limit = external.map_or(CHILD_LIMIT, |external| external.start_limit());
        let account = self.options.account.clone();
        let status = self.status.clone();
        let starts = status.borrow().starts;
        tokio::spawn(async move {
            let open = tokio::time::timeout(limit, booted_open(&account)).await;
            if let Ok(Some(open)) = open
                && status.borrow().starts == starts
            {
                let words = open.words();
                error!("{words}");
                status.send_modify(|status| status.warning = Some(words));
            }
        });
    }
}

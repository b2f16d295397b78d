//! The primary as a writer of the member's log, which is paused before the leadership is given away: the gate closes, behind
//! everything that commits.

use std::sync::Arc;
use std::time::Duration;

use consensus::Writer;
use futures::future::BoxFuture;
use mysql_role::gate::{GateState, GateStatus};
use mysql_role::supervisor::{SupervisorState, SupervisorStatus};
use tokio::sync::watch;

/// How long the gate may take. Closing waits behind statements that run for a second at most, and is tried once.
const LIMIT: Duration = Duration::from_secs(4);

/// See the module.
pub(crate) struct PrimaryWriter {
    pub(super) handing_over: Arc<watch::Sender<bool>>,
    pub(super) gate: watch::Receiver<GateStatus>,
    pub(super) supervisor: Option<watch::Receiver<SupervisorStatus>>,
}

impl PrimaryWriter {
    /// No process, no writes: the next one begins closed.
    fn is_down(&self) -> bool {
        let down = |state: &SupervisorState| matches!(state, SupervisorState::Failed { .. });
        let supervisor = self.supervisor.as_ref();
        supervisor.is_some_and(|supervisor| down(&supervisor.borrow().state))
    }
}

impl Writer for PrimaryWriter {
    fn pause(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.handing_over.send_replace(true);
            if self.is_down() {
                return Ok(());
            }
            let mut gate = self.gate.clone();
            let open = |state: &GateState| matches!(state, GateState::Open);
            let decided = gate.wait_for(|status| !open(&status.state));
            match tokio::time::timeout(LIMIT, decided).await {
                Err(_) => Err("the gate did not close in time".to_owned()),
                // Without a gate there is no primary any more.
                Ok(Err(_)) => Ok(()),
                Ok(Ok(status)) => match &status.state {
                    GateState::NotClosed { cause, .. } => Err(cause.clone()),
                    _ => Ok(()),
                },
            }
        })
    }

    fn resume(&self) {
        self.handing_over.send_replace(false);
    }
}

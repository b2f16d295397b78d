//! `SHUTDOWN` or `RESTART` by SQL at a primary whose commits wait for the ring: mysqld would let them through without an ACK, tell
//! their clients OK, and close its binlog file in good order, so that nothing of it is ever cut. It closes its sessions and listens no more some
//! ten seconds before that, while our dump goes on; if the ring does not have all of them by then, the member kills it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysqld_controller::ingest::IngestFigures;
use mysqld_controller::supervisor::{SupervisorHandle, SupervisorState};
use mysqld_controller::watch::WatchReport;
use tokio::sync::watch;

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);
/// How long the ring has from the moment in which the stop was seen. mysqld gives waiting sessions ten seconds; it may be seen late.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) struct UnaskedStop {
    pub(crate) reports: watch::Receiver<WatchReport>,
    pub(crate) figures: Arc<IngestFigures>,
    pub(crate) supervisor: Arc<SupervisorHandle>,
}

/// Whether it is killed: it stops since then although nobody asked the member for that (`runs`: its process is to run and does), and a
/// commit in it waits for the ring.
///
/// It is safe: a kill is what a crash does. What the ring has is recovered, what it lacks is cut off before the next start, and
/// no client was told anything. Without it, clients are told that commits succeeded that nobody but this server has.
fn kills(ending: Option<Duration>, runs: bool, waits: bool) -> bool {
    runs && waits && ending.is_some_and(|ending| ending >= PATIENCE)
}

impl UnaskedStop {
    /// Acts until it is dropped.
    pub(crate) async fn run(self) {
        let mut status = self.supervisor.status();
        loop {
            tokio::time::sleep(TICK).await;
            let ending = self.reports.borrow().ending;
            let runs = matches!(status.borrow().state, SupervisorState::Running { .. });
            let waits = self
                .figures
                .view(Instant::now())
                .oldest_unacknowledged
                .is_some();
            if !kills(ending.map(|since| since.elapsed()), runs, waits) {
                continue;
            }
            tracing::warn!(
                "mysqld stops, without the member's having asked for it, while commits wait for the ring: it is killed, so that it \
                 does not tell their clients that they succeeded"
            );
            self.supervisor.kill_and_restart();
            let killed =
                status.wait_for(|status| !matches!(status.state, SupervisorState::Running { .. }));
            // An error means that the supervisor is gone, and this task with it in a moment.
            let _ = tokio::time::timeout(PATIENCE, killed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stop_that_nobody_asked_for_with_commits_that_wait_is_cut_short() {
        let table = [
            (Some(2), true, true, true),
            (Some(1), true, true, false),
            (None, true, true, false),
            // The ring has all of it: an orderly stop.
            (Some(9), true, false, false),
            // The member stops it, or it has ended.
            (Some(9), false, true, false),
        ];
        for (ending, runs, waits, expected) in table {
            let killed = kills(ending.map(Duration::from_secs), runs, waits);
            assert_eq!(killed, expected, "{ending:?} {runs} {waits}");
        }
    }
}

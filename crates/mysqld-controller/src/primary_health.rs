//! Whether the mysqld of a leader, or of a member that could lead, can be the primary.

use std::time::Duration;

use mysqld_server::supervisor::{SupervisorState, SupervisorStatus};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ingest::{Failing, IngestStatus};
use crate::ring::changed;
use crate::status::{Readiness, RoleState, RoleStatus};
use crate::watch::{Protection, WatchReport};

/// The largest lag of a candidate. After a promotion, clients wait for about the lag.
const MOST_BEHIND: Duration = Duration::from_secs(5);

/// The reason of a member that does not apply the ring's log to its mysqld, if mysqld lacks part of the log.
pub const NEVER: &str = "nothing of the ring's log is applied to it (`mysql.apply = \"off\"` or `mysql.manage_settings = false`), and it \
                                lacks transactions";

/// True if a mysqld could serve clients if its member were the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrimaryHealth {
    /// mysqld can be the primary. Only its write fence may block clients, also for reasons of operators and settings.
    Fit,
    /// mysqld is applying missing entries of the ring's log; it lacks this many transactions.
    Lacks(u64),
    /// mysqld was the primary and stalls: it answers without committing, or does not answer. With the reason.
    Stalled(String),
    /// mysqld cannot be the primary, with the reason.
    Unable(String),
    /// mysqld cannot be the primary, with the reason. Waiting does not help, because the missing entries never arrive.
    Never(String),
    /// mysqld can be the primary, but this member's disk has no room for the log, with the reason. Another member has room.
    Full(String),
    /// mysqld's process has ended, with the reason. Another mysqld may become the primary long before it recovers.
    Down(String),
}

impl PrimaryHealth {
    /// Only this member's disk for the log is full.
    pub fn full() -> Self {
        Self::Full("this member's log has no room on its disk for more transactions".to_owned())
    }

    /// The member does not manage its mysqld.
    pub fn left_alone() -> Self {
        Self::Unable("its mysqld is unmanaged".to_owned())
    }

    /// Returns why mysqld cannot be the primary, as text.
    pub fn why(&self) -> Option<String> {
        match self {
            Self::Fit => None,
            Self::Lacks(lacks) => Some(format!(
                "mysqld lacks {lacks} transactions of the ring's log"
            )),
            Self::Stalled(why)
            | Self::Unable(why)
            | Self::Never(why)
            | Self::Full(why)
            | Self::Down(why) => Some(why.clone()),
        }
    }
}

/// Returns how many milliseconds a mysqld lags behind the ring's commits. This is the longer of two times: the lag behind this member's log
/// (`applied_ms`), and the time for which this member has lacked entries (`lacks`). Without contact to the ring, a complete log does not
/// prove that the lag is zero. A known lag behind the log is a lower bound.
pub fn lag_ms(applied_ms: Option<u64>, lacks: Option<Duration>) -> Option<u64> {
    let applied = applied_ms?;
    match lacks {
        Some(lacks) => Some(applied.max(u64::try_from(lacks.as_millis()).unwrap_or(u64::MAX))),
        None => Some(applied).filter(|applied| *applied > 0),
    }
}

/// The sources of a mysqld's health.
#[derive(Debug, Clone)]
pub struct HealthObserver {
    /// State of mysqld's process, if its member starts it.
    pub supervisor: Option<watch::Receiver<SupervisorStatus>>,
    /// The watcher's reports.
    pub reports: watch::Receiver<WatchReport>,
    /// True if mysqld's transactions are received.
    pub ingest: watch::Receiver<IngestStatus>,
    /// mysqld's role in the ring; `None` if nothing is applied to it.
    pub role: Option<watch::Receiver<RoleStatus>>,
}

impl HealthObserver {
    /// Returns the health of a leader's mysqld, which is the primary or becomes the primary.
    pub fn of_a_leaders(&self) -> PrimaryHealth {
        let ingest = self.ingest.borrow().clone();
        let look = Look {
            lacks_the_log: ingest.lacks_the_log(),
            failing: ingest.failing(Instant::now()).cloned(),
            ..self.look(None)
        };
        look.of_a_leaders()
    }

    /// Returns why another member's mysqld could not be the primary within moments, as far as no query is needed. `lacks`: for how long
    /// this member has lacked entries, if known.
    pub fn unfit(&self, readiness: Readiness, lacks: Option<Duration>) -> Option<String> {
        self.look(lacks).unfit(readiness)
    }

    fn look(&self, lacks: Option<Duration>) -> Look {
        let supervisor = self.supervisor.as_ref();
        let mut role = self.role.as_ref().map(|role| role.borrow().clone());
        if let Some(role) = &mut role {
            role.lag_ms = lag_ms(role.lag_ms, lacks);
        }
        Look {
            supervisor: supervisor.map(|status| status.borrow().state.clone()),
            report: self.reports.borrow().clone(),
            role,
            lacks_the_log: false,
            failing: None,
        }
    }

    /// Returns a copy that waits only for later changes.
    #[must_use]
    pub fn from_now(&self) -> Self {
        let mut observer = self.clone();
        observer.reports.mark_unchanged();
        observer.ingest.mark_unchanged();
        if let Some(supervisor) = &mut observer.supervisor {
            supervisor.mark_unchanged();
        }
        if let Some(role) = &mut observer.role {
            role.mark_unchanged();
        }
        observer
    }

    /// Waits until the health may have changed. Cancel safe.
    async fn changed(&mut self) {
        tokio::select! {
            () = changed(&mut self.reports) => {}
            () = changed(&mut self.ingest) => {}
            () = maybe_changed(self.supervisor.as_mut()) => {}
            () = maybe_changed(self.role.as_mut()) => {}
        }
    }
}

/// Waits for a change of the health; indefinitely if there is no observer. Cancel safe.
pub async fn health_changed(observer: &mut Option<HealthObserver>) {
    match observer {
        Some(observer) => observer.changed().await,
        None => std::future::pending().await,
    }
}

async fn maybe_changed<T>(told: Option<&mut watch::Receiver<T>>) {
    match told {
        Some(told) => changed(told).await,
        None => std::future::pending().await,
    }
}

/// The observed state of a mysqld at one moment.
struct Look {
    /// State of mysqld's process, if its member starts it.
    supervisor: Option<SupervisorState>,
    report: WatchReport,
    /// mysqld's role in the ring; `None` if nothing is applied to it.
    role: Option<RoleStatus>,
    /// True if a comparison in this term found that mysqld lacks transactions of the ring's log.
    lacks_the_log: bool,
    /// Why attempts to receive mysqld's transactions keep failing.
    failing: Option<Failing>,
}

impl Look {
    /// Returns the health of a leader's mysqld, which is the primary or becomes the primary.
    fn of_a_leaders(&self) -> PrimaryHealth {
        if let Some(broken) = self.broken() {
            return broken;
        }
        let health = match self.role.as_ref().map(|role| &role.state) {
            Some(RoleState::Following) => {
                PrimaryHealth::Unable("mysqld still follows the ring".to_owned())
            }
            Some(state) => of_role(state),
            None if self.lacks_the_log => PrimaryHealth::Never(NEVER.to_owned()),
            None => PrimaryHealth::Fit,
        };
        match (health, &self.failing) {
            // Commits on that mysqld wait for an ACK that no member sends.
            (PrimaryHealth::Fit, Some(failing)) => {
                PrimaryHealth::Unable(not_received(&failing.cause))
            }
            (health, _) => health,
        }
    }

    /// Returns why another member's mysqld could not be the primary within moments. The number of missing transactions requires a query. A
    /// server that was the primary until now could be the primary again, whatever it waits for.
    fn unfit(&self, readiness: Readiness) -> Option<String> {
        if let Some(broken) = self.broken() {
            return broken.why();
        }
        let role = self.role.as_ref();
        let role = role.filter(|_| !matches!(readiness, Readiness::In(_)))?;
        match (&role.state, role.lag_ms.map(Duration::from_millis)) {
            (RoleState::Following, Some(lag)) if lag > MOST_BEHIND => {
                Some(format!("mysqld is {} ms behind", lag.as_millis()))
            }
            (RoleState::Following | RoleState::CatchingUp { .. }, _) => None,
            (state, _) => of_role(state).why(),
        }
    }

    /// Returns a fault of the server that matters in every role.
    fn broken(&self) -> Option<PrimaryHealth> {
        let process = match &self.supervisor {
            Some(SupervisorState::Failed { cause }) => Some(PrimaryHealth::Down(cause.clone())),
            Some(SupervisorState::Held { cause }) => Some(PrimaryHealth::Unable(cause.clone())),
            // A mysqld run by another program shows only its sessions and its port.
            None if self.report.ending.is_some() => Some(PrimaryHealth::Down(
                "mysqld has closed its sessions and refuses connections".to_owned(),
            )),
            _ => None,
        };
        if process.is_some() {
            return process;
        }
        if let Some(standing) = &self.report.commits {
            return Some(PrimaryHealth::Stalled(standing.why.clone()));
        }
        match &self.report.protection {
            Protection::Unknown { cause } => Some(PrimaryHealth::Unable(format!(
                "mysqld does not answer: {cause}"
            ))),
            _ => None,
        }
    }
}

fn of_role(state: &RoleState) -> PrimaryHealth {
    match state {
        RoleState::Primary | RoleState::Following => PrimaryHealth::Fit,
        RoleState::CatchingUp { lacks } => PrimaryHealth::Lacks(*lacks),
        RoleState::Unknown | RoleState::NotApplied | RoleState::Unmanaged => {
            PrimaryHealth::Unable("nothing is known of mysqld yet".to_owned())
        }
        RoleState::Waiting { what } => PrimaryHealth::Unable(format!("it waits: {what}")),
        RoleState::Stopped { cause } => PrimaryHealth::Unable(cause.clone()),
        RoleState::Restarting { why } => PrimaryHealth::Unable(format!("it is restarted: {why}")),
    }
}

/// The message when no transactions of the primary are received.
pub fn not_received(cause: &str) -> String {
    format!("its transactions are not received: {cause}")
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::GtidSet;
    use raft_types::Term;

    use super::*;
    use crate::status::WaitingFor;
    use crate::watch::Standing;

    fn failed() -> SupervisorState {
        SupervisorState::Failed {
            cause: "it did not start".to_owned(),
        }
    }

    fn unseen() -> WatchReport {
        WatchReport {
            protection: Protection::Unknown {
                cause: "connection refused".to_owned(),
            },
            ..WatchReport::unknown(Instant::now())
        }
    }

    fn seen() -> WatchReport {
        WatchReport {
            protection: Protection::Protected,
            ..unseen()
        }
    }

    fn stalled() -> WatchReport {
        WatchReport {
            commits: Some(Standing {
                since: Instant::now(),
                why: "no commit ends".to_owned(),
            }),
            ..seen()
        }
    }

    fn role(state: RoleState, lag_ms: Option<u64>) -> RoleStatus {
        RoleStatus {
            state,
            lag_ms,
            applied_total: 0,
            not_the_rings: GtidSet::default(),
            held_up: Default::default(),
            without_transactions: Vec::new(),
        }
    }

    fn stopped() -> RoleState {
        RoleState::Stopped {
            cause: "table d.t is not there".to_owned(),
        }
    }

    fn look(supervisor: &SupervisorState, report: &WatchReport, role: Option<&RoleStatus>) -> Look {
        Look {
            supervisor: Some(supervisor.clone()),
            report: report.clone(),
            role: role.cloned(),
            lacks_the_log: false,
            failing: None,
        }
    }

    #[test]
    fn of_a_leaders_mysqld_what_is_worst_is_said() {
        use PrimaryHealth::{Down, Fit, Lacks, Stalled, Unable};
        let held = SupervisorState::Held {
            cause: "the ring is silent".to_owned(),
        };
        let (running, failed) = (SupervisorState::Beginning, failed());
        let (seen, unseen, stalled) = (seen(), unseen(), stalled());
        let primary = RoleState::Primary;
        let lacks = RoleState::CatchingUp { lacks: 7 };
        let lost = Failing {
            since: Instant::now(),
            cause: "lost events".to_owned(),
            lacks_the_log: false,
        };
        let lost = Some(&lost);
        let down = || Down("it did not start".to_owned());
        let stands = || Stalled("no commit ends".to_owned());
        let unable = |why: &str| Unable(why.to_owned());
        let table = [
            (&failed, &unseen, &primary, None, down()),
            (&held, &unseen, &primary, None, unable("the ring is silent")),
            (
                &running,
                &unseen,
                &primary,
                None,
                unable("mysqld does not answer: connection refused"),
            ),
            (&running, &seen, &primary, None, Fit),
            (&running, &stalled, &primary, None, stands()),
            (&failed, &stalled, &primary, None, down()),
            (&running, &seen, &lacks, None, Lacks(7)),
            (
                &running,
                &seen,
                &RoleState::Following,
                None,
                unable("mysqld still follows the ring"),
            ),
            (
                &running,
                &seen,
                &stopped(),
                None,
                unable("table d.t is not there"),
            ),
            (
                &running,
                &seen,
                &primary,
                lost,
                unable("its transactions are not received: lost events"),
            ),
            (&running, &stalled, &primary, lost, stands()),
            (&failed, &seen, &primary, lost, down()),
            // No query is made before mysqld is the primary.
            (&running, &seen, &lacks, lost, Lacks(7)),
        ];
        for (supervisor, report, state, failing, expected) in table {
            let role = role(state.clone(), None);
            let look = Look {
                failing: failing.cloned(),
                ..look(supervisor, report, Some(&role))
            };
            assert_eq!(look.of_a_leaders(), expected);
        }
    }

    #[test]
    fn a_mysqld_that_something_else_runs_is_down_once_it_refuses_connections() {
        let ended = WatchReport {
            ending: Some(Instant::now()),
            ..unseen()
        };
        let health = |report| {
            Look {
                supervisor: None,
                ..look(&SupervisorState::Beginning, report, None)
            }
            .of_a_leaders()
        };
        assert!(matches!(health(&ended), PrimaryHealth::Down(_)));
        assert!(matches!(health(&unseen()), PrimaryHealth::Unable(_)));
    }

    #[test]
    fn a_mysqld_that_gets_nothing_of_the_log_is_the_primary_unless_it_lacks_part_of_it() {
        let (running, failed) = (SupervisorState::Beginning, failed());
        let (seen, unseen) = (seen(), unseen());
        let health = |supervisor, report, lacks_the_log| {
            let look = Look {
                lacks_the_log,
                ..look(supervisor, report, None)
            };
            look.of_a_leaders()
        };
        assert_eq!(health(&running, &seen, false), PrimaryHealth::Fit);
        let never = PrimaryHealth::Never(NEVER.to_owned());
        assert_eq!(health(&running, &seen, true), never);
        assert!(never.why().is_some_and(|why| why.contains("mysql.apply")));
        // The process is checked even if no other mysqld can become the primary.
        let down = PrimaryHealth::Down("it did not start".to_owned());
        assert_eq!(health(&failed, &unseen, false), down);
    }

    #[test]
    fn who_could_be_the_primary_soon() {
        let (running, failed) = (SupervisorState::Beginning, failed());
        let (seen, unseen, stalled) = (seen(), unseen(), stalled());
        let following = role(RoleState::Following, Some(5_000));
        let late = role(RoleState::Following, Some(5_001));
        let stopped = role(stopped(), None);
        let waiting = RoleState::Waiting {
            what: WaitingFor::Writers,
        };
        let waiting = role(waiting, None);
        let (applying, was_primary) = (Readiness::Applying, Readiness::In(Term(3)));
        let table = [
            (&running, &seen, Some(&following), applying, None),
            (
                &running,
                &seen,
                Some(&late),
                applying,
                Some("5001 ms behind"),
            ),
            (
                &running,
                &seen,
                Some(&stopped),
                Readiness::Lacks,
                Some("d.t is not there"),
            ),
            (
                &running,
                &seen,
                Some(&waiting),
                Readiness::Unknown,
                Some("can still write"),
            ),
            (&running, &seen, Some(&waiting), was_primary, None),
            (
                &running,
                &unseen,
                Some(&waiting),
                was_primary,
                Some("does not answer"),
            ),
            (
                &running,
                &stalled,
                Some(&following),
                applying,
                Some("no commit ends"),
            ),
            (
                &failed,
                &unseen,
                Some(&following),
                applying,
                Some("did not start"),
            ),
            (&running, &unseen, None, Readiness::Always, Some("answer")),
            // The number of its missing transactions requires a query.
            (&running, &seen, None, Readiness::Always, None),
        ];
        for (supervisor, report, role, readiness, expected) in table {
            let found = look(supervisor, report, role).unfit(readiness);
            match expected {
                None => assert_eq!(found, None, "{role:?}"),
                Some(words) => assert!(
                    found.as_ref().is_some_and(|found| found.contains(words)),
                    "{found:?}"
                ),
            }
        }
    }

    #[test]
    fn a_complete_copy_of_an_incomplete_log_lags() {
        let lacks = |ms| Some(Duration::from_millis(ms));
        let table = [
            (Some(0), lacks(0), Some(0)),
            (Some(0), lacks(31_000), Some(31_000)),
            (Some(700), lacks(40), Some(700)),
            (Some(700), None, Some(700)),
            (Some(0), None, None),
            (None, lacks(31_000), None),
            (None, None, None),
        ];
        for (applied, lacks, expected) in table {
            assert_eq!(lag_ms(applied, lacks), expected, "{applied:?} {lacks:?}");
        }
    }
}

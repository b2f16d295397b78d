//! Whether the mysqld beside a leader can be the primary. Pure.

use mysqld_controller::ingest::Failing;
use mysqld_controller::status::RoleState;
use mysqld_controller::supervisor::SupervisorState;
use mysqld_controller::watch::{Protection, WatchReport};

/// What stands between a leader's mysqld and its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PrimaryHealth {
    /// Nothing but its write fence, which operators and settings close as well.
    Fit,
    /// It applies what it lacks of the ring's log, and lacks so many transactions.
    Behind(u64),
    /// It was the primary, and stands still: it answers and commits nothing, or does not answer; in words.
    Stalled(String),
    /// It cannot be the primary, in words.
    Unable(String),
    /// It can, but what it commits has no room on this member's disk, in words. Another member has room.
    Full(String),
    /// Its process has ended, in words. Another one's may be the primary long before it has recovered.
    Down(String),
}

impl PrimaryHealth {
    /// What the member says whose log alone has no room.
    pub(crate) fn full() -> Self {
        Self::Full("this member's log has no room on its disk for more transactions".to_owned())
    }

    /// What a member says that was told to leave its mysqld alone.
    pub(crate) fn left_alone() -> Self {
        Self::Unable("the member does not manage its mysqld".to_owned())
    }
}

/// From what the supervisor, the watch, the role and ingest say.
pub(crate) fn primary_health(
    supervisor: Option<&SupervisorState>,
    report: &WatchReport,
    role: &RoleState,
    ingest: Option<&Failing>,
) -> PrimaryHealth {
    match supervisor {
        Some(SupervisorState::Failed { cause }) => return PrimaryHealth::Down(cause.clone()),
        Some(SupervisorState::Held { cause }) => return PrimaryHealth::Unable(cause.clone()),
        _ => {}
    }
    if let Some(standing) = &report.commits {
        return PrimaryHealth::Stalled(standing.why.clone());
    }
    if let Protection::Unknown { cause } = &report.protection {
        return PrimaryHealth::Unable(format!("mysqld does not answer: {cause}"));
    }
    match role {
        // What commits there waits for an ACK that nobody sends.
        RoleState::Primary => match ingest {
            Some(failing) => PrimaryHealth::Unable(not_received(&failing.cause)),
            None => PrimaryHealth::Fit,
        },
        RoleState::CatchingUp { behind } => PrimaryHealth::Behind(*behind),
        RoleState::Unknown => PrimaryHealth::Unable("nothing is known of mysqld yet".to_owned()),
        RoleState::Following => PrimaryHealth::Unable("mysqld still follows the ring".to_owned()),
        RoleState::Waiting { what } => PrimaryHealth::Unable(what.clone()),
        RoleState::Stopped { cause } => PrimaryHealth::Unable(cause.clone()),
        RoleState::Restarting { why } => PrimaryHealth::Unable(why.clone()),
    }
}

/// That nothing of the primary comes in, in words.
pub(crate) fn not_received(cause: &str) -> String {
    format!("its transactions are not received: {cause}")
}

#[cfg(test)]
mod tests {
    use mysqld_controller::watch::Standing;

    use super::*;

    fn words(health: PrimaryHealth) -> String {
        match health {
            PrimaryHealth::Fit => "fit".to_owned(),
            PrimaryHealth::Behind(behind) => format!("{behind} behind"),
            PrimaryHealth::Unable(why) | PrimaryHealth::Full(why) => why,
            PrimaryHealth::Stalled(why) => format!("stalled: {why}"),
            PrimaryHealth::Down(why) => format!("down: {why}"),
        }
    }

    #[test]
    fn what_is_worst_is_said() {
        let failed = SupervisorState::Failed {
            cause: "it did not start".to_owned(),
        };
        let held = SupervisorState::Held {
            cause: "the ring is silent".to_owned(),
        };
        let now = tokio::time::Instant::now();
        let unseen = WatchReport {
            protection: Protection::Unknown {
                cause: "connection refused".to_owned(),
            },
            server: None,
            commits: None,
            ending: None,
            locked_out: None,
            looked_at: now,
            since: now,
        };
        let stalled = WatchReport {
            protection: Protection::Protected,
            commits: Some(Standing {
                since: now,
                why: "no commit ends".to_owned(),
            }),
            ..unseen.clone()
        };
        let seen = WatchReport {
            protection: Protection::Protected,
            ..unseen.clone()
        };
        let running = SupervisorState::Beginning;
        let stopped = RoleState::Stopped {
            cause: "table d.t is not there".to_owned(),
        };
        let behind = RoleState::CatchingUp { behind: 7 };
        let table = [
            (
                &failed,
                &unseen,
                &RoleState::Primary,
                "down: it did not start",
            ),
            (&held, &unseen, &RoleState::Primary, "the ring is silent"),
            (
                &running,
                &unseen,
                &RoleState::Primary,
                "mysqld does not answer: connection refused",
            ),
            (&running, &seen, &RoleState::Primary, "fit"),
            (
                &running,
                &stalled,
                &RoleState::Primary,
                "stalled: no commit ends",
            ),
            (
                &failed,
                &stalled,
                &RoleState::Primary,
                "down: it did not start",
            ),
            (&running, &seen, &behind, "7 behind"),
            (&running, &seen, &stopped, "table d.t is not there"),
        ];
        for (supervisor, report, role, expected) in table {
            assert_eq!(
                words(primary_health(Some(supervisor), report, role, None)),
                expected
            );
        }
        let failing = Failing {
            since: now,
            cause: "lost events".to_owned(),
        };
        let table = [
            (
                &running,
                &seen,
                &RoleState::Primary,
                "its transactions are not received: lost events",
            ),
            (
                &running,
                &stalled,
                &RoleState::Primary,
                "stalled: no commit ends",
            ),
            (
                &failed,
                &seen,
                &RoleState::Primary,
                "down: it did not start",
            ),
            // Nothing is asked of it before it is the primary.
            (&running, &seen, &behind, "7 behind"),
        ];
        for (supervisor, report, role, expected) in table {
            assert_eq!(
                words(primary_health(
                    Some(supervisor),
                    report,
                    role,
                    Some(&failing)
                )),
                expected
            );
        }
    }
}

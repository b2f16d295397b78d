//! One member: its role, notes for the operator, and the state of its mysqld in brief.

use std::fmt;
use std::time::Duration;

use member::status::{DISK_HANGS, MemberView, MysqlView, MysqldState, RoleState, WriteFenceState};

use crate::operator::{MemberReport, RingReport};
use crate::text::Level;
use crate::text::times::span;

/// The member's role in the ring.
pub(crate) fn role(view: &MemberView, report: &RingReport) -> String {
    if view.fault.is_some() {
        return "stopped".into();
    }
    let leads_in_vain = view.leader == Some(view.member.id) && report.leader != view.leader;
    if leads_in_vain {
        "leader (not serving)".into()
    } else {
        view.role.to_string()
    }
}

/// Notes for the operator about one member, in addition to its role.
pub(crate) fn notes(member: &MemberReport) -> Vec<String> {
    let Some(view) = &member.view else {
        return member
            .error
            .iter()
            .map(|error| see(&format!("no answer: {error}"), "lost-member"))
            .collect();
    };
    let mut notes = Vec::new();
    if let Some(fault) = &view.fault {
        notes.push(see(&format!("stopped working: {fault}"), "lost-member"));
    }
    if let (true, Some(why)) = (view.leader == Some(view.member.id), &view.not_serving) {
        let (how, runbook) = if view.serving {
            ("leads until a database member can take over", "mysqld-down")
        } else {
            ("leads, but does not serve", "lost-quorum")
        };
        notes.push(see(&format!("{how}: {why}"), runbook));
    }
    if let Some(why) = &view.stays_out_of_elections {
        notes.push(format!("takes part in no election: {why}"));
    }
    let own = view.restored.get(&view.member.id);
    notes.extend(own.map(ToString::to_string));
    let refused = view.formats.as_ref();
    if let Some(why) = refused.and_then(|formats| formats.refused.as_ref()) {
        notes.push(format!("takes no more entries: {why}"));
    }
    let unreadable = view.log.unreadable.iter();
    notes.extend(unreadable.map(|file| see(file, "restore")));
    if view.log.disk_full && view.log.disk_has_no_inodes {
        notes.push(see(
            "the file system of its log has no free inodes: nothing is written or acknowledged, although it may have space. Remove \
             files there, or purge old log files; it continues by itself",
            "full-disk",
        ));
    } else if view.log.disk_full {
        notes.push(see(
            "the disk of its log is full: nothing is written or acknowledged. Free space, or purge old log files; it \
             continues by itself",
            "full-disk",
        ));
    } else if Duration::from_millis(view.log.disk_busy_ms) >= DISK_HANGS {
        let hangs = format!(
            "the disk of its log has not finished a write or an fsync for {} s: this member acknowledges nothing until it has",
            view.log.disk_busy_ms / 1000
        );
        notes.push(see(&hangs, "slow-disk"));
    } else if view.log.disk_alarm && view.log.disk_left_bytes < NO_ROOM {
        notes.push(see(
            "its disk budget is used up: transactions wait or are refused. Purge old log files, raise log.disk_limit_bytes, \
             or add space",
            "full-disk",
        ));
    } else if view.log.disk_alarm {
        let nearly = format!(
            "its disk budget is nearly used up, {} bytes are free",
            view.log.disk_free_bytes
        );
        notes.push(see(&nearly, "full-disk"));
    }
    let hooks = view.hooks.iter().flat_map(|hooks| &hooks.failing);
    notes.extend(hooks.map(|failing| {
        let fails = format!(
            "its hook {} failed {} times and is retried: {}",
            failing.hook, failing.failures, failing.why
        );
        see(&fails, "hooks")
    }));
    if let Some(mysql) = &view.mysql {
        let trouble = mysql.trouble.iter();
        notes.extend(trouble.map(|why| match &mysql.errant {
            Some(errant) if errant.transactions > 0 => see(why, "errant-transactions"),
            _ => see(why, "mysqld-down"),
        }));
        notes.extend(wait(mysql));
        let offline = mysql.offline.as_ref();
        notes.extend(offline.map(|why| {
            let closed = format!("ordinary accounts cannot use its mysqld: {why}");
            see(&closed, "mysqld-down")
        }));
        let demotion = mysql.demotion.iter();
        notes.extend(demotion.map(|why| see(why, "stalled-primary")));
        let closed = closed(mysql).filter(|_| view.serving);
        notes.extend(closed.map(|why| see(&why, "stalled-primary")));
        notes.extend(mysql.warnings.iter().cloned());
        if view.serving && !mysql.protected && !mysql.catches_up() {
            notes.extend(
                mysql
                    .unprotected_because
                    .iter()
                    .map(|why| see(&format!("not protected: {why}"), "unprotected-primary")),
            );
        }
    }
    notes
}

/// A note with the name of its runbook, which the page turns into a link.
fn see(note: &str, runbook: &str) -> String {
    let note = note.trim_end_matches('.');
    format!("{note}. See the runbook {runbook}")
}

/// With less space than this, hardly any transaction fits.
const NO_ROOM: u64 = 64 << 10;

// The state of a member's mysqld, in brief.

/// The lag is reported from this many milliseconds.
const LAG_MS: u64 = 1_000;
/// The number of missing transactions is reported from this value.
const LACKS: u64 = 100;

/// The state of a mysqld, without figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MysqldKind {
    Primary,
    Unprotected,
    Following,
    CatchingUp,
    ToBeOpened,
    Waiting,
    Stopped,
    Restarting,
    /// mysqld runs, and the ring's log is never applied to it.
    Closed,
    /// The state of the mysqld process, which is shown in place of the role.
    Process(MysqldState),
}

impl MysqldKind {
    pub(crate) fn of(mysql: &MysqlView) -> Self {
        match (mysql.state, mysql.writable, mysql.following, &mysql.role) {
            (MysqldState::Stopped, ..) => Self::Stopped,
            (MysqldState::Running, true, ..) if mysql.protected => Self::Primary,
            (MysqldState::Running, true, ..) => Self::Unprotected,
            (MysqldState::Running, false, true, _) => Self::Following,
            (MysqldState::Running, false, false, _) if !mysql.applies => Self::Closed,
            (MysqldState::Running, _, _, role) => match role {
                RoleState::Primary => Self::ToBeOpened,
                RoleState::Following => Self::Following,
                RoleState::CatchingUp { .. } => Self::CatchingUp,
                RoleState::Waiting { .. } => Self::Waiting,
                RoleState::Stopped { .. } => Self::Stopped,
                RoleState::Restarting { .. } => Self::Restarting,
                RoleState::NotApplied => Self::Closed,
                RoleState::Unmanaged => Self::Process(MysqldState::Unmanaged),
                RoleState::Unknown => Self::Process(MysqldState::Unknown),
            },
            (state, ..) => Self::Process(state),
        }
    }

    /// The severity of a change to this state.
    pub(crate) fn level_after(self, was: Self) -> Level {
        match self {
            Self::Following if was == Self::Primary => Level::Note,
            Self::Primary | Self::Following => Level::Good,
            Self::Stopped | Self::Unprotected | Self::Process(MysqldState::Unreachable) => {
                Level::Bad
            }
            _ => Level::Note,
        }
    }
}

impl fmt::Display for MysqldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Unprotected => "primary, not protected",
            Self::Following => "following",
            Self::CatchingUp => "catching up",
            Self::ToBeOpened => "to be opened",
            Self::Waiting => "waiting",
            Self::Stopped => "stopped",
            Self::Restarting => "restarting",
            Self::Closed => "closed",
            Self::Process(state) => return fmt::Display::fmt(state, f),
        })
    }
}

/// The state of a mysqld, with its lag.
pub(crate) fn mysqld(mysql: &MysqlView) -> String {
    let kind = MysqldKind::of(mysql);
    let lag = mysql.lag_ms.filter(|lag| *lag >= LAG_MS);
    match (kind, lag, lacks(mysql)) {
        (MysqldKind::Following, Some(lag), _) => {
            format!("{kind}, {} behind", span(lag as f64 / 1e3))
        }
        (MysqldKind::Following, None, Some(lacks)) => {
            format!("{kind}, {lacks} transactions behind")
        }
        (MysqldKind::CatchingUp, ..) => mysql.role.to_string(),
        _ => kind.to_string(),
    }
}

/// Returns the number of committed transactions that mysqld has not executed, if they would noticeably delay clients after a promotion.
fn lacks(mysql: &MysqlView) -> Option<u64> {
    let lacks = mysql.promotion.as_ref()?.lag?;
    Some(lacks).filter(|lacks| *lacks >= LACKS)
}

/// Returns why clients cannot write to the mysqld, if no other note reports it.
fn closed(mysql: &MysqlView) -> Option<String> {
    let fence = &mysql.write_fence;
    let closed =
        mysql.state == MysqldState::Running && matches!(fence, WriteFenceState::Closed { .. });
    (closed && mysql.trouble.is_none()).then(|| format!("its mysqld is {fence}"))
}

/// Returns why the mysqld waits; `None` if it does not wait.
fn wait(mysql: &MysqlView) -> Option<String> {
    match &mysql.role {
        RoleState::Waiting { what } => Some(format!("its mysqld waits: {what}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::status::WaitingFor;
    use member::status::sample::database_leader;

    #[test]
    fn a_primary_closed_by_another_session_is_noted() {
        let mut primary = database_leader().mysql.unwrap();
        assert_eq!(closed(&primary), None);
        primary.write_fence = WriteFenceState::Closed {
            why: "read_only was set by another session".to_owned(),
        };
        let said = "its mysqld is closed: read_only was set by another session";
        assert_eq!(closed(&primary).as_deref(), Some(said));
        primary.trouble = Some("it does not answer".to_owned());
        assert_eq!(closed(&primary), None, "that is the reason");
    }

    #[test]
    fn the_state_of_mysqld_in_brief() {
        let primary = database_leader().mysql.unwrap();
        let with_role = |role| MysqlView {
            writable: false,
            protected: false,
            role,
            ..primary.clone()
        };
        let following = |lag_ms| MysqlView {
            following: true,
            lag_ms,
            ..with_role(RoleState::Following)
        };
        let lacking = |lacks| MysqlView {
            promotion: Some(consensus::DatabaseState {
                lag: Some(lacks),
                ..consensus::DatabaseState::default()
            }),
            ..following(None)
        };
        let starting = MysqlView {
            state: MysqldState::Starting,
            ..with_role(RoleState::Unknown)
        };
        let alone = MysqlView {
            applies: false,
            ..with_role(RoleState::NotApplied)
        };
        let open = MysqlView {
            protected: false,
            ..primary.clone()
        };
        let waiting = with_role(RoleState::Waiting {
            what: WaitingFor::Step("no leader is known".to_owned()),
        });
        let stopped = with_role(RoleState::Stopped {
            cause: "it has errant transactions".to_owned(),
        });
        for (mysql, expected) in [
            (primary.clone(), "primary"),
            (open, "primary, not protected"),
            (with_role(RoleState::Primary), "to be opened"),
            (following(None), "following"),
            (following(Some(999)), "following"),
            (lacking(99), "following"),
            (lacking(1_663), "following, 1663 transactions behind"),
            (following(Some(75_000)), "following, 1m15s behind"),
            (starting, "starting"),
            (
                with_role(RoleState::CatchingUp { lacks: 3 }),
                "catching up: 3 transactions behind, then the primary",
            ),
            (waiting.clone(), "waiting"),
            (stopped, "stopped"),
            (alone, "closed"),
        ] {
            assert_eq!(mysqld(&mysql), expected, "{mysql:?}");
        }
        assert_eq!(
            wait(&waiting).unwrap(),
            "its mysqld waits: no leader is known"
        );
        assert_eq!(wait(&primary), None);
    }
}

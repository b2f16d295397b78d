//! Decides which hooks are due. An event describes the state of the primary, as this member sees it, for the environment of a command. A
//! hook runs until its last successful report is equal to that state; after failures, the delay grows. Pure functions; the time is an
//! argument.

use std::time::Duration;

use raft_types::{MemberId, MemberKind};
use tokio::time::Instant;

use crate::status::{FailingHook, MemberView, MysqlView, Question, Role, answer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// This member's mysqld accepts writes as the primary.
    Primary,
    /// This member's mysqld was the primary, and no longer is.
    Demoted,
    /// The mysqld of another member than before is the ring's primary. Every member reports this.
    PrimaryChanged,
}

impl EventKind {
    /// Returns the event's name in the environment and in log lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Demoted => "demoted",
            Self::PrimaryChanged => "primary_changed",
        }
    }

    /// Returns the key in `[hooks]` with the event's command.
    fn key(self) -> String {
        format!("on_{}", self.name())
    }
}

/// The environment of a command: names and values, in the documented order.
pub(crate) type Environment = Vec<(&'static str, String)>;

/// The operating system limits the size of a value in the environment. A longer GTID set is omitted.
const LONGEST_VALUE: usize = 64 << 10;

/// The state of the primary, as one member sees it at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PrimaryState {
    /// The term in which this member's mysqld is the primary; `None` if it is not.
    pub(crate) own_term: Option<u64>,
    /// The last member that was seen with the ring's primary.
    pub(crate) primary: Option<MemberId>,
    /// The previous primary.
    pub(crate) previous: Option<MemberId>,
}

impl PrimaryState {
    /// Returns the state after `view`. If the ring has no primary, the last primary is kept. So if the same member is the primary again,
    /// this is no change.
    pub(crate) fn observe(self, view: &MemberView) -> Self {
        let own = answer(Question::Primary, view).is_ok();
        let own_term = own.then_some(view.term);
        match primary_of(view, own) {
            Some(primary) if self.primary != Some(primary) => Self {
                own_term,
                primary: Some(primary),
                previous: self.primary,
            },
            _ => Self { own_term, ..self },
        }
    }

    /// Returns the environment of the event of `kind` for this state. If the member has a mysqld, the environment includes its client
    /// address.
    pub(crate) fn event(
        self,
        kind: EventKind,
        view: &MemberView,
        mysqld: Option<(&str, u16)>,
    ) -> Environment {
        let (reason, previous) = match kind {
            EventKind::Demoted => {
                let why = answer(Question::Primary, view).err();
                (why.map(|why| why.to_string()), Some(view.member.id))
            }
            EventKind::Primary | EventKind::PrimaryChanged => (None, self.previous),
        };
        let member = |id: Option<MemberId>| {
            let id = id?;
            view.members.iter().find(|member| member.id == id)
        };
        let name = |id| member(id).map_or_else(String::new, |member| member.record.name.clone());
        let host = |id| {
            let address = member(id).map(|member| member.record.address.as_str());
            let host = address.and_then(|address| address.rsplit_once(':'));
            host.map_or_else(String::new, |(host, _)| host.to_owned())
        };
        let mut gtids = view.log.gtid_set.to_string();
        if gtids.len() > LONGEST_VALUE {
            gtids.clear();
        }
        let committed = view.committed.map(|at| at.to_string());
        let (mysql_host, mysql_port) = mysqld.unzip();
        let mysql_port = mysql_port.map(|port| port.to_string());
        vec![
            ("WITNESS_EVENT", kind.name().to_owned()),
            ("WITNESS_RING", view.ring.name.clone()),
            ("WITNESS_MEMBER", view.member.name.clone()),
            ("WITNESS_MEMBER_ID", view.member.id.to_string()),
            ("WITNESS_REGION", view.member.region.to_string()),
            ("WITNESS_ROLE", view.role.to_string()),
            ("WITNESS_TERM", view.term.to_string()),
            ("WITNESS_COMMITTED", committed.unwrap_or_default()),
            ("WITNESS_GTID_SET", gtids),
            ("WITNESS_PRIMARY", name(self.primary)),
            ("WITNESS_PRIMARY_HOST", host(self.primary)),
            ("WITNESS_PREVIOUS_PRIMARY", name(previous)),
            ("WITNESS_PREVIOUS_PRIMARY_HOST", host(previous)),
            (
                "WITNESS_MYSQL_HOST",
                mysql_host.unwrap_or_default().to_owned(),
            ),
            ("WITNESS_MYSQL_PORT", mysql_port.unwrap_or_default()),
            ("WITNESS_PAUSED", u8::from(view.pause.is_some()).to_string()),
            ("WITNESS_REASON", reason.unwrap_or_default()),
        ]
    }
}

/// Returns the member with the primary, as far as this member knows: itself if its mysqld is the primary, or the leading database member.
/// While failover is paused for another member's primary, the leader is not returned.
fn primary_of(view: &MemberView, own: bool) -> Option<MemberId> {
    if own {
        return Some(view.member.id);
    }
    // The ring does not know the primary of plain replication.
    let unmanaged = view.mysql.as_ref().is_some_and(MysqlView::is_unmanaged);
    if view.role == Role::Leader || unmanaged {
        return None;
    }
    let leader = view.leader?;
    let member = view.members.iter().find(|member| member.id == leader)?;
    let pause = view.pause.as_ref();
    let takes_care = pause.is_some_and(|pause| pause.primary != leader);
    (member.record.kind == MemberKind::Database && !takes_care).then_some(leader)
}

// The decision which hook is due.

/// The delay after the first failure; each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest delay before a retry.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The last reports about this member's own mysqld, and about the ring's primary. At the start, mysqld is not the primary, and the ring's
/// primary is unknown.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    own: Report<Option<u64>>,
    ring: Report<Option<MemberId>>,
}

impl Reports {
    /// Returns the hook that is due for `state`, if any.
    pub(crate) fn due(&self, state: &PrimaryState, now: Instant) -> Option<EventKind> {
        if self.own.is_due(state.own_term, now) {
            return Some(match state.own_term {
                Some(_) => EventKind::Primary,
                None => EventKind::Demoted,
            });
        }
        let ring = self.ring.is_due(state.primary, now);
        ring.then_some(EventKind::PrimaryChanged)
    }

    /// Records that the hook of `kind` has reported `state`, or failed to. A hook without a command cannot fail.
    pub(crate) fn ended(
        &mut self,
        kind: EventKind,
        state: &PrimaryState,
        failure: Option<String>,
        now: Instant,
    ) {
        let failure = failure.map(|why| (kind, why));
        match kind {
            EventKind::Primary | EventKind::Demoted => {
                self.own.ended(state.own_term, failure, now);
            }
            EventKind::PrimaryChanged => self.ring.ended(state.primary, failure, now),
        }
    }

    /// Returns the hooks whose last run failed.
    pub(crate) fn failing(&self) -> Vec<FailingHook> {
        let own = self.own.failed.as_ref().map(|failed| &failed.hook);
        let ring = self.ring.failed.as_ref().map(|failed| &failed.hook);
        own.into_iter().chain(ring).cloned().collect()
    }
}

/// The last reported state, and a failed run.
#[derive(Debug, Default)]
struct Report<S> {
    reported: S,
    /// The last run, if it failed. A failed command may have acted, so `reported` does not count until a run succeeds.
    failed: Option<Failed<S>>,
}

#[derive(Debug)]
struct Failed<S> {
    state: S,
    retry_at: Instant,
    hook: FailingHook,
}

impl<S: Copy + PartialEq> Report<S> {
    fn is_due(&self, state: S, now: Instant) -> bool {
        match &self.failed {
            None => self.reported != state,
            Some(failed) => failed.state != state || failed.retry_at <= now,
        }
    }

    fn ended(&mut self, state: S, failure: Option<(EventKind, String)>, now: Instant) {
        let Some((kind, why)) = failure else {
            self.reported = state;
            self.failed = None;
            return;
        };
        let before = self.failed.take().filter(|failed| failed.state == state);
        let failures = before.map_or(0, |failed| failed.hook.failures) + 1;
        self.failed = Some(Failed {
            state,
            retry_at: now + retry_delay(failures),
            hook: FailingHook {
                hook: kind.key(),
                failures,
                why,
            },
        });
    }
}

fn retry_delay(failures: u64) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let delay = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(doublings));
    delay.min(LONGEST_RETRY)
}

#[cfg(test)]
mod event_tests {
    use super::*;
    use crate::status::GtidText;
    use crate::status::sample::database_leader;
    use crate::status::sample::witness_follower;

    fn value<'a>(event: &'a Environment, name: &str) -> &'a str {
        let found = event.iter().find(|(known, _)| *known == name);
        &found.unwrap().1
    }

    #[test]
    fn the_environment_describes_the_state_at_the_event() {
        let mysqld = Some(("10.0.0.1", 3306));
        let open = database_leader();
        let state = PrimaryState::default().observe(&open);
        assert_eq!(state.own_term, Some(3));
        let event = state.event(EventKind::Primary, &open, mysqld);
        assert_eq!(value(&event, "WITNESS_PRIMARY"), "db-1");
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "");
        assert_eq!(value(&event, "WITNESS_MYSQL_PORT"), "3306");
        assert_eq!(value(&event, "WITNESS_TERM"), "3");
        assert_eq!(value(&event, "WITNESS_COMMITTED"), "3.42");
        let mut closed = database_leader();
        closed.mysql.as_mut().unwrap().writable = false;
        let state = state.observe(&closed);
        assert_eq!(state.own_term, None);
        let event = state.event(EventKind::Demoted, &closed, mysqld);
        let reason = value(&event, "WITNESS_REASON");
        assert_eq!(reason, "its mysqld does not take writes");
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "db-1");
    }

    #[test]
    fn only_a_database_leader_replaces_the_primary() {
        let mut view = witness_follower();
        let first = PrimaryState::default().observe(&view);
        let event = first.event(EventKind::PrimaryChanged, &view, None);
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "");
        assert_eq!(value(&event, "WITNESS_PRIMARY_HOST"), "10.0.0.1");
        // Three views: without a leader, with a leading witness, and with the same primary as before.
        for leader in [None, Some(3), Some(1)] {
            view.leader = leader.map(MemberId);
            assert_eq!(first.observe(&view), first, "{leader:?}");
        }
        view.members[2].record.kind = MemberKind::Database;
        view.leader = Some(MemberId(3));
        let event = first
            .observe(&view)
            .event(EventKind::PrimaryChanged, &view, None);
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "db-1");
        assert_eq!(value(&event, "WITNESS_PRIMARY"), "witness-2");
    }

    #[test]
    fn what_the_system_would_refuse_is_left_out() {
        let mut view = database_leader();
        // Every second number is used, so that each one is an interval of its own.
        let many = (0..LONGEST_VALUE / 2).map(|at| format!(":{}", 2 * at + 1));
        let many = many.collect::<String>();
        let set = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562{many}");
        view.log.gtid_set = GtidText(set.parse().unwrap());
        let event = PrimaryState::default().event(EventKind::Primary, &view, None);
        assert_eq!(value(&event, "WITNESS_GTID_SET"), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary_in(term: u64) -> PrimaryState {
        PrimaryState {
            own_term: Some(term),
            primary: Some(MemberId(1)),
            previous: None,
        }
    }

    fn replica_of(primary: u64) -> PrimaryState {
        PrimaryState {
            own_term: None,
            primary: Some(MemberId(primary)),
            previous: Some(MemberId(1)),
        }
    }

    /// Returns the hooks that run for a state until no hook is due. All of them succeed.
    fn run_all(reports: &mut Reports, state: &PrimaryState, now: Instant) -> Vec<String> {
        let mut ran = Vec::new();
        while let Some(kind) = reports.due(state, now) {
            reports.ended(kind, state, None, now);
            ran.push(kind.key());
        }
        ran
    }

    #[test]
    fn a_hook_runs_once_for_each_state() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let nothing = PrimaryState::default();
        for (state, expected) in [
            (nothing, vec![]),
            (primary_in(3), vec!["on_primary", "on_primary_changed"]),
            (primary_in(3), vec![]),
            (replica_of(2), vec!["on_demoted", "on_primary_changed"]),
            (replica_of(2), vec![]),
            (replica_of(3), vec!["on_primary_changed"]),
        ] {
            assert_eq!(run_all(&mut reports, &state, now), expected, "{state:?}");
        }
    }

    #[test]
    fn a_state_that_changed_during_a_hook_is_reported_after_it() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        assert_eq!(reports.due(&primary_in(3), now), Some(EventKind::Primary));
        // The hook is slow: when it ends, another member has become the primary.
        reports.ended(EventKind::Primary, &primary_in(3), None, now);
        let ran = run_all(&mut reports, &replica_of(2), now);
        assert_eq!(ran, ["on_demoted", "on_primary_changed"]);
        // If the same member is the primary in a later term, it is reported again, although no hook ran in between.
        run_all(&mut reports, &primary_in(5), now);
        assert_eq!(run_all(&mut reports, &primary_in(8), now), ["on_primary"]);
    }

    #[test]
    fn a_failed_hook_is_retried_with_growing_delays_until_it_succeeds() {
        let (mut reports, mut now) = (Reports::default(), Instant::now());
        let state = primary_in(3);
        for delay in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            assert_eq!(reports.due(&state, now), Some(EventKind::Primary));
            let why = Some("exit status: 1".to_owned());
            reports.ended(EventKind::Primary, &state, why, now);
            // During the delay, the other hook may run.
            let early = now + delay - Duration::from_millis(1);
            assert_ne!(reports.due(&state, early), Some(EventKind::Primary));
            now += delay;
        }
        let failing = reports.failing();
        assert_eq!(
            (failing[0].hook.as_str(), failing[0].failures),
            ("on_primary", 7)
        );
        reports.ended(EventKind::Primary, &state, None, now);
        assert_eq!(reports.failing(), []);
        assert_eq!(run_all(&mut reports, &state, now), ["on_primary_changed"]);
    }

    #[test]
    fn a_demotion_is_reported_after_a_failed_registration() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let why = Some("killed after 30s".to_owned());
        reports.ended(EventKind::Primary, &primary_in(3), why, now);
        // The failed report is not repeated: the new state is reported without a delay.
        let ran = run_all(&mut reports, &replica_of(1), now);
        assert_eq!(ran, ["on_demoted", "on_primary_changed"]);
        assert_eq!(reports.failing(), []);
    }
}

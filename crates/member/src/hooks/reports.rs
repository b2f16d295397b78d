//! Decides which hook is due, and counts the runs for the status. A hook runs, with a growing delay after failures, until its last
//! successful report equals the state that the member sees. The decision is pure: the time is an argument.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use raft_types::MemberId;
use tokio::time::Instant;

use crate::hooks::event::{EventKind, PrimaryState};
use crate::status::{FailingHook, HooksView};

/// The delay after the first failure; each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest delay.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Last reports of this member's own mysqld, and of the ring's primary. Initially: mysqld is not the primary, and the ring's primary is
/// unknown.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    own: Report<Option<u64>>,
    ring: Report<Option<MemberId>>,
}

impl Reports {
    /// The due hook for `state`.
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

    /// The hook of `kind` has reported `state`, or failed to. A hook without a command cannot fail.
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

    /// The hooks whose last run failed.
    pub(crate) fn failing(&self) -> Vec<FailingHook> {
        let own = self.own.failed.as_ref().map(|failed| &failed.hook);
        let ring = self.ring.failed.as_ref().map(|failed| &failed.hook);
        own.into_iter().chain(ring).cloned().collect()
    }
}

/// A state and its hooks.
#[derive(Debug, Default)]
struct Report<S> {
    reported: S,
    /// The last run, if it failed: a failed command may have acted, so that `reported` does not count until a run succeeds.
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
                hook: kind.key().to_owned(),
                failures,
                why,
            },
        });
    }
}

fn retry_delay(failures: u64) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_RETRY
        .saturating_mul(2_u32.saturating_pow(doublings))
        .min(LONGEST_RETRY)
}

/// Hook results since the member started, for its status.
#[derive(Debug, Default)]
pub(crate) struct HookFigures(Mutex<HooksView>);

impl HookFigures {
    pub(crate) fn view(&self) -> HooksView {
        let view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        view.clone()
    }

    pub(super) fn ran(&self, failed: bool) {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        view.runs_total += 1;
        view.failures_total += u64::from(failed);
    }

    pub(super) fn set_failing(&self, failing: Vec<FailingHook>) {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        view.failing = failing;
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

    /// The hooks that run for a state until none is due; all succeed.
    fn run_all(reports: &mut Reports, state: &PrimaryState, now: Instant) -> Vec<&'static str> {
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
        // The hook is slow: another member has become the primary.
        reports.ended(EventKind::Primary, &primary_in(3), None, now);
        let ran = run_all(&mut reports, &replica_of(2), now);
        assert_eq!(ran, ["on_demoted", "on_primary_changed"]);
        // The same member in a later term registers again, although no hook saw the time between.
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
            // The other hook runs in the meantime.
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
        // Not retried: the new state is reported without a delay.
        let ran = run_all(&mut reports, &replica_of(1), now);
        assert_eq!(ran, ["on_demoted", "on_primary_changed"]);
        assert_eq!(reports.failing(), []);
    }
}

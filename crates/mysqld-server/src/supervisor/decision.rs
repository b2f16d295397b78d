//! The pure decision about the process: start, adopt, stop. `plan::kill` in the crate `mysqld-controller` decides when a running mysqld is
//! killed for the ring (`restart`).

use std::time::Duration;

use tokio::time::Instant;

/// How much time the ring has after a shutdown that the member did not request is detected. mysqld gives waiting sessions ten seconds, and
/// the detection may be late.
pub const UNASKED_STOP: Duration = Duration::from_secs(2);

/// How long mysqld may take to stop after the request.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(120);

/// A process id of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub i32);

/// The process that uses the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No mysqld uses the data directory.
    Nothing,
    /// A mysqld that this supervisor knows.
    Known(ProcessId),
    /// A mysqld that this member started before its own restart.
    Unknown(ProcessId),
    /// A leftover process that initialises the data directory.
    Initialiser(ProcessId),
    /// A mysqld that another program has started since then, without the start guard.
    Unguarded(ProcessId),
}

/// The content of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDir {
    /// Data that mysqld can start on.
    Ready,
    /// Empty or missing.
    Empty,
    /// An unfinished initialisation by this member.
    HalfInitialised,
}

/// The goal of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A running mysqld, restarted when it ends.
    Running,
    /// No mysqld: a running one is drained and stopped.
    Stopped,
    /// The supervisor ends, and mysqld keeps running.
    LeftAlone,
}

/// How to end a mysqld before it is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Immediately, so that waiting commits do not complete without an ACK.
    Kill,
    /// Cleanly, as in a stop.
    Stop,
}

/// Progress of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopping {
    /// When the stop began.
    pub since: Instant,
    /// True if no commit waits, and no later commit can wait.
    pub drained: bool,
    /// Since when mysqld no longer listens although its commits wait for the ring. In that case another program has requested a shutdown,
    /// and within seconds mysqld reports to waiting clients that their commits succeeded.
    pub ends_unasked: Option<Instant>,
    /// When the member requested the stop.
    pub asked: Option<Instant>,
}

/// The inputs of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The process that runs on the data directory, if one does.
    pub found: Found,
    /// The content of the data directory.
    pub data_dir: DataDir,
    /// The goal of the supervisor.
    pub wanted: Wanted,
    /// Whether to restart the running mysqld, and how.
    pub restart: Option<Restart>,
    /// Whether an empty data directory may be initialised.
    pub may_initialise: bool,
    /// True while a new data directory must be initialised in place of this one.
    pub new_data: bool,
    /// The earliest time of the next attempt after a failure.
    pub not_before: Option<Instant>,
    /// Progress of the stop, if a stop was begun.
    pub stopping: Option<Stopping>,
    /// How long commits may take to drain.
    pub drain_limit: Duration,
}

/// The supervisor's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start mysqld on its data directory.
    Start,
    /// Rename the data directory, so that a new one can be initialised in its place.
    SetDataAside,
    /// Initialise the data directory, after wiping the files of an unfinished attempt.
    Initialise,
    /// Refuse: the data directory is empty and may not be initialised.
    RefuseEmpty,
    /// Take control of a mysqld that this supervisor did not start.
    Adopt(ProcessId),
    /// Close mysqld for writes, and let its commits complete.
    Drain(ProcessId),
    /// Request a clean stop.
    Ask(ProcessId),
    /// Kill mysqld. The next check finds that it has ended.
    Kill(ProcessId),
    /// No action until something changes.
    Wait,
    /// The goal is reached; the supervisor ends.
    End,
}

/// Returns the supervisor's next action.
pub fn decide(situation: &Situation, now: Instant) -> Action {
    match situation.wanted {
        Wanted::LeftAlone => Action::End,
        Wanted::Running => keep_running(situation, now),
        Wanted::Stopped => stop(situation, now),
    }
}

fn keep_running(situation: &Situation, now: Instant) -> Action {
    match (situation.found, situation.restart) {
        (Found::Known(pid) | Found::Unknown(pid), Some(Restart::Kill)) => {
            return Action::Kill(pid);
        }
        (Found::Known(_) | Found::Unknown(_), Some(Restart::Stop)) => return stop(situation, now),
        (Found::Known(_), None) => return Action::Wait,
        (Found::Unknown(pid), None) => return Action::Adopt(pid),
        // The initialiser belongs to an attempt with an unknown outcome. The recovery of an unguarded mysqld commits transactions that were
        // not acknowledged.
        (Found::Initialiser(pid) | Found::Unguarded(pid), _) => return Action::Kill(pid),
        (Found::Nothing, _) => {}
    }
    if situation.not_before.is_some_and(|at| now < at) {
        return Action::Wait;
    }
    match situation.data_dir {
        DataDir::Ready if situation.new_data => Action::SetDataAside,
        DataDir::Ready => Action::Start,
        DataDir::HalfInitialised => Action::Initialise,
        DataDir::Empty if situation.may_initialise || situation.new_data => Action::Initialise,
        DataDir::Empty => Action::RefuseEmpty,
    }
}

fn stop(situation: &Situation, now: Instant) -> Action {
    let pid = match situation.found {
        Found::Nothing => return Action::End,
        Found::Initialiser(pid) | Found::Unguarded(pid) => return Action::Kill(pid),
        Found::Known(pid) | Found::Unknown(pid) => pid,
    };
    let Some(stopping) = situation.stopping else {
        return Action::Drain(pid);
    };
    let passed = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
    let unasked = stopping.ends_unasked;
    let unasked = unasked.is_some_and(|since| passed(since, UNASKED_STOP));
    match stopping.asked {
        Some(asked) if passed(asked, STOP_LIMIT) => Action::Kill(pid),
        Some(_) => Action::Wait,
        None if stopping.drained => Action::Ask(pid),
        // If mysqld were asked to stop, it would report waiting commits as successful.
        None if unasked || passed(stopping.since, situation.drain_limit) => Action::Kill(pid),
        None => Action::Drain(pid),
    }
}

// Waits between failed attempts. Each is twice as long as the previous one, up to a limit.

/// Growing waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates waits from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first.min(longest),
        }
    }

    /// Counts one more failure, and returns the wait after it.
    pub fn fail(&mut self) -> Duration {
        let wait = self.next;
        self.next = self.next.saturating_mul(2).min(self.longest);
        wait
    }

    /// Records that an attempt began and ended after `lasted`. It counts as a success only if it lasted longer than the longest wait. So
    /// repeated immediate failures back off like failed starts.
    pub fn ended_after(&mut self, lasted: Duration) {
        if lasted >= self.longest {
            self.next = self.first.min(self.longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: ProcessId = ProcessId(42);
    const DRAIN: Duration = Duration::from_secs(10);

    fn situation(now: Instant) -> Situation {
        Situation {
            found: Found::Nothing,
            data_dir: DataDir::Ready,
            wanted: Wanted::Running,
            restart: None,
            may_initialise: true,
            new_data: false,
            not_before: Some(now),
            stopping: None,
            drain_limit: DRAIN,
        }
    }

    #[test]
    fn a_server_is_kept_running() {
        let now = Instant::now();
        let later = Some(now + Duration::from_millis(1));
        let table = [
            (Found::Nothing, DataDir::Ready, true, None, Action::Start),
            (
                Found::Nothing,
                DataDir::Ready,
                false,
                Some(now),
                Action::Start,
            ),
            (Found::Nothing, DataDir::Ready, true, later, Action::Wait),
            (
                Found::Nothing,
                DataDir::Empty,
                true,
                None,
                Action::Initialise,
            ),
            (Found::Nothing, DataDir::Empty, true, later, Action::Wait),
            (
                Found::Nothing,
                DataDir::Empty,
                false,
                None,
                Action::RefuseEmpty,
            ),
            (
                Found::Nothing,
                DataDir::HalfInitialised,
                false,
                None,
                Action::Initialise,
            ),
            (Found::Known(PID), DataDir::Ready, true, None, Action::Wait),
            (
                Found::Unknown(PID),
                DataDir::Ready,
                true,
                later,
                Action::Adopt(PID),
            ),
            (
                Found::Initialiser(PID),
                DataDir::HalfInitialised,
                true,
                None,
                Action::Kill(PID),
            ),
            (
                Found::Unguarded(PID),
                DataDir::Ready,
                true,
                later,
                Action::Kill(PID),
            ),
        ];
        for (found, data_dir, may_initialise, not_before, expected) in table {
            let situation = Situation {
                found,
                data_dir,
                may_initialise,
                not_before,
                ..situation(now)
            };
            assert_eq!(decide(&situation, now), expected, "{situation:?}");
        }
    }

    #[test]
    fn a_server_gets_a_new_data_directory_while_none_runs() {
        let now = Instant::now();
        let table = [
            (Found::Nothing, DataDir::Ready, Action::SetDataAside),
            // A crash of the member after the rename and before the initialisation.
            (Found::Nothing, DataDir::Empty, Action::Initialise),
            (Found::Nothing, DataDir::HalfInitialised, Action::Initialise),
            (Found::Known(PID), DataDir::Ready, Action::Wait),
        ];
        for (found, data_dir, expected) in table {
            let situation = Situation {
                found,
                data_dir,
                may_initialise: false,
                new_data: true,
                ..situation(now)
            };
            assert_eq!(decide(&situation, now), expected, "{situation:?}");
        }
    }

    #[test]
    fn a_server_is_started_anew_without_being_asked_to_stop() {
        let now = Instant::now();
        let restart = |found| Situation {
            found,
            restart: Some(Restart::Kill),
            ..situation(now)
        };
        // A clean stop would complete the waiting commits.
        assert_eq!(decide(&restart(Found::Known(PID)), now), Action::Kill(PID));
        assert_eq!(
            decide(&restart(Found::Unknown(PID)), now),
            Action::Kill(PID)
        );
        assert_eq!(decide(&restart(Found::Nothing), now), Action::Start);
        let stopped = Situation {
            wanted: Wanted::Stopped,
            ..restart(Found::Known(PID))
        };
        assert_eq!(decide(&stopped, now), Action::Drain(PID));
    }

    #[test]
    fn a_server_is_restarted_as_it_is_stopped_and_then_started() {
        let now = Instant::now();
        let restarted = |found, stopping| Situation {
            found,
            stopping,
            restart: Some(Restart::Stop),
            not_before: None,
            ..situation(now)
        };
        let stopping = |drained, asked| {
            Some(Stopping {
                since: now,
                drained,
                ends_unasked: None,
                asked,
            })
        };
        let known = Found::Known(PID);
        let table = [
            (restarted(known, None), Action::Drain(PID)),
            (restarted(known, stopping(true, None)), Action::Ask(PID)),
            (restarted(known, stopping(true, Some(now))), Action::Wait),
            (restarted(Found::Unknown(PID), None), Action::Drain(PID)),
            (restarted(Found::Nothing, None), Action::Start),
        ];
        for (situation, expected) in table {
            assert_eq!(decide(&situation, now), expected, "{situation:?}");
        }
    }

    #[test]
    fn a_server_is_stopped_without_lying_to_clients() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let stopping = |drained, asked| {
            Some(Stopping {
                since: began,
                drained,
                ends_unasked: None,
                asked,
            })
        };
        let table = [
            (Found::Nothing, None, 0, Action::End),
            (Found::Known(PID), None, 0, Action::Drain(PID)),
            (Found::Unknown(PID), None, 0, Action::Drain(PID)),
            (Found::Initialiser(PID), None, 0, Action::Kill(PID)),
            (
                Found::Known(PID),
                stopping(false, None),
                9,
                Action::Drain(PID),
            ),
            (Found::Known(PID), stopping(true, None), 9, Action::Ask(PID)),
            (
                Found::Known(PID),
                stopping(false, None),
                10,
                Action::Kill(PID),
            ),
            (
                Found::Known(PID),
                stopping(true, Some(at(5))),
                6,
                Action::Wait,
            ),
            (
                Found::Known(PID),
                stopping(true, Some(at(5))),
                125,
                Action::Kill(PID),
            ),
            (Found::Nothing, stopping(true, Some(at(5))), 6, Action::End),
        ];
        for (found, stopping, seconds, expected) in table {
            let situation = Situation {
                found,
                stopping,
                wanted: Wanted::Stopped,
                ..situation(began)
            };
            assert_eq!(decide(&situation, at(seconds)), expected, "{situation:?}");
        }
    }

    #[test]
    fn a_server_that_others_stop_is_killed_before_it_lets_commits_through() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for (ends_unasked, seconds, expected) in [
            (Some(at(3)), 3, Action::Drain(PID)),
            (Some(at(3)), 4, Action::Drain(PID)),
            (Some(at(3)), 5, Action::Kill(PID)),
            (None, 5, Action::Drain(PID)),
        ] {
            let situation = Situation {
                found: Found::Known(PID),
                stopping: Some(Stopping {
                    since: began,
                    drained: false,
                    ends_unasked,
                    asked: None,
                }),
                wanted: Wanted::Stopped,
                ..situation(began)
            };
            assert_eq!(decide(&situation, at(seconds)), expected, "{situation:?}");
        }
    }

    #[test]
    fn a_server_that_is_left_alone_is_not_touched() {
        let now = Instant::now();
        for found in [Found::Nothing, Found::Known(PID), Found::Unknown(PID)] {
            let situation = Situation {
                found,
                wanted: Wanted::LeftAlone,
                ..situation(now)
            };
            assert_eq!(decide(&situation, now), Action::End);
        }
    }
}

#[cfg(test)]
mod backoff_tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let waits: Vec<u128> = (0..4).map(|_| backoff.fail().as_millis()).collect();
        assert_eq!(waits, [100, 200, 350, 350]);
    }

    #[test]
    fn what_ends_at_once_again_and_again_is_waited_for_longer_each_time() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let mut wait_after = |lasted| {
            backoff.ended_after(Duration::from_millis(lasted));
            backoff.fail().as_millis()
        };
        assert_eq!([5, 5, 349].map(&mut wait_after), [100, 200, 350]);
        assert_eq!(wait_after(350), 100);
    }
}

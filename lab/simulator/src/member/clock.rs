//! A member's clock. Its rate may differ slightly from the world's. The clock advances while the process is paused, like a monotonic clock.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::tick::Tick;

/// A clock's rate, in thousandths of the world's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockRate(pub(crate) u32);

impl ClockRate {
    /// Converts a duration of the world to this clock.
    pub(super) fn of(self, time: Duration) -> Duration {
        time * self.0 / 1000
    }
}

/// The clock of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    rate: ClockRate,
    began: Tick,
    origin: Instant,
}

impl Clock {
    /// The clock of a process that began at the moment `began`, when its runtime showed `origin`.
    pub(super) fn new(rate: ClockRate, began: Tick, origin: Instant) -> Self {
        Self {
            rate,
            began,
            origin,
        }
    }

    /// Returns what this clock shows at a moment of the world.
    pub(super) fn at(&self, now: Tick) -> Instant {
        self.origin + self.rate.of(now - self.began)
    }

    /// Returns the time since the world's start, measured by this clock.
    pub(super) fn since_the_beginning(&self, shown: Instant) -> Duration {
        self.rate.of(self.began.elapsed()) + shown.saturating_duration_since(self.origin)
    }
}

thread_local! {
    /// The clock of the current runtime, if that runtime does not belong to a member.
    static OF_NO_MEMBER: Cell<Option<Clock>> = const { Cell::new(None) };
}

/// Runs `work` in a runtime that does not belong to a member, with this clock.
pub(super) fn during<R>(clock: Clock, work: impl FnOnce() -> R) -> R {
    OF_NO_MEMBER.set(Some(clock));
    let done = work();
    OF_NO_MEMBER.set(None);
    done
}

/// Returns the clock that [`during`] has set. `None`: the current runtime belongs to a member.
pub(super) fn of_no_member() -> Option<Clock> {
    OF_NO_MEMBER.get()
}

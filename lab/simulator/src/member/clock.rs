//! A member's clock: at the world's rate, or slightly faster or slower. It advances while the process is paused, like the machine's
//! monotonic clock.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::tick::Tick;

/// A clock's rate, in thousandths of the world's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockRate(pub(crate) u32);

impl ClockRate {
    /// This clock's equivalent of a duration of the world.
    pub(super) fn of(self, time: Duration) -> Duration {
        time * self.0 / 1000
    }
}

/// See the module documentation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    rate: ClockRate,
    began: Tick,
    origin: Instant,
}

impl Clock {
    /// The clock of a process whose runtime shows `origin` at the moment `began`.
    pub(super) fn new(rate: ClockRate, began: Tick, origin: Instant) -> Self {
        Self {
            rate,
            began,
            origin,
        }
    }

    /// Its time at a moment of the world.
    pub(super) fn at(&self, now: Tick) -> Instant {
        self.origin + self.rate.of(now - self.began)
    }

    /// The time since the world's start, by this clock.
    pub(super) fn since_the_beginning(&self, shown: Instant) -> Duration {
        self.rate.of(self.began.elapsed()) + shown.saturating_duration_since(self.origin)
    }
}

thread_local! {
    /// The current runtime's clock, if it is not a member's.
    static OF_NO_MEMBER: Cell<Option<Clock>> = const { Cell::new(None) };
}

/// Runs a runtime that is not a member's on this clock.
pub(super) fn during<R>(clock: Clock, work: impl FnOnce() -> R) -> R {
    OF_NO_MEMBER.set(Some(clock));
    let done = work();
    OF_NO_MEMBER.set(None);
    done
}

/// That clock, during such a run.
pub(super) fn of_no_member() -> Option<Clock> {
    OF_NO_MEMBER.get()
}

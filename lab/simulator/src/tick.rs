//! The virtual time of the world. Members have clocks of their own, which may be slightly faster or slower.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// The length of a step of the world. A message takes at least one step. So members do not influence each other within a step, and can run
/// one by one.
pub(crate) const STEP: Duration = Duration::from_millis(5);

/// A moment, as the number of steps since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(pub(crate) u64);

impl Tick {
    /// Returns the time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        STEP * u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// Returns the number of steps in a duration, rounded up.
    pub(crate) fn steps(time: Duration) -> u64 {
        let steps = time.as_nanos().div_ceil(STEP.as_nanos());
        u64::try_from(steps).unwrap_or(u64::MAX)
    }

    /// Returns the moment that is later by `time`.
    pub(crate) fn after(self, time: Duration) -> Self {
        self + Self::steps(time)
    }
}

impl Add<u64> for Tick {
    type Output = Self;

    fn add(self, steps: u64) -> Self {
        Self(self.0.saturating_add(steps))
    }
}

impl Sub for Tick {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Self(self.0.saturating_sub(earlier.0)).elapsed()
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3} s", self.elapsed().as_secs_f64())
    }
}
